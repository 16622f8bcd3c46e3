//! The section `[classes]` of `tarn.toml`.
//!
//! ```toml
//! [classes]
//! rule = "ratio"         # or "published"
//! window = "10s"         # over which shares are counted: 10ms to 1h
//! hold = "0ms"           # how long requests gather before a choice: at most 1s
//! hold_rounds = 0        # the same, in rounds of the dispatcher: at most 1000
//! memory = "64MiB"       # that waiting packets of a service take at most: 64KiB to 4GiB
//! max_clients = 2097152  # networks of clients
//! deadline = "40ms"      # where neither the class nor the service has one: 1us to 1h
//!
//! [[classes.service]]    # at most 16
//! name = "web"           # the first port when left out
//! ports = ["tcp/80", "tcp/443", "tcp/8000-8100"]
//! protocol = "auto"      # or "http", "stream", "datagram", "dns", "connection": what a request is
//! deadline = "40ms"      # of every class, whatever it has
//! limit = "auto"         # requests that the service has at a time, or 1 to 16384
//! patience = "2s"        # after which no answer is expected any more: a deadline to 1h; at least five when left out
//! overdue = "auto"       # after which a request in service gives up its place: 1ms to 1h
//!
//! [[classes.service]]    # one whose requests wait in HAProxy's queue; it has a deadline, and nothing else of the above
//! name = "shop"
//! through = "haproxy"
//! socket = "/run/haproxy/admin.sock"  # HAProxy's runtime socket, with level admin
//! maps = "/etc/haproxy/tarn"          # where HAProxy finds the maps that tarn fills
//!
//! [[classes.class]]      # best first; the last takes the clients that are not known
//! name = "gold"
//! target = 90            # percent of answers within the deadline
//! deadline = "20ms"
//! cap = 1024             # packets that may wait for each service
//! networks = ["220.0.0.0/8", "2001:db8::/32"]
//! networks_file = "gold.txt"  # more of them, a line each
//!
//! [classes.import]       # for `tarn classes import`
//! by = "months"          # or "spending"
//! thresholds = [36, 12, 6, 3]
//! ```
//!
//! `ports` below `[classes]` instead of services are those of a single one. `limit`, `patience` and `overdue` there are for the services
//! that have none of their own.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::module::{Ports, Protocol, Rule, Settings, Target};
use super::network::Network;

mod networks;
mod ports;
mod proxied;
mod read;
mod services;
mod written;

pub use ports::LocalPorts;
pub use read::read;

/// The most classes: `TARN_CLASSES_MOST`.
pub const CLASSES_MOST: usize = 64;
/// The most ranges of ports: `TARN_CLASSES_MOST_PORTS`.
const PORTS_MOST: usize = 1024;
const PORTS_REMEDY: &str = "write \"tcp/80\", \"udp/53\" or \"tcp/8000-8100\"";
/// Of a target: all answers in time, in 1/10000.
pub const TARGET_WHOLE: u32 = 10_000;
/// Of a deadline, in `uapi.h`.
pub const DEADLINE: RangeInclusive<Duration> = Duration::from_micros(1)..=HOUR;
/// How long a client can have its class for.
pub const LASTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10 * 365 * 24 * 3600);
/// Of `hold`.
pub const HOLD: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(1);
/// Of `hold_rounds`.
pub const HOLD_ROUNDS: RangeInclusive<i64> = 0..=1000;
/// `LIMIT_MOST`: while the limit is found, it says that nothing is limited.
pub const LIMIT_MOST: u32 = 16_384;
/// Of `limit`.
const LIMIT: RangeInclusive<i64> = 1..=LIMIT_MOST as i64;
const HOUR: Duration = Duration::from_secs(3600);
const WINDOW: RangeInclusive<Duration> = Duration::from_millis(10)..=HOUR;
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(1)..=HOUR;
const OVERDUE: RangeInclusive<Duration> = PATIENCE;
const MEMORY: RangeInclusive<u64> = (64 << 10)..=(4 << 30);
const CAP: RangeInclusive<i64> = 1..=1_048_576;
const CAP_DEFAULT: u32 = 1024;
const CLIENTS: RangeInclusive<i64> = 1..=16_777_216;
const CLIENTS_DEFAULT: u32 = 2_097_152;

/// A valid section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The services, by their numbers in the module.
    pub services: Vec<Service>,
    /// Those whose requests wait in HAProxy.
    #[serde(default)]
    pub proxied: Vec<Proxied>,
    /// Whether several ports are named without saying what services they are: they share a limit.
    #[serde(default)]
    pub shares_limit: bool,
    /// The classes, best first.
    pub classes: Vec<Class>,
    /// The choice.
    pub rule: Rule,
    /// Over which shares are counted.
    pub window: Duration,
    /// How long requests gather before a choice.
    pub hold: Duration,
    /// The same, in rounds of the dispatcher.
    pub hold_rounds: u32,
    /// The most memory that waiting packets of a service take, in bytes.
    pub memory: u64,
    /// The most prefixes of clients.
    pub max_clients: u32,
    /// How `import` decides.
    pub import: Option<Import>,
}

/// One service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What people call it.
    pub name: String,
    /// The local ports whose requests are scheduled.
    pub ports: Vec<LocalPorts>,
    /// What a request is.
    #[serde(default)]
    pub protocol: Protocol,
    /// From a request's arrival to its answer, for each class.
    pub deadlines: Vec<Duration>,
    /// Requests that the service has at a time; 0 to find it.
    pub limit: u32,
    /// After which no answer is expected any more.
    pub patience: Duration,
    /// After which a request in service gives up its place; zero to find it.
    pub overdue: Duration,
}

/// Where Debian's HAProxy listens for commands.
pub const HAPROXY_SOCKET: &str = "/run/haproxy/admin.sock";

/// One service behind HAProxy: see [`crate::haproxy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxied {
    /// What people call it; part of names in HAProxy's configuration.
    pub name: String,
    /// HAProxy's runtime socket.
    pub socket: PathBuf,
    /// The directory of the maps that HAProxy loads.
    pub maps: PathBuf,
    /// From a request's arrival at HAProxy to the head of the server's answer, for each class.
    pub deadlines: Vec<Duration>,
}

/// One class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// What people call it.
    pub name: String,
    /// The share of answers within the deadline, in 1/10000.
    pub target: u32,
    /// Packets that may wait, for each service.
    pub cap: u32,
    /// Its clients, as far as the file names them. Once they are up, [`crate::clients::Store`] has them.
    #[serde(skip)]
    pub networks: Vec<Network>,
}

/// How `tarn classes import` decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Which column of the file.
    pub by: Column,
    /// The least value of each class but the last, falling.
    pub thresholds: Vec<u64>,
}

/// A column that `import` decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// The length of the contract.
    Months,
    /// What the customer has spent.
    Spending,
}

impl Column {
    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Months => "months",
            Self::Spending => "spending",
        }
    }
}

impl Config {
    /// A service as the module takes it.
    pub fn settings(&self, service: &Service) -> Settings {
        let classes = self.classes.iter().zip(&service.deadlines);
        Settings {
            ports: Some(service.ports.iter().map(LocalPorts::for_the_module).collect()),
            classes: Some(
                classes
                    .map(|(class, deadline)| class.for_the_module(*deadline))
                    .collect(),
            ),
            protocol: Some(service.protocol),
            rule: Some(self.rule),
            limit: Some(service.limit),
            window: Some(self.window),
            hold: Some(self.hold),
            hold_rounds: Some(self.hold_rounds),
            patience: Some(service.patience),
            overdue: Some(service.overdue),
            bytes: Some(self.memory),
        }
    }

    /// The ports of all services.
    pub fn ports(&self) -> impl Iterator<Item = &LocalPorts> {
        self.services.iter().flat_map(|service| &service.ports)
    }

    /// The names of all services.
    pub fn service_names(&self) -> impl Iterator<Item = &str> {
        let services = self.services.iter().map(|service| service.name.as_str());
        services.chain(self.proxied.iter().map(|service| service.name.as_str()))
    }

    /// The networks that the file names, each with its class.
    pub fn networks(&self) -> impl Iterator<Item = (Network, usize)> {
        let classes = self.classes.iter().enumerate();
        classes.flat_map(|(index, class)| class.networks.iter().map(move |network| (*network, index)))
    }

    /// A class by its name or number.
    pub fn class(&self, text: &str) -> Option<usize> {
        let by_name = self.classes.iter().position(|class| class.name == text);
        by_name.or_else(|| text.parse().ok().filter(|index| *index < self.classes.len()))
    }
}

impl Class {
    fn for_the_module(&self, deadline: Duration) -> Target {
        Target {
            deadline: u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX),
            target: self.target,
            cap: self.cap,
        }
    }
}

impl LocalPorts {
    fn for_the_module(&self) -> Ports {
        Ports {
            first: self.range.first,
            last: self.range.last,
            protocol: self.protocol.number(),
            padding: [0; 3],
        }
    }
}

/// A share in percent, as 1/10000; `None` when it is out of range.
pub fn target(percent: f64) -> Option<u32> {
    let share = (percent * 100.0).round();
    (1.0..=f64::from(TARGET_WHOLE)).contains(&share).then_some(share as u32)
}

/// A share in 1/10000 as percent: `90`, `99.95`.
pub fn percent(target: u32) -> f64 {
    f64::from(target) / 100.0
}

#[cfg(test)]
pub mod tests;
