//! The guest's network cards (`crate::cards`): who has which, and what circles.

use std::fs;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::namespace::Namespace;
use tarn_kernel::links;

/// What drives them.
const DRIVER: &str = "vmxnet3";
/// How long a card may take to be there: the kernel gives it back some time after a namespace has gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// The card that frames begin to circle from.
const STORM: u8 = 2;
/// As many frames are sent at once, and so long it is waited then: the card sends them meanwhile.
const FRAMES_AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_micros(300);

/// Hardware addresses that no network had before, of this process or another. What circles for an earlier one is filtered by the
/// cards, and costs the guest nothing.
pub(crate) fn new_addresses() -> [[u8; 6]; 2] {
    static NETWORKS: AtomicU8 = AtomicU8::new(0);
    let network = NETWORKS.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    [0, 1].map(|side| [2, 0xca, high, low, network, side])
}

/// Moves a card into a namespace.
///
/// # Errors
/// A guest without this card.
pub(crate) fn give(card: u8, namespace: &Namespace, name: &str) -> Result<()> {
    let found = find(card)?;
    let holder = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd());
    Namespace::of_init()?.ip_batch(&[
        format!("link set {found} down"),
        format!("link set {found} netns {holder}"),
    ])?;
    namespace.ip(&format!("link set {found} name {name}")).map(drop)
}

/// The name that a card has in the first process's namespace. It is there unless a network has it.
fn find(card: u8) -> Result<String> {
    let loaded = Command::new("modprobe")
        .arg(DRIVER)
        .status()
        .context("cannot start modprobe")?;
    ensure!(loaded.success(), "modprobe {DRIVER} fails");
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(name) = slots()?.get(usize::from(card)).and_then(|slot| name_at(slot)) {
            return Ok(name);
        }
        ensure!(
            Instant::now() < end,
            "network card {card} is not here: experiments name the cards that they need, and tests by their names (lab_cards_...)"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// The driver's PCI devices, in the order in which QEMU has them.
fn slots() -> Result<Vec<PathBuf>> {
    let directory = format!("/sys/bus/pci/drivers/{DRIVER}");
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {directory}"))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_slot = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().contains(':'))
    };
    let mut slots: Vec<PathBuf> = paths.filter(is_slot).collect();
    slots.sort();
    Ok(slots)
}

/// `net/NAME` is there while the device is in the namespace that sysfs was mounted in, the first one.
fn name_at(slot: &Path) -> Option<String> {
    let name = fs::read_dir(slot.join("net")).ok()?.next()?.ok()?.file_name();
    name.into_string().ok()
}

/// Frames that circle, and are received by the first two cards on each lap.
pub struct Storm(OwnedFd);

impl Storm {
    /// Sets up the card that they are sent by. Nothing circles yet.
    ///
    /// # Errors
    /// A guest without such a card: `Cards::Storm` has it.
    pub fn new() -> Result<Self> {
        let (name, init) = (find(STORM)?, Namespace::of_init()?);
        // Whatever the kernel sends by itself would circle, too.
        init.sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1")?;
        init.ip(&format!("link set {name} arp off up"))?;
        let open = || {
            let links = links::all()?;
            let link = links.iter().find(|link| link.name == name).context("it is gone")?;
            Ok(packet_socket(link.index)?)
        };
        let socket = init.enter(open).with_context(|| format!("cannot send by {name}"))?;
        Ok(Self(socket))
    }

    /// Has these frames circle from now on: each comes by twice a lap. Nothing ends that.
    ///
    /// # Errors
    /// One that is not sent.
    pub fn begin<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        for (number, frame) in frames.enumerate() {
            if number % FRAMES_AT_ONCE == FRAMES_AT_ONCE - 1 {
                thread::sleep(PAUSE);
            }
            // SAFETY: the pointer and length are those of a slice.
            let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            ensure!(
                sent == frame.len() as isize,
                "cannot send a frame: {}",
                io::Error::last_os_error()
            );
        }
        Ok(())
    }
}

/// A socket that sends frames as they are, and receives none.
fn packet_socket(index: u32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the descriptor is new, and nobody else's.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    // SAFETY: pointer and length are those of the address.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}
