//! Tells a guest that hangs from one that the host gives little time.
//!
//! The wall's clock cannot: beside twenty busy programs a guest that works says nothing for twenty times as long. So
//! the guest's silence is counted in the CPU time that QEMU uses. That time stands still while QEMU waits for a CPU,
//! for a disk, is stopped (SIGSTOP, a debugger) or the host is suspended, and none of these is the guest's fault.
//!
//! A guest that nothing will wake uses no time at all. With `-icount sleep=off`, QEMU sleeps only when no timer of the
//! guest is set: an idle guest's clock jumps to the next timer, and moving it costs CPU time. So virtual time stands
//! still exactly when all of QEMU's threads sleep and none uses time. One look may meet a moment between two threads'
//! turns; many looks in a row do not. They are counted, not timed: a stopped tarn does not look.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::ClockId;
use nix::unistd::Pid;

/// How often in a row a guest has to be found asleep; looks are a tenth of a second apart (see `vm`).
const LOOKS: u32 = 300;
/// Less CPU time than this between two looks is that of waking up for nothing.
const NOTHING: Duration = Duration::from_millis(1);

/// What one look at QEMU finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The CPU time of all its threads since its start, user and system.
    pub cpu: Duration,
    /// Whether every thread sleeps (state S): none runs or waits for a CPU or a disk, and none is stopped.
    pub asleep: bool,
}

impl Sample {
    /// Looks at a process.
    ///
    /// # Errors
    /// When it is gone.
    pub fn of(process: Pid) -> Result<Self> {
        Ok(Self {
            cpu: cpu_time(process)?,
            asleep: all_sleep(process)?,
        })
    }
}

/// Judges from one look to the next.
pub struct Watchdog {
    /// The CPU time that a guest may use without a sign of life.
    patience: Duration,
    /// QEMU's CPU time at the last sign of life.
    heard: Duration,
    last: Duration,
    asleep: u32,
}

impl Watchdog {
    /// One that has just heard from a guest that starts.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            heard: Duration::ZERO,
            last: Duration::ZERO,
            asleep: 0,
        }
    }

    /// Takes in a look, and whether the guest has given a sign of life since the one before it. Returns why the guest
    /// hangs, if it does.
    pub fn judge(&mut self, sample: Sample, sign_of_life: bool) -> Option<String> {
        let rests = sample.asleep && sample.cpu.saturating_sub(self.last) < NOTHING;
        self.last = sample.cpu;
        self.asleep = if rests && !sign_of_life { self.asleep + 1 } else { 0 };
        if sign_of_life {
            self.heard = sample.cpu;
        }
        if sample.cpu.saturating_sub(self.heard) > self.patience {
            let seconds = self.patience.as_secs();
            return Some(format!(
                "has said nothing for {seconds} seconds of CPU time and was ended"
            ));
        }
        (self.asleep >= LOOKS).then(|| "sleeps, has set no timer that could wake it, and was ended".to_owned())
    }
}

/// The CPU time that a process's threads have used since its start, those that have ended included.
///
/// # Errors
/// When it is gone.
pub fn cpu_time(process: Pid) -> Result<Duration> {
    let read = || ClockId::pid_cpu_clock_id(process)?.now();
    let time = read().with_context(|| format!("cannot read the CPU time of process {process}"))?;
    Ok(time.into())
}

fn all_sleep(process: Pid) -> Result<bool> {
    let directory = format!("/proc/{process}/task");
    let threads = fs::read_dir(&directory).with_context(|| format!("cannot read {directory}"))?;
    // A thread that has ended since does not work.
    let states = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    Ok(states.into_iter().all(|line| state(&line) == Some('S')))
}

/// The state in a line of `/proc/PID/stat`: `12 (a name) S 1 ...`. The name may have brackets and blanks.
fn state(line: &str) -> Option<char> {
    line.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::thread::sleep;
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(300);

    /// The looks after which a guest is judged to hang, out of `looks`.
    fn judged(looks: u32, sample: impl Fn(u32) -> (Sample, bool)) -> Option<u32> {
        let mut watchdog = Watchdog::new(PATIENCE);
        (0..looks).find(|look| {
            let (sample, sign_of_life) = sample(*look);
            watchdog.judge(sample, sign_of_life).is_some()
        })
    }

    fn sample(milliseconds: u32, asleep: bool) -> Sample {
        Sample {
            cpu: Duration::from_millis(milliseconds.into()),
            asleep,
        }
    }

    #[test]
    fn a_guest_that_uses_its_time_without_a_sign_of_life_hangs() {
        assert_eq!(judged(10_000, |look| (sample(look * 100, false), false)), Some(3001));
    }

    /// With a load of 20, a test of 30 s takes ten minutes.
    #[test]
    fn a_guest_that_gets_little_time_is_waited_for() {
        assert_eq!(judged(30_000, |look| (sample(look * 5, false), false)), None);
    }

    #[test]
    fn a_sign_of_life_begins_the_count_anew() {
        let speaks = |look: u32| (sample(look * 100, false), look % 2900 == 0);
        assert_eq!(judged(20_000, speaks), None);
    }

    #[test]
    fn a_guest_that_nothing_will_wake_hangs() {
        assert_eq!(judged(1000, |look| (sample(50, true), look == 5)), Some(5 + LOOKS));
    }

    /// QEMU stopped by SIGSTOP, waiting for a CPU or for a swapped page has not gone to sleep.
    #[test]
    fn a_guest_that_does_not_get_on_because_of_the_host_is_waited_for() {
        assert_eq!(judged(100_000, |_| (sample(50, false), false)), None);
    }

    /// A look may come between two threads' turns, again and again; time that is used tells that the guest works.
    #[test]
    fn a_guest_that_is_found_asleep_by_chance_is_waited_for() {
        assert_eq!(judged(2000, |look| (sample(look * 2, true), false)), None);
        assert_eq!(judged(2000, |look| (sample(50, look % 250 != 0), false)), None);
    }

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    /// Looks at a process until it is as expected, for at most 10 s.
    fn becomes(child: &Child, expected: impl Fn(Sample) -> bool) -> bool {
        let (process, began) = (Pid::from_raw(child.id() as i32), Instant::now());
        while began.elapsed() < Duration::from_secs(10) {
            if expected(Sample::of(process).unwrap()) {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn a_process_is_seen_to_work_to_sleep_and_to_be_stopped() {
        let mut worker = start("while :; do :; done");
        assert!(becomes(&worker, |sample| sample.cpu > Duration::from_millis(20)
            && !sample.asleep));
        let mut sleeper = start("read nothing; exec sleep 1000");
        assert!(becomes(&sleeper, |sample| sample.asleep));
        let stopped = Command::new("kill").args(["-STOP", &sleeper.id().to_string()]).status();
        assert!(stopped.unwrap().success());
        assert!(becomes(&sleeper, |sample| !sample.asleep));
        for child in [&mut worker, &mut sleeper] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_state_is_found_behind_any_name() {
        assert_eq!(state("12 (qemu-system-x86) S 1 2"), Some('S'));
        assert_eq!(state("12 (a) S (b) R 1 2"), Some('R'));
        assert_eq!(state(""), None);
    }
}
