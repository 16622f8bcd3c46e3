//! What may be done about a flood.

use std::path::Path;

use anyhow::{Context, Result};
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_kernel::sysfs::Sysfs;
use tarn_kernel::{modules, netdev, sysctl};
use tarn_lab::topology::Namespace;

use crate::buffers;
use crate::module::{MODULE, Module, Rule};
use crate::threads;

/// A way to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// As the kernel does it.
    Stock,
    /// `netdev_budget` at 16, which is often recommended.
    Budget,
    /// The kernel's thread for softirqs at SCHED_FIFO 1, which is recommended where receiving comes too late.
    Ksoftirqd,
    /// Threads at nice 0, as published.
    Threads,
    /// The same with the published rule for the weight.
    Published,
    /// Threads at SCHED_FIFO 1, which nobody guards.
    ThreadsFifo,
    /// The same, whose polls take so many packets.
    Weight(u32),
    /// tarn without shedding.
    TarnNoShed,
    /// tarn.
    Tarn,
    /// tarn for threads that have to be on time.
    Timely,
}

impl Contender {
    /// How its cases' names begin.
    pub fn name(self) -> String {
        let name = match self {
            Self::Stock => "stock",
            Self::Budget => "budget16",
            Self::Ksoftirqd => "ksoftirqd",
            Self::Threads => "threads",
            Self::Published => "published",
            Self::ThreadsFifo => "threads-fifo",
            Self::Weight(weight) => return format!("weight{weight}"),
            Self::TarnNoShed => "tarn-noshed",
            Self::Tarn => "tarn",
            Self::Timely => "tarn-timely",
        };
        name.to_owned()
    }

    /// For people.
    pub fn title(self) -> String {
        let title = match self {
            Self::Stock => "stock",
            Self::Budget => "netdev_budget 16",
            Self::Ksoftirqd => "ksoftirqd at FIFO 1",
            Self::Threads => "threads at nice 0, as published",
            Self::Published => "threads at nice 0 and the rule for the weight, as published",
            Self::ThreadsFifo => "threads at FIFO 1, unguarded",
            Self::Weight(weight) => return format!("threads at FIFO 1, unguarded, {weight} packets a poll"),
            Self::TarnNoShed => "tarn, shed = \"off\"",
            Self::Tarn => "tarn (defaults)",
            Self::Timely => "tarn, profile = \"timely\"",
        };
        title.to_owned()
    }

    fn rule(self) -> Option<Rule> {
        match self {
            Self::Published => Some(Rule::Published),
            Self::Weight(weight) => Some(Rule::Fixed(weight)),
            _ => None,
        }
    }

    fn configuration(self) -> Option<&'static str> {
        match self {
            Self::Tarn => Some("[poll]\n"),
            Self::TarnNoShed => Some("[poll]\nshed = \"off\"\n"),
            Self::Timely => Some("[poll]\nprofile = \"timely\"\n"),
            _ => None,
        }
    }

    /// Sets the host up.
    ///
    /// # Errors
    /// It cannot be.
    pub fn set_up(self, host: &Namespace) -> Result<SetUp> {
        let mut up = SetUp {
            parameter: None,
            configuration: None,
            is_threaded: false,
            has_weights: false,
            has_priority: None,
        };
        match self {
            Self::Stock => {}
            Self::Budget => up.parameter = Some(set(BUDGET, "16")?),
            Self::Ksoftirqd => {
                let thread = ksoftirqd()?;
                set_policy(thread, Policy::Fifo(1)).context("cannot give ksoftirqd a priority")?;
                up.has_priority = Some(thread);
            }
            Self::Threads | Self::Published | Self::ThreadsFifo | Self::Weight(_) => {
                let priority = matches!(self, Self::ThreadsFifo | Self::Weight(_)).then_some(1);
                host.enter(|| thread(priority))?;
                up.is_threaded = true;
                if let Some(rule) = self.rule() {
                    host.enter(|| weigh(rule))?;
                    up.has_weights = true;
                }
            }
            Self::TarnNoShed | Self::Tarn | Self::Timely => {
                let file = tempfile(self.configuration().unwrap_or_default())?;
                host.tarn(&["up", "--config", &file])?;
                up.configuration = Some(file);
                // Only in the first network namespace, which none of the lab's hosts is in, `up` can do it itself.
                if self != Self::TarnNoShed
                    && let Some(value) = buffers::wanted()
                {
                    up.parameter = Some(set(buffers::PARAMETER, &value.to_string())?);
                }
            }
        }
        Ok(up)
    }
}

/// What was set up.
pub struct SetUp {
    /// One that was set, and what it was.
    parameter: Option<(&'static str, String)>,
    configuration: Option<String>,
    is_threaded: bool,
    has_weights: bool,
    /// A thread of the kernel's that was given one.
    has_priority: Option<i32>,
}

impl SetUp {
    /// Puts the host back.
    ///
    /// # Errors
    /// It cannot be.
    pub fn put_back(self, host: &Namespace) -> Result<()> {
        if let Some((path, before)) = self.parameter {
            set(path, &before)?;
        }
        if let Some(thread) = self.has_priority {
            set_policy(thread, Policy::Ordinary).context("cannot take ksoftirqd its priority")?;
        }
        if self.has_weights {
            host.enter(|| Module::loaded()?.stop())?;
            modules::unload(MODULE.name)?;
        }
        if self.is_threaded {
            host.enter(|| threads::set_threaded(&Sysfs::of_this_namespace()?, "eth0", false))?;
        }
        if let Some(file) = self.configuration {
            host.tarn(&["down"])?;
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {file}"))?;
        }
        Ok(())
    }
}

/// A file of this guest's, which ends with it.
fn tempfile(text: &str) -> Result<String> {
    let path = "/tmp/poll-storm.toml";
    std::fs::write(path, text).with_context(|| format!("cannot write {path}"))?;
    Ok(path.to_owned())
}

/// The thread that runs the first CPU's softirqs where they take too long.
fn ksoftirqd() -> Result<i32> {
    let is_named = |thread: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{thread}/comm"));
        name.is_ok_and(|name| name.trim() == "ksoftirqd/0")
    };
    // The kernel starts it early.
    (1..1_000).find(is_named).context("there is no ksoftirqd/0")
}

/// Packets that a softirq receives at most.
const BUDGET: &str = "/proc/sys/net/core/netdev_budget";

/// Sets a parameter of the first network namespace. Returns what it was.
fn set(path: &'static str, value: &str) -> Result<(&'static str, String)> {
    let before = sysctl::read(Path::new(path))?;
    sysctl::write(Path::new(path), value)?;
    Ok((path, before))
}

/// Has threads receive from the calling thread's eth0, with a priority or without.
///
/// # Errors
/// The kernel's.
pub fn thread(priority: Option<i32>) -> Result<()> {
    threads::set_threaded(&Sysfs::of_this_namespace()?, "eth0", true)?;
    let napis = netdev::napis(card()?)?.context("this kernel does not tell its NAPIs")?;
    for thread in napis.into_iter().filter_map(|napi| napi.thread) {
        let policy = priority.map_or(Policy::Ordinary, Policy::Fifo);
        set_policy(thread, policy).context("cannot choose a thread's policy")?;
    }
    Ok(())
}

/// Has the polls of the calling thread's eth0 take as many packets as a rule says.
///
/// # Errors
/// The kernel's.
pub fn weigh(rule: Rule) -> Result<()> {
    modules::load(MODULE.name)?;
    Module::loaded()?.set(card()?, rule)
}

/// The index of eth0.
fn card() -> Result<u32> {
    let links = tarn_kernel::links::all()?;
    let link = links.iter().find(|link| link.name == "eth0");
    Ok(link.context("there is no eth0")?.index)
}
