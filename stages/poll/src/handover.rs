//! Has threads take over from softirqs that poll on and on.
//!
//! A device that becomes threaded has its NAPIs scheduled by threads when they are scheduled next. One that never runs out of packets is
//! not: where even dropping takes all of the CPU, the softirq goes on, and the guard has nothing to guard. `tarn_kernel::busy_poll` has the
//! remedy.
//!
//! The agent waits for the kernel meanwhile: for the lock of devices (RTNL) to open a socket, and for every CPU to be done with it when it
//! is closed (`synchronize_net`), which an ordinary thread does for it. So threads that receive are ordinary ones from the first look at
//! a softirq that polls on until they have taken over: others have to get on.

use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::STAGE;
use crate::device::Device;
use tarn_base::output::{Priority, log, log_at};
use tarn_kernel::busy_poll::{Ring, Socket};
use tarn_kernel::features::{Finding, Host, Release};
use tarn_kernel::plain::bytes_of;
use tarn_kernel::scheduling::{Policy, set_policy};

/// After so many looks it is no accident: once less is passed, most NAPIs run out of packets by themselves.
const AFTER: u32 = 2;
/// After so many it is given up.
const ATTEMPTS: u32 = 50;

/// What helps wherever it cannot be done.
const REMEDY: &str = "use Linux 6.13 or newer, with io_uring (sysctl kernel.io_uring_disabled below 2)";

/// The first kernel with a ring that polls NAPIs by their identifiers.
const RINGS_SINCE: Release = Release {
    major: 6,
    minor: 13,
    patch: 0,
};

/// How threads would take over on this host.
pub fn finding(host: &Host) -> Finding {
    let Err(error) = Ring::of_napis(&[]) else {
        return Finding::Present("a ring of io_uring".to_owned());
    };
    let absent = |reason: String| Finding::Absent {
        reason,
        remedy: REMEDY.to_owned(),
    };
    match (host.bpf(), host.kernel_since(RINGS_SINCE)) {
        (absent @ Finding::Absent { .. }, _) => absent,
        // Whether sockets learn their NAPI then depends on the release.
        (_, Finding::Present(_)) => absent(format!("{error:#}")),
        _ if has_socket_map() => Finding::Present("AF_XDP sockets, for one device at a time".to_owned()),
        _ => absent(format!("{error:#}, and this kernel has no AF_XDP")),
    }
}

/// Whether programs can redirect packets to sockets of AF_XDP. Where that cannot be found out, to load such a program says more.
pub fn has_socket_map() -> bool {
    MapType::Xskmap.is_supported().unwrap_or(true)
}

/// What a look at a threaded device has shown.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The NAPIs that softirqs poll on and on.
    pub stuck: &'a [u32],
    /// Whether some thread of the device has polled.
    pub is_polled_by_threads: bool,
    /// The most receive queues that the device may have.
    pub queues: usize,
}

/// The state of one device.
#[derive(Default)]
pub struct Handover {
    /// Looks since a softirq polls on and on.
    looks: u32,
    /// The NAPIs that did meanwhile.
    napis: Vec<u32>,
    asker: Option<Asker>,
    refused: Option<String>,
}

/// How the kernel is asked.
enum Asker {
    /// By a new ring each time.
    Ring,
    Sockets {
        sockets: Vec<Socket>,
        /// Why a queue has none.
        refused: Option<String>,
    },
}

impl Asker {
    /// `map`: where a socket gets what is dropped; `None` where the kernel has no such map, or another device uses it.
    fn new(device: &Device, seen: Seen<'_>, map: Option<&MapHandle>) -> Result<Self> {
        let Err(error) = Ring::of_napis(seen.stuck) else {
            return Ok(Self::Ring);
        };
        let Some(map) = map.filter(|_| device.can_shed) else {
            let why = match device.can_shed {
                true => "another device has the sockets, or this kernel has no AF_XDP",
                false => "nothing is dropped here that a socket could get",
            };
            bail!("{error:#}, and {why}: {REMEDY}");
        };
        let (mut sockets, mut refused) = (Vec::new(), None);
        for queue in 0..seen.queues as u32 {
            match socket(device, queue, map) {
                Ok(socket) => sockets.push(socket),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            Some(refused) if sockets.is_empty() => Err(refused.context(format!("{error:#}"))),
            refused => Ok(Self::Sockets {
                sockets,
                refused: refused.map(|refused| format!("{refused:#}")),
            }),
        }
    }

    /// Only for NAPIs that poll on and on: another would be polled by the calling thread.
    fn ask(&self, napis: &[u32]) {
        match self {
            Self::Ring => {
                if let Ok(ring) = Ring::of_napis(napis) {
                    ring.ask();
                }
            }
            Self::Sockets { sockets, .. } => sockets
                .iter()
                .filter(|socket| socket.napi().is_some_and(|napi| napis.contains(&napi)))
                .for_each(Socket::ask),
        }
    }

    /// Why nothing has come of it.
    fn failure(&self) -> String {
        match self {
            Self::Sockets {
                refused: Some(refused), ..
            } => refused.clone(),
            Self::Sockets { sockets, .. } if sockets.iter().all(|socket| socket.napi().is_none()) => {
                format!("the driver does not say which NAPI its packets come by: {REMEDY}")
            }
            Self::Ring => "the kernel was asked to, and has not done it".to_owned(),
            Self::Sockets { .. } => format!("the kernel was asked to, and has not done it: {REMEDY}"),
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let Self::Sockets { sockets, .. } = self else { return };
        let sockets = std::mem::take(sockets);
        let close = move || {
            // It goes on as it is then.
            let _ = set_policy(0, Policy::Ordinary);
            drop(sockets);
        };
        // Without a thread, they are closed here.
        let _ = thread::Builder::new().name("handover".to_owned()).spawn(close);
    }
}

/// A socket that gets what is dropped. The map forgets it when it is closed.
fn socket(device: &Device, queue: u32, map: &MapHandle) -> Result<Socket> {
    let socket = Socket::of_queue(device.index, queue)?;
    map.update(bytes_of(&queue), bytes_of(&socket.as_fd().as_raw_fd()), MapFlags::ANY)
        .context("cannot have packets redirected to a socket")?;
    Ok(socket)
}

impl Handover {
    /// Whether threads must not go first.
    pub fn is_under_way(&self) -> bool {
        (1..ATTEMPTS).contains(&self.looks)
    }

    /// Whether what is dropped has to go to sockets.
    pub fn needs_packets(&self) -> bool {
        matches!(self.asker, Some(Asker::Sockets { .. }))
    }

    /// After a look at a device that is threaded. `map` as in [`Asker::new`].
    pub fn look(&mut self, device: &Device, seen: Seen<'_>, map: Option<&MapHandle>) {
        let name = &device.name;
        if seen.stuck.is_empty() {
            if std::mem::take(self).asker.is_some() && seen.is_polled_by_threads {
                log(
                    STAGE,
                    format!("{name}: softirqs polled on: its threads have taken over"),
                );
            }
            return;
        }
        for napi in seen.stuck {
            if !self.napis.contains(napi) {
                self.napis.push(*napi);
                self.looks = 0; // its attempts begin
            }
        }
        self.looks = self.looks.saturating_add(1);
        match self.looks {
            ..AFTER => {}
            AFTER..ATTEMPTS => self.try_again(device, seen, map),
            ATTEMPTS => {
                let failure = self.asker.take().map(|asker| asker.failure()).or(self.refused.take());
                let why = failure.unwrap_or_default();
                let text = format!("{name}: softirqs poll on, and its threads cannot take over: {why}");
                log_at(Priority::Warning, STAGE, text);
            }
            _ => {}
        }
    }

    fn try_again(&mut self, device: &Device, seen: Seen<'_>, map: Option<&MapHandle>) {
        match &self.asker {
            Some(asker) => asker.ask(seen.stuck),
            None => match Asker::new(device, seen, map) {
                Ok(asker) => self.asker = Some(asker),
                Err(error) => self.refused = Some(format!("{error:#}")),
            },
        }
    }
}
