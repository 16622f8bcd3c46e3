//! A network namespace: held by a descriptor, entered by threads and commands.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::Shape;

/// A network namespace of our own. It ends with the last descriptor, process or socket that uses it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    descriptor: OwnedFd,
}

impl Namespace {
    /// Makes an empty one, with loopback up. The name is for messages.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn new(name: &str) -> Result<Self> {
        let make = || -> Result<OwnedFd> {
            unshare(CloneFlags::CLONE_NEWNET).context("run this as root: it needs CAP_SYS_ADMIN")?;
            bring_loopback_up().context("cannot set loopback up")?;
            Ok(File::open("/proc/thread-self/ns/net")
                .context("cannot open the namespace")?
                .into())
        };
        // A thread of its own, because it cannot be left again without another descriptor.
        let descriptor = join(thread::scope(|scope| scope.spawn(make).join()))
            .with_context(|| format!("cannot make the network namespace {name:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            descriptor,
        })
    }

    /// The one that the first process is in, which has what was there at boot.
    ///
    /// # Errors
    /// Without the right to look at that process.
    pub fn of_init() -> Result<Self> {
        let descriptor = File::open("/proc/1/ns/net").context("cannot open the first process's namespace")?;
        Ok(Self {
            name: "init".to_owned(),
            descriptor: descriptor.into(),
        })
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the closure inside the namespace, on a thread of its own, and waits for it. A panic goes on here.
    ///
    /// /proc/sys/net is the namespace's; /proc/net and /sys/class/net are not (use /proc/thread-self/net).
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        join(thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.move_here()?;
                    work()
                })
                .join()
        }))
    }

    /// Starts the closure on a named thread inside the namespace and does not wait for it.
    pub fn spawn<T: Send + 'static>(
        &self,
        thread_name: &str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let descriptor = self.descriptor.try_clone().context("cannot use the namespace twice")?;
        let enter = move || {
            setns(&descriptor, CloneFlags::CLONE_NEWNET).context("cannot enter the namespace")?;
            drop(descriptor);
            work()
        };
        thread::Builder::new()
            .name(thread_name.to_owned())
            .spawn(enter)
            .context("cannot start a thread")
    }

    /// A command that will run inside the namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let descriptor: RawFd = self.descriptor.as_raw_fd();
        // SAFETY: the closure makes one system call, which is safe between fork and exec. The descriptor is open as
        // long as the namespace lives; had it been closed, setns would fail or refuse another kind of file.
        unsafe {
            command.pre_exec(move || match libc::setns(descriptor, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        command
    }

    /// Runs a command inside the namespace and returns what it printed.
    ///
    /// # Errors
    /// With everything it said when it fails.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_with_input(program, arguments, "")
    }

    /// Runs this very program inside the namespace, as its users would, and returns what it printed.
    ///
    /// # Errors
    /// With everything it said when it fails.
    pub fn tarn(&self, arguments: &[&str]) -> Result<String> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let program = program.to_str().context("this program's path is not text")?;
        self.run(program, arguments)
    }

    /// Runs `ip` with these arguments: `"-4 route add default via 10.0.0.1"`.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        self.run("ip", &arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `tc` with these arguments.
    pub fn tc(&self, arguments: &str) -> Result<String> {
        self.run("tc", &arguments.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs many `ip` commands in one process; the first that fails ends it.
    pub fn ip_batch(&self, commands: &[String]) -> Result<()> {
        self.batch("ip", commands)
    }

    /// Runs many `tc` commands in one process; the first that fails ends it.
    pub fn tc_batch(&self, commands: &[String]) -> Result<()> {
        self.batch("tc", commands)
    }

    /// Gives the interface another shape, at once; packets that wait in its queue stay.
    pub fn shape(&self, interface: &str, shape: &Shape) -> Result<()> {
        self.tc(&shape.command("change", interface)).map(drop)
    }

    /// Sets a sysctl of the namespace by its path below /proc/sys.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<()> {
        self.enter(|| {
            fs::write(format!("/proc/sys/{path}"), value).with_context(|| format!("cannot set {path} to {value}"))
        })
        .with_context(|| format!("namespace {:?}", self.name))
    }

    fn move_here(&self) -> Result<()> {
        setns(&self.descriptor, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter the namespace {:?}", self.name))
    }

    fn batch(&self, program: &str, commands: &[String]) -> Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        self.run_with_input(program, &["-batch", "-"], &(commands.join("\n") + "\n"))
            .with_context(|| format!("one of:\n  {program} {}", commands.join(&format!("\n  {program} "))))
            .map(drop)
    }

    /// Runs a command that reads this inside the namespace, and returns what it printed.
    ///
    /// # Errors
    /// With everything it said when it fails.
    pub fn run_with_input(&self, program: &str, arguments: &[&str], input: &str) -> Result<String> {
        let line = || format!("{program} {} (in namespace {:?})", arguments.join(" "), self.name);
        let mut command = self.command(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", line()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early says why itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child
            .wait_with_output()
            .with_context(|| format!("cannot wait for {}", line()))?;
        if !output.status.success() {
            bail!(
                "{} failed, {}: {}",
                line(),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The result of a joined thread; its panic goes on in this one.
pub fn join<T>(outcome: thread::Result<T>) -> T {
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Sets the loopback interface of the calling thread's namespace up. Makes system calls only, so that it may be called
/// between fork and exec.
pub fn bring_loopback_up() -> io::Result<()> {
    let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives through the call.
    match unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
