//! The connections that use the congestion control, and their figures.

use std::cell::RefCell;
use std::io::Read;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapHandle};

use crate::skeleton::connections::ConnectionsSkelBuilder;
use crate::skeleton::connections::types::pace_connection;
use tarn_kernel::libbpf;
use tarn_kernel::plain::{Plain, from_bytes};

// SAFETY: repr(C), integers alone.
unsafe impl Plain for pace_connection {}

thread_local! {
    /// The program that this thread has listed with, and the number of the map that it reads: to load it costs far more than to list.
    static LOADED: RefCell<Option<(u32, Link)>> = const { RefCell::new(None) };
}

/// Those of the calling thread's network namespace, in the kernel's order. `history` is the map of their responses.
///
/// # Errors
/// Without CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (root).
pub fn list(history: &MapHandle) -> Result<Vec<pace_connection>> {
    let number = history.info().context("cannot list connections")?.info.id;
    let mut bytes = Vec::new();
    LOADED.with_borrow_mut(|loaded| -> Result<()> {
        let (_, link) = match loaded.take_if(|(known, _)| *known == number) {
            Some(same) => loaded.insert(same),
            None => loaded.insert((number, load(history)?)),
        };
        let read = Iter::new(link)
            .context("cannot list connections")?
            .read_to_end(&mut bytes);
        read.map(|_| ()).context("cannot list connections")
    })?;
    let size = size_of::<pace_connection>();
    ensure!(
        bytes.len() % size == 0,
        "the list of connections ends in the middle of one"
    );
    Ok(bytes.chunks_exact(size).filter_map(from_bytes).collect())
}

fn load(history: &MapHandle) -> Result<Link> {
    let mut storage = MaybeUninit::uninit();
    let mut open = ConnectionsSkelBuilder::default()
        .open(&mut storage)
        .context("open the program that lists connections")?;
    let shared = open.maps.history.reuse_fd(history.as_fd());
    shared.context("share the history of connections")?;
    let mut loaded = libbpf::load("the kernel refused the program that lists connections", || open.load())?;
    loaded.attach().context("cannot list connections")?;
    let link = loaded.links.list.take();
    link.context("the program that lists connections is not attached")
}

/// This host's end of a connection.
pub fn local(connection: &pace_connection) -> SocketAddr {
    SocketAddr::new(address(connection.local), connection.port)
}

/// The other end of a connection.
pub fn peer(connection: &pace_connection) -> SocketAddr {
    SocketAddr::new(address(connection.peer), connection.peer_port)
}

fn address(bytes: [u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(bytes);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}
