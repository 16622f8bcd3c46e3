//! One guest: QEMU without any help of the host's processor, its clock driven by the instructions it executes.
//!
//! What makes a run repeatable, option by option:
//! - `-icount shift=0,sleep=off`: an instruction takes a nanosecond; when the guest is idle, the clock jumps to the
//!   next timer. Two virtual CPUs take turns on one host thread; before QEMU 8.1 the second one's turn comes only
//!   when the first pauses or idles, never while it computes.
//! - a library that QEMU loads (see `turns`): its threads take turns, and the vCPU has a clock of its own.
//! - `-rtc clock=vm` with a fixed date: the wall clock is the same clock.
//! - `-seed`: what RDRAND-like devices and the firmware's random seed return.
//! - no disk, no shared directory: they complete at the host's speed. The guest's only way out is the debug console, which
//!   takes a byte an instruction, and the serial console, which is a file. Network cards are there only where they are asked for,
//!   and lead nowhere but to one another (see `cards`).
//! - kernel arguments: `nokaslr`, `norandmaps` (addresses decide about cache and hash collisions; and QEMU translates
//!   a program anew for every address that it is run at, which took more than half of a test's time),
//!   `random.trust_cpu=0`, `tsc=reliable` (no calibration against a second clock). `cryptomgr.notests` only saves
//!   time: a stock kernel tests its ciphers for half a second after it has booted.
//!
//! The processor is `qemu64`, a plain AMD one, with the few extensions that QEMU has always emulated. A model with
//! "fast" string instructions (`max`, and every recent one) makes the kernel copy memory with `rep movsb`, which
//! counts an instruction a byte here while hardware moves 32 or 64 bytes a cycle: a datagram of 32 KiB through a
//! socket pair on 6.12 takes 111,956 instructions on `max` and 22,482 on this one (64 bytes: 4,779 and 4,695). `EPYC`
//! copies as this one does, but adds the mitigation of a flaw that its hardware has. And a model with features that
//! only newer versions of QEMU emulate would make figures depend on QEMU's version.
//!
//! The machine is an old PC of a fixed version, so that newer versions of QEMU show the guest the same devices.
//! (`microvm` would start half a second sooner, but leaves a stock kernel without high-resolution timers: every
//! delay is rounded up to a tick of 4 ms.)

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use thiserror::Error;

use super::archive::{Archive, GuestFile};
use super::cards::Cards;
use super::console::Console;
use super::debug;
use super::host::{self, QEMU};
use super::image::Image;
use super::protocol::{DEBUG_CONSOLE_PORT, JOB_PATH, Job, Message};
use super::record::Record;
use super::sandbox;
use super::turns;
use super::watchdog::{self, Sample, Watchdog};
use tarn_base::output::{Priority, log_at};

const MACHINE: &str = "pc-i440fx-7.0";

const PROCESSOR: &str = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand";

const KERNEL_ARGUMENTS: &str = "console=ttyS0 loglevel=5 panic=-1 rdinit=/init rootfstype=ramfs nokaslr \
                                norandmaps random.trust_cpu=0 tsc=reliable cryptomgr.notests";

/// Where what QEMU loads before the kernel lies: its instructions count, too.
const FIRMWARE: [&str; 3] = ["/usr/share/seabios", "/usr/share/qemu", "/usr/lib/ipxe/qemu"];

/// The date in the guest at boot.
const DATE: &str = "2026-01-01T00:00:00";

/// How much CPU time a guest may use without saying anything, neither a message nor a line on the console; and one with
/// a debug kernel, which executes several times as much for the same.
const PATIENCE: Duration = Duration::from_secs(300);
const DEBUG_PATIENCE: Duration = Duration::from_secs(1800);

/// How long a kernel in trouble may go on telling about it, and QEMU may take to end after its guest.
const GRACE: Duration = Duration::from_secs(3);

/// What a kernel says whose root file system is not whole (init/initramfs.c).
const NO_ROOT: &str = "Initramfs unpacking failed";

/// The lines of the console that an error shows.
const LAST_LINES: usize = 50;

/// What to boot.
pub struct Spec<'a> {
    /// The kernel and the root file system.
    pub image: &'a Image,
    /// What the guest is to do.
    pub job: &'a Job,
    /// The seed of the emulated random sources.
    pub seed: u64,
    /// Virtual CPUs, 1 or 2.
    pub cpus: u8,
    /// The guest's memory, in MiB.
    pub memory: u32,
    /// Its network cards.
    pub cards: Cards,
    /// What runs as process 1: a program that becomes the guest then (see `guest`). `None` for this very program.
    pub program: Option<&'a [u8]>,
    /// Files besides the program.
    pub files: Vec<GuestFile>,
}

impl Spec<'_> {
    /// All that decides about the guest's run. Of the image's files, which are large and never change in their place, names, sizes and times.
    ///
    /// # Errors
    /// A file that cannot be read, or no QEMU.
    pub fn identity(&self) -> Result<Vec<Vec<u8>>> {
        let version = Command::new(QEMU).arg("--version").output();
        let version = version.with_context(|| format!("cannot start {QEMU}"))?;
        let machine = format!(
            "{MACHINE} {PROCESSOR} {DATE} {} {} {} {} {}",
            kernel_arguments(self.image),
            self.seed,
            self.cpus,
            self.memory,
            self.cards.options().join(" ")
        );
        let mut parts = vec![version.stdout, machine.into_bytes(), self.program()?.into_owned()];
        parts.push(serde_json::to_vec(self.job)?);
        parts.push(turns::SOURCE.into());
        let firmware = FIRMWARE.iter().flat_map(fs::read_dir).flatten().flatten();
        // A link that leads nowhere is none of QEMU's.
        let mut paths: Vec<PathBuf> = firmware
            .map(|entry| entry.path())
            .filter(|path| path.exists())
            .collect();
        paths.sort();
        paths.push(self.image.kernel());
        paths.append(&mut self.image.archives());
        for path in paths {
            let found = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
            // Not by its path: a cache that is moved keeps its results.
            let name = path.file_name().unwrap_or_default();
            parts.push(format!("{name:?} {} {:?}", found.len(), found.modified()?).into_bytes());
        }
        for (path, permissions, content) in &self.files {
            parts.extend([format!("{path} {permissions:o}").into_bytes(), content.clone()]);
        }
        Ok(parts)
    }

    fn program(&self) -> Result<Cow<'_, [u8]>> {
        self.program
            .map_or_else(|| own_program().map(Cow::Owned), |program| Ok(program.into()))
    }
}

/// A guest that ended before its job did.
#[derive(Debug, Error)]
#[error("the guest {reason}. Its console's last lines:\n{console}")]
pub struct Died {
    /// What was seen.
    pub reason: String,
    /// The console's last lines.
    pub console: String,
}

/// A running guest. It ends with the value, and with the process.
struct Vm {
    child: Child,
    messages: ChildStdout,
    unread: Vec<u8>,
    console: Console,
    /// QEMU's standard error: a file, because nobody reads a pipe while the guest runs, and a full one would stop QEMU.
    complaints: File,
    patience: Duration,
    /// QEMU's CPU time, as last seen.
    cpu: Duration,
    ended: bool,
}

impl Vm {
    /// Boots a guest.
    ///
    /// # Errors
    /// [`tarn_base::error::Unsupported`] when this QEMU cannot run the guest's CPUs; otherwise the host's.
    fn start(spec: &Spec) -> Result<Self> {
        if spec.cpus > 1 {
            host::check_second_cpu(&spec.image.release)?;
        }
        let console = Console::new(in_memory("console")?);
        let complaints = in_memory("complaints")?;
        let initramfs = initramfs(spec)?;
        let mut command = qemu(spec, &initramfs);
        command.args(["-icount", "shift=0,sleep=off"]);
        command.args(["-chardev", "stdio,id=messages,signal=off"]);
        command.args([
            "-chardev",
            &format!("file,id=console,path=/dev/fd/{}", console.file().as_raw_fd()),
        ]);
        let library = in_memory("turns")?;
        turns::load(&mut command, &library)?;
        let inherited = [console.file(), &initramfs, &library].map(AsRawFd::as_raw_fd);
        hand_over(&mut command, &inherited);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(complaints.try_clone().context("cannot use a file twice")?);
        let mut child = command.spawn().with_context(|| format!("cannot start {QEMU}"))?;
        let messages = child.stdout.take().context("QEMU has no output")?;
        Ok(Self {
            child,
            messages,
            unread: Vec::new(),
            console,
            complaints,
            patience: match spec.image.debug_kernel() {
                Some(_) => DEBUG_PATIENCE,
                None => PATIENCE,
            },
            cpu: Duration::ZERO,
            ended: false,
        })
    }

    /// Follows the guest to its end and hands every message to `on_message`, with QEMU's CPU time so far. When `strict`,
    /// a warning of the kernel ends it as a panic does: whatever it measured would be in doubt.
    ///
    /// # Errors
    /// [`Died`] when it ends or stops before it says that its job has ended; and the error that the guest reports.
    fn follow(&mut self, strict: bool, mut on_message: impl FnMut(Message, Duration) -> Result<()>) -> Result<()> {
        let mut watchdog = Watchdog::new(self.patience);
        let mut trouble: Option<Instant> = None;
        let mut failure = None;
        loop {
            let mut heard = false;
            let more = self.read_messages(&mut |message, cpu| {
                heard = true;
                if let Message::Ended { error } = message {
                    failure = error;
                    return Ok(true);
                }
                on_message(message, cpu).map(|()| false)
            })?;
            heard |= self.console.update()?;
            if trouble.is_none() && self.console.trouble(strict).is_some() {
                trouble = Some(Instant::now());
            }
            if self.ended || !more || trouble.is_some_and(|since| since.elapsed() > GRACE) {
                break;
            }
            // One that has ended meanwhile is noticed above.
            if let Some(reason) = Sample::of(self.process())
                .ok()
                .and_then(|sample| watchdog.judge(sample, heard))
            {
                return Err(self.died(reason).into());
            }
        }
        self.conclude(strict, failure)
    }

    fn process(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// QEMU's CPU time; when it has ended, what was seen last.
    fn cpu_time(&mut self) -> Duration {
        self.cpu = watchdog::cpu_time(self.process()).map_or(self.cpu, |cpu| self.cpu.max(cpu));
        self.cpu
    }

    /// Waits a moment for messages and hands out those that came, with QEMU's CPU time. `false` when there will be no more.
    fn read_messages(&mut self, on_message: &mut dyn FnMut(Message, Duration) -> Result<bool>) -> Result<bool> {
        let mut descriptors = [PollFd::new(self.messages.as_fd(), PollFlags::POLLIN)];
        if poll(&mut descriptors, PollTimeout::from(100u8)).context("cannot wait for the guest")? == 0 {
            return Ok(true);
        }
        let mut bytes = [0; 65536];
        let count = self.messages.read(&mut bytes).context("cannot read from the guest")?;
        self.unread.extend_from_slice(&bytes[..count]);
        let cpu = self.cpu_time();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let message = serde_json::from_slice(&line).with_context(|| {
                let beginning = String::from_utf8_lossy(&line[..line.len().min(200)]);
                format!("the guest said what is no message: {beginning}")
            })?;
            self.ended |= on_message(message, cpu)?;
        }
        Ok(count > 0)
    }

    /// Judges a guest that has no more to say.
    fn conclude(&mut self, strict: bool, failure: Option<String>) -> Result<()> {
        let since = Instant::now();
        let mut status = self.child.try_wait()?;
        while status.is_none() && since.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(10));
            self.cpu_time();
            status = self.child.try_wait()?;
        }
        if self.ended && status.is_none() {
            log_at(
                Priority::Warning,
                "lab",
                "QEMU does not end though its guest has; it is killed",
            );
        }
        self.console.update()?;
        if let Some(line) = self.console.trouble(strict) {
            let mut reason = format!("is in trouble: {}", line.trim());
            if self.console.text().contains(NO_ROOT) {
                reason += " (its image may be damaged: `tarn lab image --again` makes it anew)";
            }
            return Err(self.died(reason).into());
        }
        match failure {
            Some(error) => bail!("{error}"),
            None if self.ended => turns::check(&self.complaints()?),
            None => Err(self.died(self.exit_reason(status)).into()),
        }
    }

    /// What QEMU has written to its standard error.
    fn complaints(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        self.complaints.seek(SeekFrom::Start(0))?;
        self.complaints.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn exit_reason(&self, status: Option<ExitStatus>) -> String {
        match status {
            Some(status) if status.signal() == Some(libc::SIGKILL) => {
                "was killed with QEMU: a host that is out of memory does that".into()
            }
            Some(status) if !status.success() => format!("was ended by QEMU ({status})"),
            _ => "powered off before its job had ended".into(),
        }
    }

    fn died(&mut self, reason: String) -> Died {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.console.update();
        let mut console = self.console.last_lines(LAST_LINES);
        let complaints = self.complaints().unwrap_or_default();
        // What QEMU says about extensions that it does not emulate is no news.
        let usual = ["TCG doesn't support", turns::SIGN];
        let is_usual = |line: &&str| usual.iter().any(|usual| line.contains(usual));
        for line in complaints.lines().filter(|line| !is_usual(line)) {
            console.push_str("\nQEMU: ");
            console.push_str(line);
        }
        if console.is_empty() {
            console.push_str("(it printed nothing)");
        }
        Died { reason, console }
    }
}

/// Boots a guest and follows it to its end, or replays what it has said before, when it was booted with the same. `fresh`
/// boots it in any case. `on_message` gets each message, with QEMU's CPU time so far (0 in a replay).
pub fn run(spec: &Spec, strict: bool, fresh: bool, on_message: impl FnMut(Message, Duration) -> Result<()>) -> Run {
    let mut run = Run {
        replayed: false,
        log: String::new(),
        cpu: Duration::ZERO,
        result: Ok(()),
    };
    run.result = run.perform(spec, strict, fresh, on_message);
    run
}

/// How a guest has run.
pub struct Run {
    /// It has not: what it said before was said again.
    pub replayed: bool,
    /// Its console.
    pub log: String,
    /// QEMU's CPU time, user and system of all threads; 0 for a replay.
    pub cpu: Duration,
    /// Whether it came to its end; the errors are those of [`Vm::start`] and [`Vm::follow`].
    pub result: Result<()>,
}

impl Run {
    fn perform(
        &mut self,
        spec: &Spec,
        strict: bool,
        fresh: bool,
        mut on_message: impl FnMut(Message, Duration) -> Result<()>,
    ) -> Result<()> {
        let record = Record::of(&spec.identity()?)?;
        if fresh {
            record.forget();
        }
        if let Some(messages) = record.replay() {
            self.replayed = true;
            let mut messages = messages.into_iter();
            return messages.try_for_each(|message| on_message(message, Duration::ZERO));
        }
        let mut vm = Vm::start(spec)?;
        let mut said = Vec::new();
        let followed = vm.follow(strict, |message, cpu| {
            said.push(message.clone());
            on_message(message, cpu)
        });
        vm.console.text().clone_into(&mut self.log);
        self.cpu = vm.cpu;
        followed?;
        said.push(Message::Ended { error: None });
        // A run that cannot be kept is as good as another.
        if let Err(error) = record.keep(spec.job, &said) {
            log_at(Priority::Warning, "lab", format!("{error:#}"));
        }
        Ok(())
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Boots a guest whose serial console is this terminal, and waits for its end. Its clock goes on with the host's when
/// it is idle, so that it waits for a person without using a processor.
///
/// # Errors
/// As [`Vm::start`]; and when QEMU fails.
pub fn interactive(spec: &Spec) -> Result<()> {
    let initramfs = initramfs(spec)?;
    let mut command = qemu(spec, &initramfs);
    command.args(["-icount", "shift=0,sleep=on", "-chardev", "null,id=messages"]);
    command.args(["-chardev", "stdio,id=console,mux=on,signal=off"]);
    hand_over(&mut command, &[initramfs.as_raw_fd()]);
    let status = command.status().with_context(|| format!("cannot start {QEMU}"))?;
    if !status.success() {
        bail!("QEMU failed ({status})");
    }
    Ok(())
}

/// QEMU with everything but the clock's mode and the two consoles' other ends.
fn qemu(spec: &Spec, initramfs: &File) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-machine", MACHINE, "-accel", "tcg,tb-size=256", "-cpu", PROCESSOR]);
    command.args([
        "-rtc",
        &format!("base={DATE},clock=vm"),
        "-seed",
        &spec.seed.to_string(),
    ]);
    command.args(["-smp", &spec.cpus.to_string(), "-m", &spec.memory.to_string()]);
    command.arg("-kernel").arg(spec.image.kernel());
    command.args([
        "-initrd",
        &format!("/dev/fd/{}", initramfs.as_raw_fd()),
        "-append",
        &kernel_arguments(spec.image),
    ]);
    command.args([
        "-device",
        &format!("isa-debugcon,chardev=messages,iobase={DEBUG_CONSOLE_PORT}"),
    ]);
    command.args(["-serial", "chardev:console"]);
    command.args(spec.cards.options());
    sandbox::die_with_parent(&mut command, Signal::SIGKILL);
    command
}

fn kernel_arguments(image: &Image) -> String {
    match image.debug_kernel() {
        Some(_) => format!("{KERNEL_ARGUMENTS} {}", debug::ARGUMENTS),
        None => KERNEL_ARGUMENTS.to_owned(),
    }
}

/// Lets a child have descriptors that nobody else gets.
fn hand_over(command: &mut Command, descriptors: &[RawFd]) {
    let descriptors = descriptors.to_vec();
    // SAFETY: between fork and exec only fcntl is called, which is async-signal-safe, and nothing is allocated. The
    // descriptors are open until the command is started: the caller holds their files.
    unsafe {
        command.pre_exec(move || {
            for descriptor in &descriptors {
                let descriptor = std::os::fd::BorrowedFd::borrow_raw(*descriptor);
                fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        });
    }
}

/// The image's root file system with the program as `/init`, the job and the files behind it.
fn initramfs(spec: &Spec) -> Result<File> {
    let mut added = Archive::default();
    added.file("init", 0o755, spec.program()?);
    added.link("usr/bin/tarn", "/init");
    added.file(JOB_PATH.trim_start_matches('/'), 0o644, serde_json::to_vec(spec.job)?);
    for (path, permissions, content) in &spec.files {
        added.file(path.trim_start_matches('/'), *permissions, content.as_slice());
    }
    let mut file = in_memory("initramfs")?;
    for archive in spec.image.archives() {
        let copied = File::open(&archive).and_then(|mut archive| std::io::copy(&mut archive, &mut file));
        copied.with_context(|| format!("cannot read {}", archive.display()))?;
    }
    added.write(&mut std::io::BufWriter::new(&mut file))?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// An empty file in memory; the name is for /proc.
fn in_memory(name: &str) -> Result<File> {
    let file = memfd_create(name, MFdFlags::MFD_CLOEXEC).context("cannot make a file in memory")?;
    Ok(file.into())
}

/// This very program, as the guest runs it.
fn own_program() -> Result<Vec<u8>> {
    let path = PathBuf::from("/proc/self/exe");
    let program = fs::read(&path).context("cannot read this program's own file")?;
    super::elf::for_the_guest(program).context("this program cannot run in the lab's guest")
}
