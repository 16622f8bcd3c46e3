//! The network of the paper.
//!
//! ```text
//!   sender                router                  receiver
//!   10.1.0.1 ─────────── 10.1.0.2
//!            eth0     in  10.2.0.1 ────────────── 10.2.0.2
//!                         out   the small MTU     eth0
//! ```

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};

use tarn_lab::load::{Datagrams, udp};
use tarn_lab::topology::{self, End, Namespace, Node, Topology};

/// MTUs of the second link, bytes.
pub const MTUS: [u32; 3] = [100, 200, 300];
/// Bytes of a file.
pub const FILES: [usize; 3] = [15_000, 30_000, 50_000];
/// Bytes of the first link: a file is not fragmented there.
const WIDE: u32 = 65_535;
const IPV4_HEADER: u32 = 20;
const UDP_HEADER: usize = 8;
const SENDER: &str = "10.1.0.1:5000";
const RECEIVER: &str = "10.2.0.2:5000";

/// The network.
pub struct Network(topology::Network);

impl Network {
    /// Makes it.
    ///
    /// # Errors
    /// Those of [`Topology::build`].
    pub fn new(mtu: u32) -> Result<Self> {
        // Without path MTU discovery the router may fragment.
        let sender = Node::new("sender").sysctl("net/ipv4/ip_no_pmtu_disc", "1");
        let network = Topology::new()
            .node(sender.route("default", "10.1.0.2"))
            .node(Node::new("router").forwarding())
            .node(Node::new("receiver").route("default", "10.2.0.1"))
            .link(
                End::new("sender", "eth0").address("10.1.0.1/24").mtu(WIDE),
                End::new("router", "in").address("10.1.0.2/24").mtu(WIDE),
            )
            .link(
                End::new("router", "out").address("10.2.0.1/24").mtu(mtu),
                End::new("receiver", "eth0").address("10.2.0.2/24").mtu(mtu),
            )
            .permanent_neighbours()
            .build()?;
        Ok(Self(network))
    }

    /// Where files go.
    ///
    /// # Errors
    /// None that is expected.
    pub fn receiver(&self) -> Result<&Namespace> {
        self.0.namespace("receiver")
    }

    /// What sends files of so many bytes.
    ///
    /// # Errors
    /// A socket cannot be made.
    pub fn transfer(&self, file: usize) -> Result<Transfer> {
        let (from, to) = (SENDER.parse::<SocketAddr>()?, RECEIVER.parse::<SocketAddr>()?);
        let open = || UdpSocket::bind(from).with_context(|| format!("cannot bind to {from}"));
        Ok(Transfer {
            sender: self.0.namespace("sender")?.enter(open)?,
            receiver: self.receiver()?.enter(|| Datagrams::open(to, file, file))?,
            to,
            file: udp(from, to, 0, file, false)[UDP_HEADER..].to_vec(),
        })
    }
}

/// Into how many fragments the router divides a file.
pub fn fragments(mtu: u32, file: usize) -> u32 {
    let size = (mtu - IPV4_HEADER) / 8 * 8;
    (file + UDP_HEADER).div_ceil(size as usize) as u32
}

/// Files from the sender to the receiver.
pub struct Transfer {
    sender: UdpSocket,
    receiver: Datagrams,
    to: SocketAddr,
    file: Vec<u8>,
}

impl Transfer {
    /// Sends file `number` and waits at most so long for it; says whether it arrived intact.
    ///
    /// # Errors
    /// A socket fails.
    pub fn send(&mut self, number: u32, patience: Duration) -> Result<bool> {
        self.file[..4].copy_from_slice(&number.to_le_bytes());
        self.sender.send_to(&self.file, self.to).context("cannot send a file")?;
        // A part of the fragments may be left to a thread of the kernel's.
        self.receiver.wait(patience)?;
        let mut delivered = false;
        self.receiver
            .take(|arrived, is_intact| delivered = is_intact && arrived == number)?;
        Ok(delivered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The comparisons that are expected depend on it.
    #[test]
    fn a_file_has_as_many_fragments_as_its_bytes_need() {
        assert_eq!(fragments(100, 15_000), 188);
        assert_eq!(fragments(300, 50_000), 179);
        // 200 - 20 is no multiple of 8.
        assert_eq!(fragments(200, 1_000), 6);
    }
}
