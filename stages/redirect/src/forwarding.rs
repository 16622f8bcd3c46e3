//! Forwarding: a packet for a server that is not this host can only be passed on by a host that forwards.
//!
//! It is turned on for an address family as soon as a rule leads elsewhere, and as all that tarn changes it is journaled
//! and put back. Doing so exactly takes some care, because the kernel changes other parameters along:
//!
//! - Setting `net.ipv4.ip_forward` also sets `conf/*/forwarding`, and `conf/all/accept_redirects` to the contrary.
//! - Setting `net.ipv6.conf.all.forwarding` also sets `conf/*/forwarding`, and makes interfaces with `accept_ra = 1`
//!   deaf to router advertisements and drop the default route they had from them. Those are set to 2 before (accept
//!   them though forwarding), so that a host that got its address that way stays reachable.
//!
//! One thing is not put back: the kernel turns large receive offload off on devices that forward, and leaves it so.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::STAGE;
use super::firewall;
use super::rule::{Family, Rule};
use tarn_base::output::{Priority, log_at};
use tarn_frame::journal::{Change, Journal};
use tarn_kernel::{addresses, sysctl};

/// Both families.
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// To be set.
    Set {
        /// Its file.
        path: PathBuf,
        /// Its new value.
        value: &'static str,
    },
    /// To be remembered: putting forwarding back makes the kernel set it to `after`, and it must be `before` again.
    Remember {
        /// Its file.
        path: PathBuf,
        /// Its value now.
        before: String,
        /// Its value once forwarding is off again.
        after: &'static str,
    },
}

/// What has to be set for `rules`, in this order; nothing for targets of this host and where forwarding is on.
///
/// # Errors
/// Parameters or addresses that cannot be read.
pub fn settings(rules: &[Rule]) -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for family in missing(rules)? {
        let directory = directory(family);
        settings.extend(match family {
            Family::V4 => ipv4(&directory)?,
            Family::V6 => ipv6(&directory)?,
        });
    }
    Ok(settings)
}

/// The families of which a target is not this host, but which it does not forward.
///
/// # Errors
/// As [`settings`].
pub fn missing(rules: &[Rule]) -> Result<Vec<Family>> {
    let mut missing = Vec::new();
    for family in FAMILIES {
        if !is_on(family)? {
            missing.push(family);
        }
    }
    if !missing.is_empty() {
        let local = addresses::local()?;
        let elsewhere = |rule: &&Rule| !local.contains(&rule.to);
        missing.retain(|family| rules.iter().filter(elsewhere).any(|rule| rule.family() == *family));
    }
    Ok(missing)
}

/// Whether this host forwards packets of a family. A host without IPv6 has nothing to turn on, either.
///
/// # Errors
/// A parameter that cannot be read.
pub fn is_on(family: Family) -> Result<bool> {
    let path = directory(family).join("all/forwarding");
    Ok(!path.exists() || sysctl::read(&path)? != "0")
}

/// The parameter that turns it on.
pub fn parameter(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.ipv4.ip_forward",
        Family::V6 => "net.ipv6.conf.all.forwarding",
    }
}

/// That this host passes on whatever is sent by way of it, in a line: once it forwards, where no firewall rule says what.
pub fn unguarded(settings: &[Setting]) -> Option<String> {
    let is_set = |family: &Family| {
        let path = sysctl::path(parameter(*family));
        settings
            .iter()
            .any(|setting| matches!(setting, Setting::Set { path: set, .. } if *set == path))
    };
    let is_open = |family: &Family| is_set(family) && !firewall::restricts_forwarding(*family);
    let turned_on: Vec<&str> = FAMILIES.into_iter().filter(is_open).map(parameter).collect();
    (!turned_on.is_empty()).then(|| {
        format!(
            "forwarding is turned on ({}), and no nftables rule says what this host may forward: it passes on all \
             that is routed by way of it; a chain with `hook forward` restricts that",
            turned_on.join(", ")
        )
    })
}

/// The settings as commands that a person can read.
pub fn commands(settings: &[Setting]) -> Vec<String> {
    let command = |setting: &Setting| match setting {
        Setting::Set { path, value } => Some(format!("sysctl -w {}={value}", sysctl::name(path))),
        Setting::Remember { .. } => None,
    };
    settings.iter().filter_map(command).collect()
}

/// Sets what is to be set, each in the journal before.
///
/// # Errors
/// A parameter that cannot be set; a journal that cannot be written.
pub fn apply(journal: &mut Journal, settings: &[Setting]) -> Result<()> {
    if let Some(notice) = unguarded(settings) {
        log_at(Priority::Notice, STAGE, notice);
    }
    for setting in settings {
        match setting {
            Setting::Set { path, value } => tarn_frame::sysctl::change(journal, STAGE, path, value)?,
            Setting::Remember { path, before, after } => {
                // Undone after what was changed later, so after forwarding: then the value is `after`, and put back.
                let path = path.display().to_string();
                let (before, after) = (before.clone(), (*after).to_owned());
                journal.record(STAGE, Change::Sysctl { path, before, after })?;
            }
        }
    }
    Ok(())
}

fn directory(family: Family) -> PathBuf {
    sysctl::path(match family {
        Family::V4 => "net.ipv4.conf",
        Family::V6 => "net.ipv6.conf",
    })
}

fn ipv4(directory: &Path) -> Result<Vec<Setting>> {
    let mut settings = forwarding_already(directory)?;
    let redirects = directory.join("all/accept_redirects");
    if sysctl::read(&redirects)? == "0" {
        settings.push(Setting::Remember {
            path: redirects,
            before: "0".to_owned(),
            after: "1",
        });
    }
    settings.push(set(sysctl::path("net.ipv4.ip_forward"), "1"));
    Ok(settings)
}

fn ipv6(directory: &Path) -> Result<Vec<Setting>> {
    let mut settings = forwarding_already(directory)?;
    for interface in interfaces(directory)? {
        let advertisements = interface.join("accept_ra");
        if sysctl::read(&advertisements)? == "1" {
            settings.push(set(advertisements, "2"));
        }
    }
    settings.push(set(directory.join("all/forwarding"), "1"));
    Ok(settings)
}

fn set(path: PathBuf, value: &'static str) -> Setting {
    Setting::Set { path, value }
}

/// Interfaces that forward although the host does not: they would not do so after it was turned on and off.
fn forwarding_already(directory: &Path) -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for interface in interfaces(directory)? {
        let path = interface.join("forwarding");
        let before = sysctl::read(&path)?;
        if before != "0" {
            settings.push(Setting::Remember {
                path,
                before,
                after: "0",
            });
        }
    }
    Ok(settings)
}

/// The directories of all interfaces, and of the defaults for those to come, in the order of their names.
fn interfaces(directory: &Path) -> Result<Vec<PathBuf>> {
    let context = || format!("cannot list {}", directory.display());
    let entries = std::fs::read_dir(directory).with_context(context)?;
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.with_context(context)?;
    paths.retain(|path| !path.ends_with("all"));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::samples::udp;
    use tarn_frame::state::StateDirectory;
    use tarn_lab::topology::{End, Node, Topology};

    /// Every parameter of both families, but those that count or change by themselves.
    fn dump() -> String {
        let mut files = Vec::new();
        for directory in [directory(Family::V4), directory(Family::V6)] {
            for interface in std::fs::read_dir(directory).unwrap() {
                files.extend(
                    std::fs::read_dir(interface.unwrap().path())
                        .unwrap()
                        .map(|file| file.unwrap().path()),
                );
            }
        }
        files.push(sysctl::path("net.ipv4.ip_forward"));
        files.sort();
        let line = |path: &PathBuf| {
            Some(format!(
                "{} = {}\n",
                path.display(),
                std::fs::read_to_string(path).ok()?.trim()
            ))
        };
        files.iter().filter_map(line).collect()
    }

    /// A host that becomes a router for a while is afterwards what it was, down to every parameter.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_forwarding_is_turned_on_when_needed_and_put_back() {
        let host = Node::new("host")
            .sysctl("net/ipv4/conf/all/accept_redirects", "0")
            .sysctl("net/ipv4/conf/right/forwarding", "1");
        let end = |node: &str, name: &str, v4: &str, v6: &str| End::new(node, name).address(v4).address(v6);
        let network = Topology::new()
            .node(host)
            .node(Node::new("other"))
            .link(
                end("host", "left", "10.0.1.1/24", "fd01::1/64"),
                end("other", "one", "10.0.1.2/24", "fd01::2/64"),
            )
            .link(
                end("host", "right", "10.0.2.1/24", "fd02::1/64"),
                end("other", "two", "10.0.2.2/24", "fd02::2/64"),
            )
            .build()
            .unwrap();
        network
            .namespace("host")
            .unwrap()
            .enter(|| {
                let before = dump();
                assert_eq!(
                    settings(&[udp("0.0.0.0:53", "10.0.1.1:54", None)]).unwrap(),
                    [],
                    "the target is the host"
                );
                let rules = [udp("0.0.0.0:53", "10.0.9.9", None), udp("[::]:53", "[fd09::9]", None)];
                let wanted = settings(&rules).unwrap();
                let commands = commands(&wanted);
                assert!(
                    commands.contains(&"sysctl -w net.ipv4.ip_forward=1".to_owned()),
                    "{commands:?}"
                );
                assert!(
                    commands.contains(&"sysctl -w net.ipv6.conf.left.accept_ra=2".to_owned()),
                    "{commands:?}"
                );
                let directory = tempfile::tempdir().unwrap();
                let mut journal = Journal::open(&StateDirectory::at(directory.path(), "state")).unwrap();
                apply(&mut journal, &wanted).unwrap();
                assert!(dump().contains("ipv6/conf/left/forwarding = 1"));
                assert_eq!(settings(&rules).unwrap(), [], "it is on");
                let undone = journal.undo(None).unwrap();
                assert_eq!(undone.left_alone, Vec::<String>::new());
                assert_eq!(dump(), before);
                Ok(())
            })
            .unwrap();
    }
}
