//! What this stage alone changes, and how that is undone.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tarn_base::output::{Priority, log_at};
use tarn_frame::journal::{Change, OwnChange, Undone};
use tarn_kernel::conntrack;
use tarn_kernel::netlink::Netlink;
use tarn_kernel::route::{self, Route};

use crate::foreign::ForeignRoute;
use crate::nexthop;

/// A change that no other stage makes, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PathsChange {
    /// A nexthop, or a group of nexthops, was made. Routes by it go with it.
    Nexthop {
        /// Its number.
        id: u32,
    },
    /// A route of ours has taken the place of somebody else's.
    AdoptedRoute {
        /// Ours.
        route: Route,
        /// What was there.
        original: Box<ForeignRoute>,
    },
    /// Tracked connections were given this mark.
    ConnectionMark {
        /// The bits of it that are tarn's.
        mask: u32,
        /// What they have of them.
        mark: u32,
    },
    /// The same of all marks in these bits, as earlier versions wrote it down.
    ConnectionMarks {
        /// The bits of them that are tarn's.
        mask: u32,
    },
}

impl PathsChange {
    /// From the journal.
    ///
    /// # Errors
    /// It is none of these.
    pub fn read(recorded: &Value) -> Result<Self> {
        serde_json::from_value(recorded.clone()).with_context(|| format!("paths makes no such change: {recorded}"))
    }

    /// If it is one of these.
    pub fn of(change: &Change) -> Option<Self> {
        match change {
            Change::Own(recorded) => Self::read(recorded).ok(),
            _ => None,
        }
    }
}

impl From<PathsChange> for Change {
    fn from(change: PathsChange) -> Self {
        // Nothing in it can fail to be written: all keys are texts.
        Self::Own(serde_json::to_value(change).unwrap_or_default())
    }
}

impl OwnChange for PathsChange {
    fn undo(&self) -> Result<Undone> {
        match self {
            Self::Nexthop { id } => remove_nexthop(*id),
            Self::AdoptedRoute { route, original } => give_back(route, original, &mut route::open()?),
            // A kernel that cannot mark connections has marked none.
            Self::ConnectionMark { .. } | Self::ConnectionMarks { .. } if conntrack::is_missing().is_some() => {
                Ok(Undone::Gone)
            }
            Self::ConnectionMark { mask, mark: ours } => {
                let cleared = conntrack::remark(*mask, |mark, _, _| if mark == *ours { 0 } else { mark });
                cleared.map(|changed| Undone::of(changed > 0))
            }
            Self::ConnectionMarks { mask } => {
                conntrack::remark(*mask, |_, _, _| 0).map(|changed| Undone::of(changed > 0))
            }
        }
    }

    fn subject(&self) -> String {
        match self {
            Self::Nexthop { id } => format!("nexthop {id}"),
            Self::AdoptedRoute { route, .. } => format!("route to {} that was there before", route.to),
            Self::ConnectionMark { mask, mark } => format!("mark of connections {mark:#x}/{mask:#x}"),
            Self::ConnectionMarks { mask } => format!("marks of connections, {mask:#x}"),
        }
    }
}

/// A nexthop that somebody else has made since, under the number that ours had, stays.
fn remove_nexthop(id: u32) -> Result<Undone> {
    let mut netlink = route::open()?;
    match nexthop::find(&mut netlink, id)? {
        None => Ok(Undone::Gone),
        Some(found) if !found.is_ours() => Ok(Undone::LeftAlone("somebody else has made it anew".to_owned())),
        Some(_) => nexthop::remove(&mut netlink, id).map(Undone::of),
    }
}

/// Puts back what stood where ours stands. Where nothing stands any more, but the nexthop group does, somebody has removed ours; when
/// that has gone, too, the kernel has taken both away with the last device that had a carrier.
fn give_back(ours: &Route, original: &ForeignRoute, netlink: &mut Netlink) -> Result<Undone> {
    if original.stands(netlink)? {
        return Ok(Undone::Gone);
    }
    let is_removed = match ours.find(netlink)? {
        None => nexthop::find(netlink, ours.nexthop)?.is_some(),
        Some(_) if ours.stands(netlink)? => false,
        Some(_) => return Ok(Undone::LeftAlone("it leads another way now".to_owned())),
    };
    if is_removed {
        return Ok(Undone::LeftAlone("somebody has removed it".to_owned()));
    }
    match original.put_back(ours, netlink) {
        Ok(left_out) => {
            if !left_out.is_empty() {
                let text = format!("the route to {} has no way by {} now", ours.to, left_out.join(", "));
                log_at(Priority::Warning, "journal", text);
            }
            Ok(Undone::PutBack)
        }
        Err(error) if original.is_impossible(&error) => {
            ours.remove(netlink)?;
            Ok(Undone::LeftAlone(format!("it cannot be put back any more: {error:#}")))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal that an earlier tarn has written is put back by this one.
    #[test]
    fn the_journal_s_lines_are_read_as_they_were_always_written() {
        let line = r#"{"kind":"connection-marks","mask":255}"#;
        let change: Change = serde_json::from_str(line).unwrap();
        assert_eq!(
            PathsChange::of(&change),
            Some(PathsChange::ConnectionMarks { mask: 255 })
        );
        assert_eq!(serde_json::to_string(&change).unwrap(), line);
        let change: Change = serde_json::from_str(r#"{"kind":"nexthop","id":7}"#).unwrap();
        assert_eq!(change, PathsChange::Nexthop { id: 7 }.into());
        assert!(PathsChange::read(&serde_json::json!({"kind": "nexthop", "id": 7, "colour": "red"})).is_err());
    }
}
