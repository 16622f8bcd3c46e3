//! What this stage alone changes, and how that is undone.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tarn_frame::journal::{Change, OwnChange, Undone};
use tarn_kernel::netdev;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_kernel::sysfs::Sysfs;

use crate::calm;
use crate::cpus::Cpus;
use crate::threads;

/// A change that no other stage makes, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PollChange {
    /// The agent may have threads receive from a device, which softirqs did before.
    Threaded {
        /// The device's name.
        interface: String,
        /// Its index.
        index: u32,
        /// The CPUs that they run on, if those were configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpus: Option<Cpus>,
    },
}

impl PollChange {
    /// From the journal.
    ///
    /// # Errors
    /// It is none of these.
    pub fn read(recorded: &Value) -> Result<Self> {
        serde_json::from_value(recorded.clone()).with_context(|| format!("poll makes no such change: {recorded}"))
    }

    /// If it is one of these.
    pub fn of(change: &Change) -> Option<Self> {
        match change {
            Change::Own(recorded) => Self::read(recorded).ok(),
            _ => None,
        }
    }
}

impl From<PollChange> for Change {
    fn from(change: PollChange) -> Self {
        // Nothing in it can fail to be written: all keys are texts.
        Self::Own(serde_json::to_value(change).unwrap_or_default())
    }
}

impl OwnChange for PollChange {
    /// The agent puts it back at its end, and a process that outlives it when it is killed. This is for when both were.
    fn undo(&self) -> Result<Undone> {
        let Self::Threaded { index, cpus, .. } = self;
        let Some(name) = calm::name_of(*index) else {
            return Ok(Undone::Gone);
        };
        let napis = netdev::napis(*index).ok().flatten().unwrap_or_default();
        let its_threads = || napis.iter().filter_map(|napi| napi.thread);
        // Threads outlive that a device is threaded. The process that outlives the agent leaves them where they run.
        if let Some(cpus) = cpus {
            its_threads().for_each(|thread| {
                cpus.release(thread);
            });
        }
        let sysfs = Sysfs::of_this_namespace()?;
        if threads::is_threaded(&sysfs, &name) != Some(true) {
            return Ok(Undone::Gone);
        }
        // Both processes that would have done it were killed, and their maps may be gone. A thread that has ended takes nothing.
        for thread in its_threads() {
            let _ = set_policy(thread, Policy::Ordinary);
        }
        if let Err(error) = threads::set_threaded(&sysfs, &name, false) {
            return Ok(Undone::LeftAlone(format!("{error:#}")));
        }
        Ok(Undone::PutBack)
    }

    fn subject(&self) -> String {
        let Self::Threaded { interface, .. } = self;
        format!("threads that receive from {interface}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal that an earlier tarn has written is put back by this one.
    #[test]
    fn the_journal_s_lines_are_read_as_they_were_always_written() {
        let line = r#"{"index":3,"interface":"eth0","kind":"threaded"}"#;
        let change: Change = serde_json::from_str(line).unwrap();
        let threaded = |cpus| PollChange::Threaded {
            interface: "eth0".to_owned(),
            index: 3,
            cpus,
        };
        assert_eq!(PollChange::of(&change), Some(threaded(None)));
        assert_eq!(serde_json::to_string(&change).unwrap(), line);
        let held = threaded(Cpus::parse("2-3"));
        assert_eq!(PollChange::of(&held.clone().into()), Some(held));
        assert!(PollChange::read(&serde_json::json!({"kind": "threaded"})).is_err());
    }
}
