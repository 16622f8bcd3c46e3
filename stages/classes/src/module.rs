//! The module `tarn_classes`: its source, and its netlink interface (`uapi.h`).

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use tarn_frame::{Answer, KernelModule, Loaded};
use tarn_kernel::netlink::put;
use tarn_kernel::plain::{Plain, bytes_of};

tarn_kernel::skeleton!(mod abi, "abi");

mod clients;

pub use clients::{Entry, Origin};

pub use abi::types::{tarn_classes_figures as Counts, tarn_classes_ports as Ports, tarn_classes_target as Target};

/// `TARN_CLASSES_FAMILY`, `TARN_CLASSES_VERSION`, `TARN_CLASSES_CMD_STOP`
pub const MODULE: KernelModule = KernelModule {
    name: "tarn_classes",
    version: 4,
    stop: Command::Stop as u8,
};

/// `enum tarn_classes_command`
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Command {
    Set = 1,
    Stop,
    Reset,
    Get,
    GetTimes,
    ChangeClients,
    FindClient,
    GetClients,
    ClearClients,
}

/// `enum tarn_classes_attribute`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum Attribute {
    Ports = 2,
    Classes,
    Rule,
    Limit,
    Window,
    Hold,
    HoldRounds,
    Patience,
    Overdue,
    Bytes,
    Number,
    Protocol,
    InFlight,
    Places,
    LimitNow,
    OverdueNow,
    Service,
    Figures,
    Class,
    Times,
    Clients,
    Step,
    Most,
    Changes,
}

// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Ports {}
// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Target {}
// SAFETY: integers without padding between: see uapi.h.
unsafe impl Plain for Counts {}

/// `TARN_CLASSES_MOST_SERVICES`
pub const SERVICES_MOST: usize = 16;

/// How the next class to be served is chosen: `enum tarn_classes_rule`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// The share in time against the target over a window; hopeless requests are set aside.
    #[default]
    Ratio,
    /// The thesis's: the same since the start, oldest request first.
    Published,
}

/// What a request is: `enum tarn_classes_protocol`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Over TCP what comes in until something goes out, over UDP a datagram.
    #[default]
    Auto,
    /// HTTP/1.
    Http,
    /// What comes in until something goes out.
    Stream,
    /// DNS.
    Dns,
    /// A connection.
    Connection,
}

/// What to change of a service. What is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The local ports.
    pub ports: Option<Vec<Ports>>,
    /// All classes, best first.
    pub classes: Option<Vec<Target>>,
    /// What a request is.
    pub protocol: Option<Protocol>,
    /// The choice.
    pub rule: Option<Rule>,
    /// Requests that the service has at a time; 0 to find it.
    pub limit: Option<u32>,
    /// Over which shares are counted.
    pub window: Option<Duration>,
    /// How long requests gather before a choice.
    pub hold: Option<Duration>,
    /// The same, in rounds of the dispatcher.
    pub hold_rounds: Option<u32>,
    /// After which no answer is expected any more.
    pub patience: Option<Duration>,
    /// After which a request in service gives up its place; zero to find it.
    pub overdue: Option<Duration>,
    /// The most memory that waiting packets take, in bytes.
    pub bytes: Option<u64>,
}

/// How a service is.
#[derive(Debug, Clone)]
pub struct State {
    /// The settings in force, all of them.
    pub settings: Settings,
    /// Requests that the service has now.
    pub in_flight: u32,
    /// Those of them that are not overdue.
    pub places: u32,
    /// After which a request gives up its place, in force.
    pub overdue: Duration,
    /// The limit in force.
    pub limit: u32,
    /// The mean time from handing a request on to its answer.
    pub service: Duration,
    /// What became of each class's requests.
    pub counts: Vec<Counts>,
}

/// The module, as seen from one network namespace. Calls are about the service that [`Module::service`] has named last.
pub struct Module {
    loaded: Loaded,
    number: u32,
}

impl Module {
    /// The module in the calling thread's namespace; `None` when it is not loaded.
    ///
    /// # Errors
    /// Those of netlink.
    pub fn find() -> Result<Option<Self>> {
        Ok(MODULE.find()?.map(Self::from))
    }

    /// The module, which has to be loaded.
    ///
    /// # Errors
    /// It is not.
    pub fn loaded() -> Result<Self> {
        MODULE.loaded().map(Self::from)
    }

    /// The service that the following calls are about: 0 to [`SERVICES_MOST`] - 1; it is 0 at first.
    pub fn service(&mut self, number: usize) -> &mut Self {
        self.number = u32::try_from(number).unwrap_or(u32::MAX);
        self
    }

    /// Has the service begin, or changes it where it runs.
    ///
    /// # Errors
    /// What the kernel refuses, in its words; then nothing has changed.
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        let mut message = self.named();
        message.extend(settings.attributes());
        self.loaded.command("configure", Command::Set as u8, &message).map(drop)
    }

    /// Ends the service, if it runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop_service(&mut self) -> Result<()> {
        self.loaded.ask(Command::Stop as u8, &self.named()).map(drop)
    }

    /// Ends all services and forgets all clients, as `tarn down` does. Returns whether there was anything.
    #[cfg(test)]
    pub fn stop(&mut self) -> Result<bool> {
        self.loaded.stop()
    }

    /// Ends all services; clients keep their classes. Returns whether any ran.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop_services(&mut self) -> Result<bool> {
        let mut ran = false;
        for number in 0..SERVICES_MOST {
            let stopped = self.service(number).named();
            ran |= self.loaded.ask(Command::Stop as u8, &stopped)?.is_some();
        }
        Ok(ran)
    }

    /// Counts anew.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` when the service does not run.
    pub fn reset(&mut self) -> Result<()> {
        self.loaded
            .command("reset", Command::Reset as u8, &self.named())
            .map(drop)
    }

    /// How the service is; `None` when it does not run.
    ///
    /// # Errors
    /// The kernel's, or an answer of another version.
    pub fn state(&mut self) -> Result<Option<State>> {
        let answer = self.loaded.ask(Command::Get as u8, &self.named())?;
        answer.as_ref().map(State::read).transpose()
    }

    /// How many answers took how long; the buckets are those of `uapi.h`.
    ///
    /// # Errors
    /// The kernel's, or an answer of another version.
    pub fn times(&mut self, class: u32) -> Result<Vec<u32>> {
        let mut request = self.named();
        put(&mut request, Attribute::Class as u16, bytes_of(&class));
        let answer = self.loaded.command("ask", Command::GetTimes as u8, &request)?;
        answer.array(Attribute::Times as u16)
    }

    /// A message that says which service it is about.
    fn named(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put(&mut message, Attribute::Number as u16, bytes_of(&self.number));
        message
    }
}

impl From<Loaded> for Module {
    fn from(loaded: Loaded) -> Self {
        Self { loaded, number: 0 }
    }
}

impl Settings {
    fn attributes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let mut add = |kind: Attribute, value: Option<Vec<u8>>| {
            if let Some(value) = value {
                put(&mut message, kind as u16, &value);
            }
        };
        let number32 = |value: Option<u32>| value.map(|value| value.to_ne_bytes().to_vec());
        let number64 = |value: Option<u64>| value.map(|value| value.to_ne_bytes().to_vec());
        let time = |value: Option<Duration>| number64(value.map(nanoseconds));
        add(Attribute::Ports, self.ports.as_deref().map(joined));
        add(Attribute::Classes, self.classes.as_deref().map(joined));
        let protocol = self.protocol.map(|protocol| protocol as u32);
        add(Attribute::Protocol, number32(protocol));
        add(Attribute::Rule, number32(self.rule.map(|rule| rule as u32)));
        add(Attribute::Limit, number32(self.limit));
        add(Attribute::Window, time(self.window));
        add(Attribute::Hold, time(self.hold));
        add(Attribute::HoldRounds, number32(self.hold_rounds));
        add(Attribute::Patience, time(self.patience));
        add(Attribute::Overdue, time(self.overdue));
        add(Attribute::Bytes, number64(self.bytes));
        message
    }
}

impl State {
    fn read(answer: &Answer) -> Result<Self> {
        let number = |kind: Attribute| answer.number(kind as u16);
        let time = |kind: Attribute| answer.time(kind as u16);
        let rule = match number(Attribute::Rule)? {
            0 => Rule::Ratio,
            _ => Rule::Published,
        };
        let protocol = match number(Attribute::Protocol)? {
            1 => Protocol::Http,
            2 => Protocol::Stream,
            3 => Protocol::Dns,
            4 => Protocol::Connection,
            _ => Protocol::Auto,
        };
        Ok(Self {
            settings: Settings {
                protocol: Some(protocol),
                ports: Some(answer.array(Attribute::Ports as u16)?),
                classes: Some(answer.array(Attribute::Classes as u16)?),
                rule: Some(rule),
                limit: Some(number(Attribute::Limit)?),
                window: Some(time(Attribute::Window)?),
                hold: Some(time(Attribute::Hold)?),
                hold_rounds: Some(number(Attribute::HoldRounds)?),
                patience: Some(time(Attribute::Patience)?),
                overdue: Some(time(Attribute::Overdue)?),
                bytes: Some(answer.number64(Attribute::Bytes as u16)?),
            },
            in_flight: number(Attribute::InFlight)?,
            places: number(Attribute::Places)?,
            limit: number(Attribute::LimitNow)?,
            overdue: time(Attribute::OverdueNow)?,
            service: time(Attribute::Service)?,
            counts: answer.array(Attribute::Figures as u16)?,
        })
    }
}

fn joined<T: Plain>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|value| bytes.extend_from_slice(bytes_of(value)));
    bytes
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
