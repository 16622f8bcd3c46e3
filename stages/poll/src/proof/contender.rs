//! What may be done about a flood.

use anyhow::{Context, Result};
use tarn_kernel::netdev;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_kernel::sysfs::Sysfs;
use tarn_lab::topology::Namespace;

use crate::threads;

/// A way to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// As the kernel does it.
    Stock,
    /// `netdev_budget` at 16, which is often recommended.
    Budget,
    /// Threads at nice 0, as published.
    Threads,
    /// Threads at SCHED_FIFO 1, which nobody guards.
    ThreadsFifo,
    /// tarn without shedding.
    TarnNoShed,
    /// tarn.
    Tarn,
}

impl Contender {
    /// How its cases' names begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Budget => "budget16",
            Self::Threads => "threads",
            Self::ThreadsFifo => "threads-fifo",
            Self::TarnNoShed => "tarn-noshed",
            Self::Tarn => "tarn",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Budget => "netdev_budget 16",
            Self::Threads => "threads at nice 0, as published",
            Self::ThreadsFifo => "threads at FIFO 1, unguarded",
            Self::TarnNoShed => "tarn, shed = \"off\"",
            Self::Tarn => "tarn (defaults)",
        }
    }

    fn configuration(self) -> Option<&'static str> {
        match self {
            Self::Tarn => Some("[poll]\n"),
            Self::TarnNoShed => Some("[poll]\nshed = \"off\"\n"),
            _ => None,
        }
    }

    /// Sets the host up.
    ///
    /// # Errors
    /// It cannot be.
    pub fn set_up(self, host: &Namespace) -> Result<SetUp> {
        let mut up = SetUp {
            budget: None,
            configuration: None,
            is_threaded: false,
        };
        match self {
            Self::Stock => {}
            Self::Budget => up.budget = Some(set_budget("16")?),
            Self::Threads | Self::ThreadsFifo => {
                let priority = (self == Self::ThreadsFifo).then_some(1);
                host.enter(|| thread(priority))?;
                up.is_threaded = true;
            }
            Self::TarnNoShed | Self::Tarn => {
                let file = tempfile(self.configuration().unwrap_or_default())?;
                host.tarn(&["up", "--config", &file])?;
                up.configuration = Some(file);
            }
        }
        Ok(up)
    }
}

/// What was set up.
pub struct SetUp {
    budget: Option<String>,
    configuration: Option<String>,
    is_threaded: bool,
}

impl SetUp {
    /// Puts the host back.
    ///
    /// # Errors
    /// It cannot be.
    pub fn put_back(self, host: &Namespace) -> Result<()> {
        if let Some(budget) = self.budget {
            set_budget(&budget)?;
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

/// Sets `netdev_budget`. Returns what it was.
fn set_budget(value: &str) -> Result<String> {
    const PATH: &str = "/proc/sys/net/core/netdev_budget";
    let before = std::fs::read_to_string(PATH).context("cannot read netdev_budget")?;
    std::fs::write(PATH, value).context("cannot set netdev_budget")?;
    Ok(before.trim().to_owned())
}

/// Has threads receive, with a priority or without.
fn thread(priority: Option<i32>) -> Result<()> {
    threads::set_threaded(&Sysfs::of_this_namespace()?, "eth0", true)?;
    let links = tarn_kernel::links::all()?;
    let link = links
        .iter()
        .find(|link| link.name == "eth0")
        .context("there is no eth0")?;
    let napis = netdev::napis(link.index)?.context("this kernel does not tell its NAPIs")?;
    for thread in napis.into_iter().filter_map(|napi| napi.thread) {
        let policy = priority.map_or(Policy::Ordinary, Policy::Fifo);
        set_policy(thread, policy).context("cannot choose a thread's policy")?;
    }
    Ok(())
}
