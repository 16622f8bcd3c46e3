//! The network of a case, and what is set up on its host.
//!
//! ```text
//!   host                    far
//!   10.1.0.2  wan1 ─── wan1 10.1.0.1
//!   10.2.0.2  wan2 ─── wan2 10.2.0.1    10.9.9.9:7000 (lo)
//!        ...                ...
//! ```

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::load::LoadMeter;
use crate::proof::{bring_up, nexthops};
use crate::tcp::TcpMeter;
use tarn_frame::agent;
use tarn_frame::state::StateDirectory;
use tarn_kernel::links;
use tarn_lab::exchange_cost::Ends;
use tarn_lab::experiment::Check;
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

/// When round trips are looked at again, after they were at first: any time that is long enough.
const LATER: Duration = Duration::from_secs(10);
/// The server's address.
const SERVER: &str = "10.9.9.9";

/// What is set up on the host, with so many uplinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The kernel's own route, ECMP where there are several.
    Stock(usize),
    /// The same, and as many rules that no packet matches.
    Ruled(usize),
    /// The kernel's own route, and BPF measures.
    Metered(usize),
    /// The kernel's own route, and BPF takes the round trips of TCP.
    RoundTrips(usize),
    /// tarn with its defaults.
    Calmest(usize),
    /// tarn, `measure = "load"`.
    Load(usize),
    /// As [`Self::Stock`], and the host translates addresses.
    Translated(usize),
    /// tarn, `pin = true`, and the host translates addresses.
    Pinned(usize),
}

impl State {
    fn uplinks(self) -> usize {
        match self {
            Self::Stock(count) | Self::Ruled(count) | Self::Metered(count) | Self::Calmest(count) => count,
            Self::Load(count) | Self::Translated(count) | Self::Pinned(count) | Self::RoundTrips(count) => count,
        }
    }

    /// Whether routes are looked up by rules.
    pub fn is_ruled(self) -> bool {
        self.is_tarn() || matches!(self, Self::Ruled(_))
    }

    /// Whether tarn is up.
    fn is_tarn(self) -> bool {
        matches!(self, Self::Calmest(_) | Self::Load(_) | Self::Pinned(_))
    }

    /// The case's name.
    pub fn name(self) -> String {
        let name = match self {
            Self::Stock(_) => "stock",
            Self::Ruled(_) => "ruled",
            Self::Metered(_) => "metered",
            Self::RoundTrips(_) => "round-trips",
            Self::Calmest(_) => "calmest",
            Self::Load(_) => "load",
            Self::Translated(_) => "translated",
            Self::Pinned(_) => "pinned",
        };
        format!("{name}-{}", self.uplinks())
    }

    /// What it is, in a few words.
    pub fn title(self) -> String {
        match self {
            Self::Stock(1) => "the kernel's route by one uplink".into(),
            Self::Stock(count) => format!("the kernel's ECMP over {count} uplinks"),
            Self::Ruled(1) => "the same, and a rule that matches nothing".into(),
            Self::Ruled(count) => format!("the same, and {count} rules that match nothing"),
            Self::Metered(1) => "the same, BPF measures the uplink".into(),
            Self::Metered(_) => "the same, BPF measures the uplinks".into(),
            Self::RoundTrips(_) => "the kernel's route by one uplink, BPF takes the round trips of TCP".into(),
            Self::Calmest(count) => format!("tarn, {count} uplinks, by delay"),
            Self::Load(count) => format!("tarn, {count} uplinks, by load"),
            Self::Translated(count) => format!("the kernel's ECMP over {count} uplinks, with masquerading"),
            Self::Pinned(count) => format!("tarn, {count} uplinks, with masquerading and pin = true"),
        }
    }
}

/// A case, ready for its load.
pub struct Scene {
    network: Network,
    state: State,
    meter: Option<LoadMeter>,
    round_trips: Option<TcpMeter>,
}

impl Scene {
    /// Makes the network and sets up the host.
    pub fn new(state: State) -> Result<Self> {
        let mut topology = Topology::new()
            .node(Node::new("host"))
            .node(Node::new("far").ip(&format!("address add {SERVER}/32 dev lo")));
        for number in 1..=state.uplinks() {
            let end = |node: &str, host: u8| {
                End::new(node, &format!("wan{number}"))
                    .feature("tx-checksumming", false)
                    .address(&format!("10.{number}.0.{host}/24"))
            };
            topology = topology.link(end("host", 2), end("far", 1));
        }
        let mut scene = Self {
            network: topology.permanent_neighbours().build()?,
            state,
            meter: None,
            round_trips: None,
        };
        scene.set_up()?;
        Ok(scene)
    }

    /// Who speaks to whom.
    pub fn ends(&self) -> Result<Ends<'_>> {
        Ok(Ends {
            client: self.host()?,
            from: "0.0.0.0:5000".parse()?,
            server: self.network.namespace("far")?,
            to: format!("{SERVER}:7000").parse()?,
        })
    }

    fn host(&self) -> Result<&Namespace> {
        self.network.namespace("host")
    }

    fn set_up(&mut self) -> Result<()> {
        match self.state {
            State::Stock(count) => self.route(count),
            State::Ruled(count) => {
                self.route(count)?;
                let rule =
                    |number: usize| format!("rule add priority {} fwmark {number}/0xff lookup 100", 1000 + number);
                self.host()?.ip_batch(&(1..=count).map(rule).collect::<Vec<_>>())
            }
            State::Metered(count) => {
                self.route(count)?;
                self.meter = Some(self.host()?.enter(meter)?);
                Ok(())
            }
            State::RoundTrips(count) => {
                self.route(count)?;
                self.round_trips = Some(self.host()?.enter(round_trips)?);
                Ok(())
            }
            State::Calmest(count) => self.up(count, "", ""),
            State::Load(count) => self.up(count, "measure = \"load\"", ""),
            State::Translated(count) => {
                self.translate()?;
                self.route(count)
            }
            State::Pinned(count) => {
                self.translate()?;
                self.up(count, "", "pin = true")
            }
        }
    }

    fn route(&self, count: usize) -> Result<()> {
        let route = format!("route add {SERVER}/32 {}", nexthops(1..=count));
        self.host()?.ip(&route).map(drop)
    }

    /// Has every uplink translate addresses to its own.
    fn translate(&self) -> Result<()> {
        let table = "table inet home { chain leaving { type nat hook postrouting priority srcnat; masquerade; }; }";
        self.host()?.run("nft", &[table]).map(drop)
    }

    /// Brings tarn up, with these lines for the stage and for the group.
    fn up(&self, count: usize, stage: &str, group: &str) -> Result<()> {
        let to = format!("{SERVER}/32");
        bring_up(self.host()?, count, (&to, SERVER), stage, group)
    }

    /// Runs something while the agent, if there is one, is stopped: what is set in the kernel stays, and only that.
    pub fn without_agent<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.state.is_tarn() {
            return work();
        }
        let state = self.host()?.enter(StateDirectory::of_this_namespace)?;
        let agent = agent::information(&state).context("no agent runs")?;
        let agent = Pid::from_raw(agent.pid as i32);
        kill(agent, Signal::SIGSTOP).context("stop the agent")?;
        let result = work();
        kill(agent, Signal::SIGCONT).context("let the agent go on")?;
        result
    }

    /// Where the requests have left is measured: what is cheap because it does nothing is no measure.
    pub fn check(&mut self) -> Result<Option<Check>> {
        if self.round_trips.is_some() {
            return self.check_round_trips().map(Some);
        }
        let Some(meter) = &self.meter else { return Ok(None) };
        let devices = self.host()?.enter(devices)?;
        let mut sent = 0;
        for device in &devices {
            let has_sent = meter.has_sent(*device)?;
            sent += u64::from(has_sent.with_context(|| format!("device {device} is not measured"))?);
        }
        Ok(Some(Check {
            name: format!("{}: the uplinks that requests left by were measured", self.state.name()),
            passed: sent > 0,
            detail: format!("{sent} of {}", devices.len()),
        }))
    }

    /// Every request was a round trip that was counted, but for what TCP takes together.
    fn check_round_trips(&mut self) -> Result<Check> {
        let devices = self.host()?.enter(devices)?;
        let mut samples = 0;
        if let Some(meter) = &mut self.round_trips {
            meter.follow(&devices, LATER)?;
            samples = devices
                .iter()
                .filter_map(|device| meter.read(*device))
                .map(|found| found.samples)
                .sum();
        }
        Ok(Check {
            name: format!("{}: round trips were taken", self.state.name()),
            passed: samples > 0,
            detail: format!("{samples} samples"),
        })
    }

    /// Takes what was set up away again; the network goes with the scene.
    pub fn end(self) -> Result<()> {
        match self.state.is_tarn() {
            true => self.host()?.tarn(&["down"]).map(drop),
            false => Ok(()),
        }
    }
}

/// Measures all devices of this namespace but loopback.
fn meter() -> Result<LoadMeter> {
    let mut meter = LoadMeter::attach(512)?;
    meter.follow(&devices()?)?;
    Ok(meter)
}

/// The same, of the round trips of TCP.
fn round_trips() -> Result<TcpMeter> {
    let devices = devices()?;
    let mut meter = TcpMeter::attach(devices.len())?;
    meter.follow(&devices, Duration::ZERO)?;
    Ok(meter)
}

/// All devices of this namespace but loopback.
fn devices() -> Result<Vec<u32>> {
    let carrying = links::carrying()?.into_iter();
    Ok(carrying
        .filter(|(name, _)| name != "lo")
        .map(|(_, index)| index)
        .collect())
}
