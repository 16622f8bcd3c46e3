//! The network of the experiments `reassembly-order` and `reassembly-attack`, and who puts datagrams together in it.
//!
//! ```text
//!   sender                      receiver
//!   10.0.0.1 ──────────────── 10.0.0.2
//!   fd00::1   eth0       eth0   fd00::2
//! ```

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};

use super::bench::{Bench, Hook};
use tarn_lab::load::{FrameSender, Wire};
use tarn_lab::topology::{End, Namespace, Network, Node, Topology, hardware_address};

/// Where datagrams go.
pub const PORT: u16 = 4500;
/// Where they come from.
const SOURCE_PORT: u16 = 4501;
const INTERFACE: &str = "eth0";
/// The tuned kernel: 64 MiB, and seconds.
const TUNED_MEMORY: &str = "67108864";
const TUNED_TIME: &str = "2";
/// Any rule that asks for a connection's state switches tracking on, and with it reassembly before the routing decision.
const TRACKING: &str = "table inet tracking {
    chain arriving {
        type filter hook prerouting priority 0;
        ct state invalid drop
    }
}
";

/// Who puts datagrams together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Nobody: fragments are dropped where tarn would take them.
    Control,
    /// The stack, before it delivers.
    Mainline,
    /// The same with more memory and less patience.
    MainlineTuned,
    /// Connection tracking, before anything is routed.
    MainlineConntrack,
    /// A list searched from its head (Linux 2.2.12), in the bench.
    Head,
    /// A list searched from its tail (the paper), in the bench.
    Tail,
    /// The module.
    Tarn,
}

impl Contender {
    /// How its cases are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Mainline => "mainline",
            Self::MainlineTuned => "mainline-tuned",
            Self::MainlineConntrack => "mainline-conntrack",
            Self::Head => "head",
            Self::Tail => "tail",
            Self::Tarn => "tarn",
        }
    }

    /// What a reader is told.
    pub fn title(self) -> &'static str {
        match self {
            Self::Control => "dropped",
            Self::Mainline => "stock kernel",
            Self::MainlineTuned => "stock kernel, 64 MiB and 2 s",
            Self::MainlineConntrack => "stock kernel with connection tracking",
            Self::Head => "list from its head (Linux 2.2.12)",
            Self::Tail => "list from its tail (the paper)",
            Self::Tarn => "tarn",
        }
    }

    /// Whether the bench is needed. The product's module must not be there then.
    pub fn needs_bench(self) -> bool {
        matches!(self, Self::Control | Self::Head | Self::Tail)
    }

    /// Sets it up on a host.
    ///
    /// # Errors
    /// What it needs is not there, or refused.
    pub fn begin<'a>(self, host: &'a Namespace, bench: Option<&'a Bench>) -> Result<Begun<'a>> {
        let mut begun = Begun {
            host,
            hook: None,
            tarn: false,
        };
        let bench = || bench.context("the bench is not loaded");
        match self {
            Self::Mainline => {}
            Self::Control => begun.hook = Some(bench()?.drop_in(host)?),
            Self::Head | Self::Tail => begun.hook = Some(bench()?.lists_in(host, self.name())?),
            Self::MainlineTuned => {
                host.sysctl("net/ipv4/ipfrag_high_thresh", TUNED_MEMORY)?;
                host.sysctl("net/ipv4/ipfrag_time", TUNED_TIME)?;
                host.sysctl("net/ipv6/ip6frag_high_thresh", TUNED_MEMORY)?;
                host.sysctl("net/ipv6/ip6frag_time", TUNED_TIME)?;
            }
            Self::MainlineConntrack => {
                host.run_with_input("nft", &["-f", "-"], TRACKING)?;
            }
            Self::Tarn => {
                up(host, "[reassembly]\n")?;
                begun.tarn = true;
            }
        }
        Ok(begun)
    }
}

/// The network.
pub struct Scene {
    network: Network,
    is_v6: bool,
}

impl Scene {
    /// Makes it.
    ///
    /// # Errors
    /// Those of [`Topology::build`].
    pub fn new(is_v6: bool) -> Result<Self> {
        let (addresses, others) = if is_v6 {
            (["fd00::1/64", "fd00::2/64"], "fd00::/16")
        } else {
            (["10.0.0.1/24", "10.0.0.2/24"], "10.0.0.0/8")
        };
        let sender = addresses[0].split('/').next().unwrap_or_default();
        let end = |node, address| End::new(node, INTERFACE).address(address);
        let network = Topology::new()
            .node(Node::new("sender"))
            // Whoever fragments say they come from is behind the sender: nothing is asked for a neighbour.
            .node(Node::new("receiver").route(others, sender))
            .link(end("sender", addresses[0]), end("receiver", addresses[1]))
            .permanent_neighbours()
            .build()?;
        Ok(Self { network, is_v6 })
    }

    /// Where frames come from.
    ///
    /// # Errors
    /// None that is expected.
    pub fn sender(&self) -> Result<&Namespace> {
        self.network.namespace("sender")
    }

    /// Where they go.
    ///
    /// # Errors
    /// None that is expected.
    pub fn receiver(&self) -> Result<&Namespace> {
        self.network.namespace("receiver")
    }

    /// The sender's address and port.
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(self.address(1), SOURCE_PORT)
    }

    /// The receiver's.
    pub fn target(&self) -> SocketAddr {
        SocketAddr::new(self.address(2), PORT)
    }

    fn address(&self, host: u8) -> IpAddr {
        if self.is_v6 {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)])
        } else {
            IpAddr::from([10, 0, 0, host])
        }
    }

    /// The hardware addresses between the two.
    pub fn wire() -> Wire {
        Wire {
            from: hardware_address(0, 0),
            to: hardware_address(0, 1),
        }
    }

    /// What sends frames.
    ///
    /// # Errors
    /// The packet socket is refused.
    pub fn frames(&self) -> Result<FrameSender> {
        self.sender()?.enter(|| FrameSender::open(INTERFACE))
    }
}

/// `tarn up` on a host, with this configuration.
///
/// # Errors
/// What it says.
pub fn up(host: &Namespace, configuration: &str) -> Result<()> {
    let file = "/tmp/reassembly.toml";
    std::fs::write(file, configuration).with_context(|| format!("cannot write {file}"))?;
    host.tarn(&["up", "-c", file]).map(drop)
}

/// What was set up; [`Self::end`] takes it away.
pub struct Begun<'a> {
    host: &'a Namespace,
    hook: Option<Hook<'a>>,
    tarn: bool,
}

impl Begun<'_> {
    /// Comparisons of offsets since it began, where they are counted.
    ///
    /// # Errors
    /// None that is expected.
    pub fn comparisons(&self) -> Result<Option<u64>> {
        self.hook.as_ref().map(Hook::comparisons).transpose()
    }

    /// Takes it away.
    ///
    /// # Errors
    /// What `tarn down` says.
    pub fn end(mut self) -> Result<()> {
        drop(self.hook.take());
        if self.tarn {
            self.host.tarn(&["down"])?;
        }
        Ok(())
    }
}
