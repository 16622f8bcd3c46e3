//! Networks in which the uplinks have addresses of their own: they count as prefixes of theirs. Answers to who speaks to the address
//! of an uplink would leave by another one otherwise, whose provider drops them.
//!
//! Where connections are pinned, they stay by their marks. Where the file says that they are not to be, addresses are good for every
//! uplink, and flows from them are to move.

use anyhow::Result;

use super::STAGE;
use super::config::{Config, FILE, Group, PREFIXES_MOST, Uplink};
use super::group::Working;
use super::{layout, prefixes, translation};
use tarn_base::network::Prefix;
use tarn_base::output::log;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_kernel::addresses::{self, Address};
use tarn_kernel::netlink::Netlink;
use tarn_kernel::route::{Destination, Rule};

/// Finds those of all uplinks, by the addresses that there are now.
///
/// # Errors
/// A kernel that does not answer.
pub fn find(groups: &mut [Group]) -> Result<()> {
    find_in(groups, &addresses::all()?);
    Ok(())
}

fn find_in(groups: &mut [Group], addresses: &[Address]) {
    for group in groups {
        let are_apart = translation::has_addresses_apart(group, addresses);
        let of_uplink = |uplink| {
            if are_apart {
                of(uplink, group, addresses)
            } else {
                Vec::new()
            }
        };
        let found: Vec<Vec<Destination>> = group.uplinks.iter().map(of_uplink).collect();
        for (uplink, networks) in group.uplinks.iter_mut().zip(found) {
            uplink.networks = networks;
        }
    }
}

/// In the order of their addresses, whatever the kernel's: nothing changes when that does.
fn of(uplink: &Uplink, group: &Group, addresses: &[Address]) -> Vec<Destination> {
    let mut found: Vec<Prefix> = own(uplink, group, addresses)
        .filter(|address| !names(uplink, address))
        .filter_map(|address| network(address, uplink, group, addresses))
        .collect();
    found.sort_by_key(|network| (network.address, network.length));
    found.dedup();
    found.truncate(PREFIXES_MOST);
    found.into_iter().map(Destination::from).collect()
}

/// An uplink's addresses of the group's family that mean something beyond the link.
fn own<'a>(uplink: &'a Uplink, group: &'a Group, addresses: &'a [Address]) -> impl Iterator<Item = &'a Address> {
    let is_ipv6 = group.to.address.is_ipv6();
    let is_meant = move |address: &&Address| address.device == uplink.device && address.is_beyond_link(is_ipv6);
    addresses.iter().filter(is_meant)
}

/// Whether the file names a prefix of this uplink that an address lies in.
fn names(uplink: &Uplink, address: &Address) -> bool {
    uplink.prefixes.iter().any(|prefix| prefix.contains(address.address))
}

/// The address's network, or where another uplink has a part of that, the address alone.
fn network(address: &Address, uplink: &Uplink, group: &Group, addresses: &[Address]) -> Option<Prefix> {
    let others = || group.uplinks.iter().filter(|other| other.device != uplink.device);
    let is_another_s = |prefix: &Prefix| {
        let mut named = others().flat_map(|other| &other.prefixes);
        named.any(|other| other.overlaps(*prefix))
    };
    let mut found = others().flat_map(|other| own(other, group, addresses));
    let is_shared = found.any(|other| other.network.overlaps(address.network)) || address.network.length == 0;
    let alone = Prefix::of(address.address, u8::MAX);
    let wanted = [Some(address.network).filter(|_| !is_shared), Some(alone)];
    wanted.into_iter().flatten().find(|prefix| !is_another_s(prefix))
}

/// Follows the addresses of the uplinks: sets rules for networks that have come, and removes those of networks that have gone. Nothing
/// is done while somebody else holds the lock, who may be waiting for this very agent to end.
///
/// # Errors
/// A kernel that does not answer, or refuses a rule; a full disk.
pub fn follow(
    config: &mut Config,
    groups: &mut [Working],
    state: &StateDirectory,
    netlink: &mut Netlink,
) -> Result<()> {
    let mut changed = config.clone();
    find(&mut changed.groups)?;
    if changed.groups == config.groups {
        return Ok(());
    }
    let Some(_lock) = state.try_lock("follow addresses")? else {
        return Ok(()); // with the next look
    };
    let before = rules(groups);
    let mut journal = Journal::open(state)?;
    for (working, group) in groups.iter_mut().zip(&changed.groups) {
        for (uplink, configured) in working.judge.uplinks.iter_mut().zip(&group.uplinks) {
            let way = &mut uplink.link.way;
            way.from = layout::from(configured, group.to, way.id);
            for rule in way.from.iter().flatten() {
                journal.record_once(STAGE, Change::Rule(*rule))?;
            }
            for pair in &way.from {
                uplink.link.has_new_rules |= prefixes::set(pair, netlink)?;
            }
        }
    }
    let wanted = rules(groups);
    let is_over = |rule: &Rule| before.contains(rule) && !wanted.contains(rule);
    journal.undo_of(STAGE, |change| matches!(change, Change::Rule(rule) if is_over(rule)))?;
    state.write_json(FILE, &changed)?;
    announce(config, &changed);
    *config = changed;
    Ok(())
}

fn rules(groups: &[Working]) -> Vec<Rule> {
    let uplinks = groups.iter().flat_map(|group| &group.judge.uplinks);
    uplinks
        .flat_map(|uplink| &uplink.link.way.from)
        .flatten()
        .copied()
        .collect()
}

/// Says which uplinks have other networks than before.
fn announce(before: &Config, now: &Config) {
    let uplinks =
        |config: &Config| -> Vec<Uplink> { config.groups.iter().flat_map(|group| group.uplinks.clone()).collect() };
    for (before, now) in uplinks(before).iter().zip(uplinks(now)) {
        if before.networks != now.networks {
            log(STAGE, said(&now));
        }
    }
}

fn said(uplink: &Uplink) -> String {
    let networks: Vec<String> = uplink.networks.iter().map(Destination::to_string).collect();
    match networks.is_empty() {
        true => format!("{}: it has no network of its own now", uplink.device),
        false => format!(
            "{}: what comes from {} leaves by it",
            uplink.device,
            networks.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(named: [&[&str]; 2]) -> Group {
        let uplink = |(device, named): (&str, &[&str])| Uplink {
            device: device.to_owned(),
            prefixes: named.iter().map(|prefix| prefix.parse().unwrap()).collect(),
            ..Uplink::default()
        };
        Group {
            to: "::/0".parse().unwrap(),
            metric: 1,
            pin: false,
            finds_pin: true,
            number: 0,
            uplinks: ["wan0", "wan1"].into_iter().zip(named).map(uplink).collect(),
            adopt: None,
        }
    }

    fn address(device: &str, address: &str, network: &str) -> Address {
        Address {
            device: device.to_owned(),
            address: address.parse().unwrap(),
            network: network.parse().unwrap(),
        }
    }

    fn found(mut group: Group, addresses: &[Address]) -> Vec<String> {
        find_in(std::slice::from_mut(&mut group), addresses);
        let networks = |uplink: &Uplink| uplink.networks.iter().map(Destination::to_string).collect::<Vec<_>>();
        group.uplinks.iter().map(|uplink| networks(uplink).join(" ")).collect()
    }

    fn both() -> Vec<Address> {
        vec![
            address("wan1", "2001:db8:f1::2", "2001:db8:f1::/64"),
            address("wan0", "2001:db8:f0::2", "2001:db8:f0::/64"),
            address("wan1", "2001:db8:f1::7", "2001:db8:f1::/64"),
            address("wan1", "fe80::2", "fe80::/64"),
            address("wan1", "192.0.2.2", "192.0.2.0/24"),
            address("lan", "2001:db8:1::1", "2001:db8:1::/64"),
        ]
    }

    /// Who speaks to the address of an uplink that is not the calmest would get no answer.
    #[test]
    fn an_uplink_s_own_networks_are_its_prefixes() {
        assert_eq!(
            found(group([&[], &[]]), &both()),
            ["2001:db8:f0::/64", "2001:db8:f1::/64"]
        );
    }

    #[test]
    fn what_the_file_names_wins() {
        let own = group([&[], &["2001:db8:f1::/56"]]);
        assert_eq!(found(own, &both()), ["2001:db8:f0::/64", ""]);
        let another_s = group([&["2001:db8:f1::/56"], &[]]);
        assert_eq!(found(another_s, &both()), ["2001:db8:f0::/64", ""]);
        let part = group([&["2001:db8:f1::8/126"], &[]]);
        assert_eq!(
            found(part, &both()),
            ["2001:db8:f0::/64", "2001:db8:f1::2/128 2001:db8:f1::7/128"]
        );
    }

    #[test]
    fn a_network_that_two_uplinks_have_is_neither_s() {
        let shared = [
            address("wan0", "2001:db8::2", "2001:db8::/64"),
            address("wan1", "2001:db8::3", "2001:db8::/64"),
        ];
        assert_eq!(
            found(group([&[], &[]]), &shared),
            ["2001:db8::2/128", "2001:db8::3/128"]
        );
    }

    #[test]
    fn addresses_that_are_good_for_every_uplink_move() {
        let with = |change: fn(&mut Group)| {
            let mut group = group([&[], &[]]);
            change(&mut group);
            found(group, &both())
        };
        assert_eq!(with(|group| group.finds_pin = false), ["", ""], "the file says so");
        assert_eq!(with(|group| group.pin = true), ["", ""], "marks do it");
        assert_eq!(found(group([&[], &[]]), &both()[..1]), ["", ""], "there is one");
    }
}
