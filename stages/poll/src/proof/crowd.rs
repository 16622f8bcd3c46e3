//! Who shares the CPU with what is received.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::gettid;
use tarn_kernel::scheduling::{Policy, run_time_ns, set_policy};
use tarn_lab::busy::{monotonic_ns, sleep_until, spin};
use tarn_lab::random::Random;
use tarn_lab::stats::Sample;
use tarn_lab::topology::{Namespace, join};

/// The mean time between two wake-ups of a periodic thread.
const PERIOD: Duration = Duration::from_millis(2);

/// Instructions between two looks of a hog. Without PAUSE, at which QEMU leaves its loop: the lab would be many times slower.
pub const HOGGING: u64 = 1_000;

/// A thread that does something until it is told to end.
struct Worker<T> {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Result<T>>,
}

impl<T: Send + 'static> Worker<T> {
    fn start(
        namespace: &Namespace,
        name: &str,
        policy: Policy,
        work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let done = Arc::new(AtomicBool::new(false));
        let told = done.clone();
        let thread = namespace.spawn(name, move || {
            set_policy(0, policy).context("cannot choose a thread's policy")?;
            work(&told)
        })?;
        Ok(Self { done, thread })
    }

    fn end(self) -> Result<T> {
        self.done.store(true, Ordering::Relaxed);
        join(self.thread.join())
    }
}

/// When a periodic thread was to wake up (CLOCK_MONOTONIC, ns), and how much later it did (ns).
pub type Wakes = Vec<(u64, u64)>;

/// How late wake-ups were that fell between two moments (CLOCK_MONOTONIC, ns), in us. A thread that was due before the end and ran after
/// it was late within.
///
/// # Errors
/// None: there is one at least, of 0.
pub fn lateness(wakes: &Wakes, from: u64, to: u64) -> Result<Sample> {
    let within = wakes.iter().filter(|(due, late)| *due < to && due + late >= from);
    Sample::new(within.map(|(_, late)| *late as f64 / 1e3).chain([0.0]))
}

/// Those who share the CPU.
pub struct Crowd {
    hog: Worker<()>,
    hog_thread: Arc<AtomicI32>,
    server: Sink,
    real_time: Worker<Wakes>,
    ordinary: Worker<Wakes>,
}

/// Reads what comes to a port, and counts it.
pub struct Sink {
    server: Worker<()>,
    served: Arc<AtomicU64>,
}

impl Sink {
    /// Starts it on the host.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(host: &Namespace, address: SocketAddr) -> Result<Self> {
        let served = Arc::new(AtomicU64::new(0));
        let count = served.clone();
        let server = Worker::start(host, "server", Policy::Ordinary, move |done| {
            serve(address, &count, done)
        })?;
        Ok(Self { server, served })
    }

    /// Packets that it has read so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// It has failed.
    pub fn end(self) -> Result<()> {
        self.server.end()
    }
}

/// What the crowd had done by a moment.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// CLOCK_MONOTONIC, ns.
    pub at: u64,
    /// Packets that the flooded server had read.
    pub served: u64,
    /// ns that the hog had run.
    pub hog: u64,
}

impl Crowd {
    /// Starts them on the host. The server listens at `flooded`.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(host: &Namespace, flooded: SocketAddr, seed: u64) -> Result<Self> {
        let hog_thread = Arc::new(AtomicI32::new(0));
        let number = hog_thread.clone();
        Ok(Self {
            server: Sink::start(host, flooded)?,
            hog: Worker::start(host, "hog", Policy::Ordinary, move |done| {
                number.store(gettid().as_raw(), Ordering::Relaxed);
                while !done.load(Ordering::Relaxed) {
                    spin(HOGGING);
                }
                Ok(())
            })?,
            real_time: Worker::start(host, "real-time", Policy::Fifo(50), move |done| {
                wake(&mut Random::new(seed, "real-time"), done)
            })?,
            ordinary: Worker::start(host, "ordinary", Policy::Ordinary, move |done| {
                wake(&mut Random::new(seed, "ordinary"), done)
            })?,
            hog_thread,
        })
    }

    /// What they have done so far.
    pub fn done(&self) -> Done {
        Done {
            at: monotonic_ns(),
            served: self.server.served(),
            hog: run_time_ns(self.hog_thread.load(Ordering::Relaxed)).unwrap_or_default(),
        }
    }

    /// Ends them. Returns the wake-ups of the real-time thread, and of the ordinary one.
    ///
    /// # Errors
    /// One has failed.
    pub fn end(self) -> Result<(Wakes, Wakes)> {
        self.hog.end()?;
        self.server.end()?;
        Ok((self.real_time.end()?, self.ordinary.end()?))
    }
}

/// Reads what comes, with the receive buffer that every socket has.
fn serve(address: SocketAddr, served: &AtomicU64, done: &AtomicBool) -> Result<()> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind to {address}"))?;
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .context("cannot set a receive timeout")?;
    let mut buffer = [0; 2048];
    while !done.load(Ordering::Relaxed) {
        // Nothing has come for a while.
        if socket.recv(&mut buffer).is_ok() {
            served.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn wake(random: &mut Random, done: &AtomicBool) -> Result<Wakes> {
    exact_timers()?;
    let mut wakes = Vec::with_capacity(4096);
    let mut due = monotonic_ns();
    while !done.load(Ordering::Relaxed) {
        let period = PERIOD.as_nanos() as f64 * (0.75 + random.uniform() / 2.0);
        due = (due + period as u64).max(monotonic_ns());
        sleep_until(due)?;
        wakes.push((due, monotonic_ns() - due));
    }
    Ok(wakes)
}

/// Timers of ordinary threads end up to 50 us late otherwise.
fn exact_timers() -> Result<()> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    nix::errno::Errno::result(result)
        .context("cannot have exact timers")
        .map(drop)
}
