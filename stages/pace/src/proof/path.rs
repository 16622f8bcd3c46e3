//! A network of the table, built in the guest.
//!
//! ```text
//!   sender             router                radio              receiver
//!   10.9.1.2 ───────── 10.9.1.1
//!            eth   in  10.9.2.1 ──────────── 10.9.2.2
//!                          out            in  10.9.3.1 ──────── 10.9.3.2
//!                      (the bottleneck)          out       eth
//!                                             (loses)      (the way back: delays)
//! ```
//!
//! The radio is there where packets are lost or overtake each other behind the bottleneck; elsewhere the receiver is in its place.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::floor::Change;
use super::networks::{Course, Network, Queue, Trouble};
use crate::simulator::course::Rate;
use crate::simulator::network as simulated;
use tarn_lab::topology::{self, End, Namespace, Node, Shape, Topology};

/// Where flows go.
pub const RECEIVER: &str = "10.9.3.2";

/// Bytes of a full packet with its Ethernet header.
const PACKET: u64 = 1514;
/// Bytes that leave the bottleneck at once: less than two packets, so that each leaves by itself, and what a timer that comes late by
/// tens of microseconds would lose.
const BURST: u64 = 2_000;
const LATENESS_US: u64 = 100;
/// What a socket may hold, bytes: several products of the largest network, and no limit to any flow.
const SOCKET_BUFFER: &str = "4096 4194304 33554432";
/// How far packets overtake others.
const REORDERING: Duration = Duration::from_millis(3);

/// A network that exists.
pub struct Path {
    network: Network,
    nodes: topology::Network,
}

impl Path {
    /// Builds it. Needs root.
    ///
    /// # Errors
    /// With the command that failed and what it said.
    pub fn build(network: Network) -> Result<Self> {
        let nodes = topology(&network).build().context("build the network")?;
        let path = Self { network, nodes };
        path.router()?.tc_batch(&path.bottleneck())?;
        for node in ["sender", "receiver"] {
            let namespace = path.nodes.namespace(node)?;
            namespace.sysctl("net/ipv4/tcp_rmem", SOCKET_BUFFER)?;
            namespace.sysctl("net/ipv4/tcp_wmem", SOCKET_BUFFER)?;
            if network.queue == Queue::Ecn {
                namespace.sysctl("net/ipv4/tcp_ecn", "1")?;
            }
            // What one case learns of the path is not for the next.
            namespace.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
        }
        Ok(path)
    }

    /// Where flows come from.
    ///
    /// # Errors
    /// None that is expected.
    pub fn sender(&self) -> Result<&Namespace> {
        self.nodes.namespace("sender")
    }

    /// Where they go.
    ///
    /// # Errors
    /// None that is expected.
    pub fn receiver(&self) -> Result<&Namespace> {
        self.nodes.namespace("receiver")
    }

    fn router(&self) -> Result<&Namespace> {
        self.nodes.namespace("router")
    }

    fn bottleneck(&self) -> Vec<String> {
        let (rate, buffer) = (whole_rate(&self.network), buffer(&self.network));
        match self.network.queue {
            Queue::DropTail => vec![self.rate_command("add", rate)],
            Queue::FqCodel => vec![
                self.rate_command("add", rate),
                format!("qdisc add dev out parent 1:1 handle 10: fq_codel memory_limit {buffer}"),
            ],
            Queue::Cake => vec![self.rate_command("add", rate)],
            // One bucket: all flows in one queue.
            Queue::Ecn => vec![
                self.rate_command("add", rate),
                format!("qdisc add dev out parent 1:1 handle 10: fq_codel flows 1 ecn memory_limit {buffer}"),
            ],
            Queue::Policer => vec![
                "qdisc add dev in clsact".into(),
                format!(
                    "filter add dev in ingress matchall action police rate {rate}bit burst {buffer} conform-exceed drop"
                ),
            ],
        }
    }

    /// Sets the rate of the bottleneck, bit/s.
    fn rate_command(&self, verb: &str, rate: u64) -> String {
        let buffer = buffer(&self.network);
        match self.network.queue {
            Queue::Cake => {
                format!("qdisc {verb} dev out root handle 1: cake bandwidth {rate}bit besteffort memlimit {buffer}")
            }
            _ => bottleneck("out", verb, rate, buffer),
        }
    }

    /// Gives the bottleneck its rates, each at its time after `began_ns` (CLOCK_MONOTONIC).
    ///
    /// # Errors
    /// tc refuses one.
    pub fn drive(&self, changes: &[Change], began_ns: u64) -> Result<()> {
        let mut tc = self.tc()?;
        let written = self.write_rates(&mut tc, changes, began_ns);
        let output = tc.wait_with_output().context("wait for tc")?;
        ensure!(
            output.status.success(),
            "tc changes no rate: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        written
    }

    /// One tc for all changes: starting one for each would take longer than some of them last.
    fn tc(&self) -> Result<Child> {
        let mut command = self.router()?.command("tc");
        command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().context("cannot start tc")
    }

    /// Closes tc's input at the end.
    fn write_rates(&self, tc: &mut Child, changes: &[Change], began_ns: u64) -> Result<()> {
        let Some(mut input) = tc.stdin.take() else {
            bail!("tc has no input");
        };
        // The first is there already.
        for change in changes.iter().skip(1) {
            wait_until(began_ns + change.at.as_nanos() as u64);
            writeln!(input, "{}", self.rate_command("change", change.rate)).context("tell tc a rate")?;
        }
        Ok(())
    }
}

/// The command of tc that makes of a device a bottleneck of `rate` bit/s with a queue of so many bytes, which drops what does not fit.
pub fn bottleneck(device: &str, verb: &str, rate: u64, buffer: u64) -> String {
    let burst = BURST.max(rate / 8 * LATENESS_US / 1_000_000);
    format!("qdisc {verb} dev {device} root handle 1: tbf rate {rate}bit burst {burst} limit {buffer}")
}

/// Sleeps until then, CLOCK_MONOTONIC.
pub fn wait_until(time_ns: u64) {
    let now = tarn_base::runtime::monotonic_ns();
    std::thread::sleep(Duration::from_nanos(time_ns.saturating_sub(now)));
}

/// The rates of the bottleneck; those that are random come of the seed.
pub fn changes(network: &Network, seed: u64, length: Duration) -> Vec<Change> {
    let whole = whole_rate(network);
    let mut rate = Rate::new(&course(network), whole, seed);
    let mut changes = vec![Change {
        at: Duration::ZERO,
        rate: whole,
    }];
    let mut now = 0;
    while let Some(next) = rate.next_change(now) {
        if Duration::from_nanos(next) >= length {
            break;
        }
        now = next;
        rate.change();
        changes.push(Change {
            at: Duration::from_nanos(now),
            rate: rate.now,
        });
    }
    changes
}

/// As the simulator knows it: one drop each ten seconds.
pub fn course(network: &Network) -> simulated::Course {
    let low = whole_rate(network) * u64::from(network.lowest()) / 100;
    match network.course {
        Course::Steady => simulated::Course::Steady,
        Course::Halved | Course::Cut => simulated::Course::Step { low, period_ms: 5000 },
        Course::Walk => simulated::Course::Walk { low },
        Course::Fading => simulated::Course::Fading { low },
    }
}

/// Bit/s.
pub fn whole_rate(network: &Network) -> u64 {
    u64::from(network.rate) * 1_000_000
}

/// Bytes that the bottleneck keeps, or at a policer that may come at once: at least four packets.
pub fn buffer(network: &Network) -> u64 {
    let product = u64::from(network.rate) * 125 * u64::from(network.round_trip);
    (product * u64::from(network.buffer) / 100).max(4 * PACKET)
}

/// How long the round trip is without a queue.
pub fn round_trip(network: &Network) -> Duration {
    Duration::from_millis(network.round_trip.into())
}

fn topology(network: &Network) -> Topology {
    let sender = End::new("sender", "eth").address("10.9.1.2/24");
    // A policer measures what comes at once, and a card sends packets one by one.
    let sender = match network.queue {
        Queue::Policer => sender.feature("tso", false).feature("gso", false),
        _ => sender,
    };
    let receiver = End::new("receiver", "eth")
        .address("10.9.3.2/24")
        .shape(way_back(network));
    let topology = Topology::new()
        .node(Node::new("sender").route("default", "10.9.1.1"))
        .node(Node::new("router").forwarding().route("10.9.3.0/24", "10.9.2.2"))
        .link(sender, End::new("router", "in").address("10.9.1.1/24"));
    let topology = match radio(network) {
        Some(shape) => topology
            .node(Node::new("radio").forwarding().route("default", "10.9.2.1"))
            .node(Node::new("receiver").route("default", "10.9.3.1"))
            .link(
                End::new("router", "out").address("10.9.2.1/24"),
                End::new("radio", "in").address("10.9.2.2/24"),
            )
            .link(End::new("radio", "out").address("10.9.3.1/24").shape(shape), receiver),
        None => topology.node(Node::new("receiver").route("default", "10.9.2.1")).link(
            End::new("router", "out").address("10.9.2.1/24"),
            receiver.address("10.9.2.2/24"),
        ),
    };
    topology.permanent_neighbours()
}

fn way_back(network: &Network) -> Shape {
    let delay = Shape::new().delay(round_trip(network)).limit(100_000);
    match network.trouble {
        Trouble::Lumps(ms) => delay.slot(Duration::from_millis(ms.into())),
        _ => delay,
    }
}

/// What happens behind the bottleneck, if anything does.
fn radio(network: &Network) -> Option<Shape> {
    match network.trouble {
        Trouble::Loss(percent) => Some(Shape::new().loss_percent(percent.into()).limit(10_000)),
        // One packet in a hundred waits for no delay, and is before those that do.
        Trouble::Reordering => Some(Shape::new().delay(REORDERING).reorder_percent(1.0).limit(10_000)),
        Trouble::None | Trouble::Lumps(_) => None,
    }
}
