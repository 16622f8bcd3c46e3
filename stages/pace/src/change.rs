//! What this stage alone changes, and how that is undone.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tarn_frame::journal::{Change, OwnChange, Undone};
use tarn_kernel::cgroup;
use tarn_kernel::qdisc::{self, Setting};

use crate::existing;
use crate::registration::{Identity, NAME, Registration};

/// A change that no other stage makes, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PaceChange {
    /// The congestion control was registered.
    CongestionControl(Identity),
    /// A program was attached to the sockets of a control group.
    GroupProgram {
        /// The group's directory.
        group: PathBuf,
        /// The program's id.
        program: u32,
    },
    /// A device's queues got `fq`.
    Queue {
        /// The device's name.
        interface: String,
        /// Its index.
        index: u32,
        /// The handle of what is at its root since.
        handle: u32,
        /// How that and what is below it are set. `None` until the change is made: only then can it be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<BTreeSet<Setting>>,
    },
    /// Connections that stood have taken it, and give it back.
    Connections {
        /// The congestion control that they take then.
        before: String,
    },
}

impl PaceChange {
    /// From the journal.
    ///
    /// # Errors
    /// It is none of these.
    pub fn read(recorded: &Value) -> Result<Self> {
        serde_json::from_value(recorded.clone()).with_context(|| format!("pace makes no such change: {recorded}"))
    }

    /// If it is one of these.
    pub fn of(change: &Change) -> Option<Self> {
        match change {
            Change::Own(recorded) => Self::read(recorded).ok(),
            _ => None,
        }
    }
}

impl From<PaceChange> for Change {
    fn from(change: PaceChange) -> Self {
        // Nothing in it can fail to be written: all keys are texts, and groups are named in tarn.toml, which is text.
        Self::Own(serde_json::to_value(change).unwrap_or_default())
    }
}

impl OwnChange for PaceChange {
    fn undo(&self) -> Result<Undone> {
        match self {
            Self::CongestionControl(identity) => match Registration::open(identity)? {
                Some(registration) => registration.remove().map(Undone::of),
                None => Ok(Undone::Gone),
            },
            Self::GroupProgram { group, program } => cgroup::detach_from_sockets(group, *program),
            Self::Queue {
                interface,
                index,
                handle,
                settings,
            } => qdisc::remove_root(*index, interface, *handle, settings.as_ref()),
            Self::Connections { before } => existing::give_back(before).map(|moved| Undone::of(moved.taken > 0)),
        }
    }

    fn subject(&self) -> String {
        match self {
            Self::CongestionControl(_) => format!("congestion control {NAME}"),
            Self::GroupProgram { group, .. } => format!("program of the control group {}", group.display()),
            Self::Queue { interface, .. } => format!("queueing discipline of {interface}"),
            Self::Connections { before } => format!("connections that take {before} again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal that an earlier tarn has written is put back by this one.
    #[test]
    fn the_journal_s_lines_are_read_as_they_were_always_written() {
        let lines = [
            (
                r#"{"history":9,"kind":"congestion-control","map":7,"parameters":9,"program":"00ff"}"#,
                PaceChange::CongestionControl(Identity {
                    map: 7,
                    parameters: 9,
                    history: 9,
                    program: "00ff".into(),
                }),
            ),
            (
                r#"{"group":"/sys/fs/cgroup/a.slice","kind":"group-program","program":8}"#,
                PaceChange::GroupProgram {
                    group: "/sys/fs/cgroup/a.slice".into(),
                    program: 8,
                },
            ),
            (
                r#"{"handle":5,"index":3,"interface":"eth0","kind":"queue"}"#,
                PaceChange::Queue {
                    interface: "eth0".into(),
                    index: 3,
                    handle: 5,
                    settings: None,
                },
            ),
            (
                r#"{"handle":5,"index":3,"interface":"eth0","kind":"queue","settings":[{"kind":"fq","options":"00ff"}]}"#,
                PaceChange::Queue {
                    interface: "eth0".into(),
                    index: 3,
                    handle: 5,
                    settings: Some(BTreeSet::from([Setting {
                        kind: "fq".into(),
                        options: "00ff".into(),
                    }])),
                },
            ),
            (
                r#"{"before":"cubic","kind":"connections"}"#,
                PaceChange::Connections { before: "cubic".into() },
            ),
        ];
        for (line, expected) in lines {
            let change: Change = serde_json::from_str(line).unwrap();
            assert_eq!(PaceChange::of(&change), Some(expected));
            assert_eq!(serde_json::to_string(&change).unwrap(), line);
        }
        assert!(PaceChange::read(&serde_json::json!({"kind": "congestion-control", "map": 7})).is_err());
    }
}
