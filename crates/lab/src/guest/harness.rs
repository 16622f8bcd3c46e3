//! Runs the kernel-facing tests: every one in a process and a network namespace of its own.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};

use super::channel::Channel;
use super::checkers::Checkers;
use super::kernel_log::KernelLog;
use super::quiet;
use crate::debug;
use crate::program;
use crate::protocol::{Circumstances, Message, Verdict};
use crate::topology::bring_loopback_up;

/// The test harness: this very program.
const HARNESS: &str = "/init";
/// Where a test's output is kept while it runs.
const OUTPUT: &str = "/tmp/.output";
/// How long a test may take, by the guest's clock.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// How much of a failed test's output is reported, from its end.
const OUTPUT_LIMIT: usize = 32 * 1024;
/// What a harness writes behind a thread's name, and before the place.
const PANICKED: &str = " panicked at ";
/// What a test prints, with the reason behind it, when this kernel lacks what it needs.
const SKIP: &str = "SKIP: ";
/// What a test prints, with the words behind it, when the kernel has to complain.
const COMPLAINT: &str = "COMPLAINT: ";
/// Tells a test which suite it runs in.
const SUITE_VARIABLE: &str = "TARN_LAB_SUITE";

/// Runs these tests and reports each; a failed test is not an error.
pub fn run(channel: &Channel, names: &[String], circumstances: &Circumstances) -> Result<()> {
    // A debug kernel is never quiet, and nothing is measured on it.
    if !circumstances.debug {
        quiet::wait(Duration::from_secs(30))?;
    }
    let mut kernel = Kernel {
        checkers: circumstances.debug.then(Checkers::open).transpose()?,
        log: KernelLog::open()?,
    };
    for (done, name) in names.iter().enumerate() {
        channel.progress(name, done as f64 / names.len() as f64);
        let is_last = done + 1 == names.len();
        let (verdict, detail) =
            run_one(name, circumstances, &mut kernel, is_last).with_context(|| format!("test {name}"))?;
        channel.send(&Message::Test {
            name: name.clone(),
            verdict,
            detail,
        });
    }
    Ok(())
}

/// What the kernel says about itself.
struct Kernel {
    log: KernelLog,
    /// On a debug kernel.
    checkers: Option<Checkers>,
}

impl Kernel {
    /// What it complains of after a test. Memory that any test has lost is looked for after the last one: that takes 12 s
    /// of the guest's time. It is not needed where the complaints that the test announced are there already.
    fn alarms(&mut self, output: &str, is_last: bool) -> Result<Vec<String>> {
        let mut alarms = self.log.alarms()?;
        let Some(checkers) = &mut self.checkers else {
            return Ok(alarms);
        };
        let is_awaited = missing(output, &alarms).next().is_some() || complaints(output).next().is_none();
        if is_last && is_awaited {
            alarms.extend(checkers.leaks()?);
        }
        alarms.extend(checkers.has_stopped()?);
        alarms.extend(self.log.alarms()?);
        Ok(alarms)
    }
}

fn run_one(name: &str, circumstances: &Circumstances, kernel: &mut Kernel, is_last: bool) -> Result<(Verdict, String)> {
    let child = start(name, circumstances)?;
    let status = wait(child, TIME_LIMIT)?;
    kill_everything()?;
    let output = std::fs::read(OUTPUT).context("cannot read the test's output")?;
    let output = String::from_utf8_lossy(&output);
    Ok(judge(status, &output, &kernel.alarms(&output, is_last)?))
}

/// Starts one test, in a session and a network namespace of its own, with its output in a file.
fn start(name: &str, circumstances: &Circumstances) -> Result<Child> {
    let output = File::create(OUTPUT).context("cannot make a file for the test's output")?;
    let mut command = Command::new(HARNESS);
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    command
        .env(SUITE_VARIABLE, &circumstances.suite)
        .env("RUST_BACKTRACE", "1")
        .current_dir("/tmp")
        .stdin(Stdio::null());
    if circumstances.debug {
        command.env(debug::VARIABLE, "1");
    }
    command.env(program::SEED_VARIABLE, circumstances.seed.to_string());
    if circumstances.thorough {
        command.env(program::THOROUGH_VARIABLE, "1");
    }
    command
        .stdout(output.try_clone().context("cannot use the output file twice")?)
        .stderr(output);
    // SAFETY: the closure only makes system calls, which are safe between fork and exec.
    unsafe { command.pre_exec(isolate) };
    command.spawn().context("cannot start the test")
}

/// What a test's process does before it becomes the test.
fn isolate() -> io::Result<()> {
    setsid()?;
    unshare(CloneFlags::CLONE_NEWNET)?;
    bring_loopback_up()
}

/// Waits for the test's process; `None` when the time limit came first, and it is killed then.
fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let process = open_process(&child)?;
    let timeout = PollTimeout::try_from(limit).context("the time limit is out of range")?;
    let ended = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout).context("cannot wait")?;
    if ended == 0 {
        child.kill().context("cannot kill the test")?;
    }
    let status = child.wait().context("cannot wait for the test")?;
    Ok((ended != 0).then_some(status))
}

/// A descriptor that becomes readable when the child ends.
fn open_process(child: &Child) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error()).context("cannot watch the test's process");
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Ends whatever a test left running: everything but process 1 and this one.
fn kill_everything() -> Result<()> {
    match kill(Pid::from_raw(-1), Signal::SIGKILL) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).context("cannot end what the test left running"),
    }
}

/// The verdict over a test, and what to tell the developer.
fn judge(status: Option<ExitStatus>, output: &str, alarms: &[String]) -> (Verdict, String) {
    let mut failures = Vec::new();
    match status {
        None => failures.push(format!("it did not end within {} s", TIME_LIMIT.as_secs())),
        Some(status) if !status.success() => {
            let panic = first_panic(output).map(|panic| format!(", {panic}"));
            failures.push(describe(status) + &panic.unwrap_or_default());
        }
        Some(_) => {}
    }
    if complaints(output).next().is_none() && !alarms.is_empty() {
        failures.push(format!("the kernel complained:\n{}", alarms.join("\n")));
    }
    for words in missing(output, alarms) {
        failures.push(format!(
            "the kernel did not complain of {words:?}; what it said:\n{}",
            alarms.join("\n")
        ));
    }
    let reason = output.lines().find_map(|line| marked(line, SKIP));
    if failures.is_empty() {
        match reason {
            Some(reason) => return (Verdict::Skipped, reason.to_owned()),
            None if output.contains("test result: ok. 1 passed") => return (Verdict::Passed, String::new()),
            None => failures.push("the harness did not run it".to_owned()),
        }
    }
    (Verdict::Failed, format!("{}\n{}", failures.join("\n"), end_of(output)))
}

/// The complaints that a test announces.
fn complaints(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| marked(line, COMPLAINT))
}

/// Those of them that have not come.
fn missing<'a>(output: &'a str, alarms: &'a [String]) -> impl Iterator<Item = &'a str> {
    complaints(output).filter(|words| !alarms.iter().any(|alarm| alarm.contains(words)))
}

/// What this line says behind the mark. The harness writes `test NAME ... ` and the test goes on in the same line.
fn marked<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let (before, text) = line.split_once(mark)?;
    (before.is_empty() || before.starts_with("test ") && before.ends_with(" ... ")).then_some(text)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("it was killed by signal {signal}"),
        (code, None) => format!("exit code {}", code.unwrap_or_default()),
    }
}

/// Where and why it panicked first, in one line: a summary may show no more than the first line of what is said of a failure.
fn first_panic(output: &str) -> Option<String> {
    let mut lines = output.lines().skip_while(|line| !line.contains(PANICKED));
    let (_, place) = lines.next()?.split_once(PANICKED)?;
    Some(
        [place, lines.next().unwrap_or_default()]
            .join(" ")
            .trim_end()
            .to_owned(),
    )
}

/// The last part of the output, from the beginning of a line.
fn end_of(output: &str) -> &str {
    if output.len() <= OUTPUT_LIMIT {
        return output;
    }
    let start = (output.len() - OUTPUT_LIMIT..output.len()).find(|&at| output.is_char_boundary(at));
    let end = &output[start.unwrap_or(output.len())..];
    end.split_once('\n').map_or(end, |(_, lines)| lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAN: &str = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";

    fn exit(code: i32) -> Option<ExitStatus> {
        Some(ExitStatus::from_raw(code << 8))
    }

    #[test]
    fn a_test_that_ran_and_held_passes() {
        assert_eq!(judge(exit(0), RAN, &[]), (Verdict::Passed, String::new()));
    }

    #[test]
    fn a_skip_is_never_a_pass_and_keeps_its_reason() {
        let skipped = (Verdict::Skipped, "no such qdisc".to_owned());
        assert_eq!(judge(exit(0), &format!("SKIP: no such qdisc\n{RAN}"), &[]), skipped);
        let in_the_line_of_the_name = RAN.replace("a ... ok", "a ... SKIP: no such qdisc\nok");
        assert_eq!(judge(exit(0), &in_the_line_of_the_name, &[]), skipped);
        assert_eq!(
            judge(exit(0), &format!("it said SKIP: no\n{RAN}"), &[]).0,
            Verdict::Passed
        );
    }

    #[test]
    fn a_kernel_warning_fails_even_a_test_that_skipped_or_passed() {
        let alarms = ["WARNING: CPU: 0".to_owned()];
        assert_eq!(judge(exit(0), RAN, &alarms).0, Verdict::Failed);
        assert!(judge(exit(0), "SKIP: why\n", &alarms).1.contains("WARNING: CPU: 0"));
    }

    /// A debug kernel that does not find what is wrong on purpose is of no use.
    #[test]
    fn a_complaint_that_a_test_announces_has_to_come() {
        let output = format!("COMPLAINT: suspicious RCU usage\n{RAN}");
        let alarms = |text: &str| ["Call Trace:".to_owned(), text.to_owned()];
        let verdict = |text: &str| judge(exit(0), &output, &alarms(text)).0;
        assert_eq!(verdict("WARNING: suspicious RCU usage"), Verdict::Passed);
        assert_eq!(verdict("BUG: something else"), Verdict::Failed);
        assert_eq!(judge(exit(0), &output, &[]).0, Verdict::Failed);
    }

    #[test]
    fn a_test_that_never_ran_is_no_pass() {
        assert_eq!(judge(exit(0), "test result: ok. 0 passed", &[]).0, Verdict::Failed);
    }

    #[test]
    fn a_failure_says_how_it_ended_and_shows_the_output() {
        assert!(
            judge(exit(101), "panicked at x", &[])
                .1
                .starts_with("exit code 101\npanicked at x")
        );
        assert!(judge(Some(ExitStatus::from_raw(11)), "", &[]).1.contains("signal 11"));
        assert!(judge(None, "", &[]).1.contains("did not end"));
    }

    #[test]
    fn a_failure_begins_with_the_panic() {
        let output = "running 1 test\nthread 'a' (7) panicked at src/a.rs:1:2:\nno answer\nstack backtrace:\n";
        let detail = judge(exit(101), output, &[]).1;
        assert_eq!(detail.lines().next(), Some("exit code 101, src/a.rs:1:2: no answer"));
    }

    #[test]
    fn a_long_output_is_cut_at_a_line() {
        let output = "line of output\n".repeat(OUTPUT_LIMIT / 10);
        let end = end_of(&output);
        assert!(end.len() <= OUTPUT_LIMIT && end.starts_with("line of output\n"));
    }
}
