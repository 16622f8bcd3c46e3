//! The changes tarn makes to the kernel, and how each is undone.

use std::mem::{Discriminant, discriminant};
use std::path::Path;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use tarn_kernel::attach::{Direction, XdpMode};
use tarn_kernel::route::{self, Route, Rule};
use tarn_kernel::undone::Undone;
use tarn_kernel::{attach, nft, sysctl, xdp_next};

use crate::modules;

/// A change that one stage alone makes, and knows how to undo.
pub trait OwnChange {
    /// Undoes the change. Doing it twice, or without the change ever having been made, is harmless.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn undo(&self) -> Result<Undone>;

    /// What was changed, for people.
    fn subject(&self) -> String;
}

/// One change to the kernel, with all that is needed to undo it without the stage that made it.
///
/// An interface is named by index and name: the index tells a renamed interface from a new one of the old name,
/// the name is for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// A kernel parameter was set.
    Sysctl {
        /// Its file below `/proc/sys`.
        path: String,
        /// Its value before.
        before: String,
        /// Its value since.
        after: String,
    },
    /// A table was added to nftables. It is deleted with all that is in it.
    NftTable {
        /// `ip`, `ip6`, `inet`, `arp`, `bridge` or `netdev`.
        family: String,
        /// The table's name.
        name: String,
    },
    /// A `clsact` queueing discipline was added, which only carries filters. One that was there is not recorded.
    Qdisc {
        /// The interface's name.
        interface: String,
        /// The interface's index.
        index: u32,
    },
    /// A BPF program was attached as a tc filter.
    TcFilter {
        /// The interface's index.
        index: u32,
        /// The interface's name.
        interface: String,
        /// Which way the packets go.
        direction: Direction,
        /// The filter's handle.
        handle: u32,
        /// The filter's priority.
        priority: u32,
        /// The program's id: another program there is somebody else's.
        program_id: u32,
    },
    /// A BPF program was attached by tcx.
    Tcx {
        /// The interface's index.
        index: u32,
        /// The interface's name.
        interface: String,
        /// Which way the packets go.
        direction: Direction,
        /// The program's id.
        program_id: u32,
    },
    /// An XDP program was attached.
    Xdp {
        /// The interface's index.
        index: u32,
        /// The interface's name.
        interface: String,
        /// The program's id.
        program_id: u32,
        /// How it is run.
        mode: XdpMode,
    },
    /// A BPF program was put behind the XDP program of another stage: [`xdp_next`].
    XdpNext {
        /// The interface's index.
        index: u32,
        /// The interface's name.
        interface: String,
        /// The program's id.
        program_id: u32,
    },
    /// A kernel module was loaded.
    Module {
        /// Its name.
        name: String,
    },
    /// A module of tarn's was configured in this network namespace, over generic netlink. It is told to stop.
    ModuleConfiguration {
        /// Its family.
        family: String,
        /// The family's version.
        version: u8,
        /// The command that ends what runs, and is refused with ENOENT when nothing does.
        stop: u8,
    },
    /// A route was added, by a nexthop of ours.
    Route(Route),
    /// A rule was added that chooses a table by a packet's mark, or by its source address.
    Rule(Rule),
    /// A change that only its stage understands: an object with a `kind` that is none of the above. See [`OwnChange`].
    #[serde(untagged)]
    Own(Value),
}

impl Change {
    /// Undoes the change. Doing it twice, or without the change ever having been made, is harmless.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn undo(&self) -> Result<Undone> {
        match self {
            Self::Sysctl { path, before, after } => sysctl::restore(Path::new(path), before, after),
            Self::NftTable { family, name } => nft::delete_table(family, name),
            Self::Qdisc { interface, index } => attach::remove_clsact(*index, interface),
            Self::TcFilter {
                index,
                interface,
                direction,
                handle,
                priority,
                program_id,
            } => attach::detach_filter(*index, interface, *direction, *handle, *priority, *program_id),
            Self::Tcx {
                index,
                direction,
                program_id,
                ..
            } => attach::detach_tcx(*index, *direction, *program_id),
            Self::Xdp {
                index,
                interface,
                program_id,
                ..
            } => attach::detach_xdp(*index, interface, *program_id),
            Self::XdpNext {
                index,
                interface,
                program_id,
            } => xdp_next::remove(*index, interface, *program_id),
            Self::Module { name } => modules::unload(name),
            Self::ModuleConfiguration { family, version, stop } => modules::stop(family, *version, *stop),
            Self::Route(route) => remove_route(route),
            Self::Rule(rule) => rule.remove(&mut route::open()?).map(Undone::of),
            Self::Own(_) => bail!("the stage that made it is not part of this program"),
        }
    }

    /// Whether this is about the very hook that `other` is about, where one program of ours can be.
    pub fn has_place_of(&self, other: &Change) -> bool {
        self.hook().is_some() && self.hook() == other.hook()
    }

    /// The hook that a program was attached to: its sort, its interface, and which way the packets go.
    fn hook(&self) -> Option<(Discriminant<Self>, u32, Option<Direction>)> {
        let (index, direction) = match self {
            Self::Tcx { index, direction, .. } | Self::TcFilter { index, direction, .. } => (index, Some(*direction)),
            Self::Xdp { index, .. } | Self::XdpNext { index, .. } => (index, None),
            _ => return None,
        };
        Some((discriminant(self), *index, direction))
    }

    /// Whether the program that this change attached is at its hook now. False for changes of other sorts.
    pub fn stands(&self) -> bool {
        match self {
            Self::Tcx {
                index,
                direction,
                program_id,
                ..
            } => attach::tcx_programs(*index, *direction).is_ok_and(|programs| programs.contains(program_id)),
            Self::TcFilter {
                index,
                direction,
                program_id,
                ..
            } => attach::filter_program(*index, *direction).is_ok_and(|found| found == Some(*program_id)),
            Self::Xdp { index, program_id, .. } => {
                attach::xdp_program(*index).is_ok_and(|found| found == Some(*program_id))
            }
            Self::XdpNext { index, program_id, .. } => {
                xdp_next::program(*index).is_ok_and(|found| found == Some(*program_id))
            }
            _ => false,
        }
    }

    /// What was changed, for people: `sysctl net.ipv4.ip_forward`.
    pub fn subject(&self) -> String {
        match self {
            Self::Sysctl { path, .. } => format!("sysctl {}", sysctl::name(Path::new(path))),
            Self::NftTable { family, name } => format!("nftables table {family} {name}"),
            Self::Qdisc { interface, .. } => format!("qdisc clsact on {interface}"),
            Self::TcFilter {
                interface, direction, ..
            } => format!("tc filter on {interface} {}", direction.name()),
            Self::Tcx {
                interface, direction, ..
            } => format!("tcx program on {interface} {}", direction.name()),
            Self::Xdp { interface, .. } => format!("XDP program on {interface}"),
            Self::XdpNext { interface, .. } => format!("next XDP program on {interface}"),
            Self::Module { name } => format!("module {name}"),
            Self::ModuleConfiguration { family, .. } => format!("configuration of {family}"),
            Self::Route(route) => format!("route to {} in table {}", route.to, route.table),
            Self::Rule(Rule {
                priority,
                from: Some(from),
                ..
            }) => format!("rule {priority} for packets from {from}"),
            Self::Rule(rule) => format!("rule {} for mark {:#x}", rule.priority, rule.mark),
            Self::Own(value) => value.get("kind").map_or_else(|| value.to_string(), Value::to_string),
        }
    }
}

/// A route that somebody else has put in the place of ours stays.
fn remove_route(route: &Route) -> Result<Undone> {
    let mut netlink = route::open()?;
    match route.find(&mut netlink)? {
        None => Ok(Undone::Gone),
        Some(found) if found.nexthop != Some(route.nexthop) => {
            Ok(Undone::LeftAlone("it leads another way now".to_owned()))
        }
        Some(_) => route.remove(&mut netlink).map(Undone::of),
    }
}
