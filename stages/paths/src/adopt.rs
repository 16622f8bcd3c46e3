//! Takes over a multipath route that somebody else has made: it names the uplinks, and is put back as it was by `tarn down`.

use anyhow::{Context, Result, bail, ensure};

use super::config::{Adopt, COST_DEFAULT, Config, Group, UPLINKS_MOST, Uplink};
use super::{STAGE, layout};
use crate::change::PathsChange;
use crate::foreign::{self, ForeignRoute, Hop};
use crate::nexthop::{self, ONLINK};
use tarn_frame::journal::{Change, Journal};
use tarn_kernel::netlink::Netlink;
use tarn_kernel::nft;
use tarn_kernel::route::{Destination, Route};

/// A route of ours that stands in the place of somebody else's, and that one.
type Adopted = (Route, ForeignRoute);

/// Those that the journal has, which is written before anything is done: the newest first.
pub fn adopted(journal: &Journal) -> Vec<Adopted> {
    let adopted = |(_, change): (u64, &Change)| match PathsChange::of(change)? {
        PathsChange::AdoptedRoute { route, original } => Some((route, *original)),
        _ => None,
    };
    journal.changes(STAGE).rev().filter_map(adopted).collect()
}

/// The numbers of groups that stand for a route which is not taken over any more, and could not be put back yet.
pub fn held(config: &Config, adopted: &[Adopted]) -> Vec<u32> {
    let is_wanted = |route: &Route| {
        let mut groups = config.groups.iter();
        groups.any(|group| (group.to, group.metric) == (route.to, route.metric))
    };
    let others = adopted.iter().filter(|(route, _)| !is_wanted(route));
    others.map(|(route, _)| layout::number_of(route.nexthop)).collect()
}

/// Looks the routes up that are to be taken over, and names their uplinks; `adopted` is what was taken over already.
///
/// # Errors
/// There is no such route, or one that nexthop objects cannot stand for.
pub fn resolve(config: &mut Config, adopted: &[Adopted], netlink: &mut Netlink) -> Result<()> {
    let named: Vec<(Destination, u32)> = config.groups.iter().filter_map(named).collect();
    for group in &mut config.groups {
        let Some(adopt) = group.adopt.clone() else { continue };
        let original = find(group, &adopt, &named, adopted, netlink)?;
        name_uplinks(group, &adopt, original)
            .with_context(|| format!("the multipath route to {} cannot be taken over", group.to))?;
    }
    if let Some(message) = config.lack_of_marks() {
        bail!("{message}: give it more bits");
    }
    refuse_conflicts(config, adopted)
}

/// The place that the file names for a group that takes a route over.
fn named(group: &Group) -> Option<(Destination, u32)> {
    Some((group.to, group.adopt.as_ref()?.metric?))
}

/// The route that was taken over already and that ours still stands for, or the one with the least metric.
fn find(
    group: &Group,
    adopt: &Adopt,
    named: &[(Destination, u32)],
    adopted: &[Adopted],
    netlink: &mut Netlink,
) -> Result<ForeignRoute> {
    let is_meant = |route: &ForeignRoute| {
        let is_another_s = named.contains(&(route.to, route.metric));
        let has_metric = adopt.metric.map_or(!is_another_s, |metric| route.metric == metric);
        route.to == group.to && route.hops.len() > 1 && has_metric
    };
    let mut known: Vec<&Adopted> = adopted.iter().filter(|(_, original)| is_meant(original)).collect();
    // Of one place, the newest comes first and stays first.
    known.sort_by_key(|(_, original)| original.metric);
    for (ours, original) in &known {
        if ours.stands(netlink)? {
            return Ok(original.clone());
        }
    }
    let mut routes = foreign::all(group.to, None, netlink)?;
    routes.retain(is_meant);
    if let Some(route) = routes.into_iter().min_by_key(|route| route.metric) {
        let (to, metric) = (route.to, route.metric);
        ensure!(
            foreign::count_at(&place(&route), netlink)? == 1,
            "several routes to {to} have metric {metric}: give the multipath route another one, so that it is clear which one tarn \
             takes the place of"
        );
        return Ok(route);
    }
    // The kernel takes ours away, and its group, with the last device; what stands there since is somebody's wish.
    for (ours, original) in known {
        if nexthop::find(netlink, ours.nexthop)?.is_none() && foreign::count_at(ours, netlink)? == 0 {
            return Ok(original.clone());
        }
    }
    let metric = adopt.metric.map(|metric| format!(" with metric {metric}"));
    bail!(
        "there is no multipath route to {}{} that could be taken over: `ip route show table main` tells what is there; without \
         adopt, [[paths.group.uplink]] names the uplinks",
        group.to,
        metric.unwrap_or_default()
    )
}

/// Where a route stands.
fn place(route: &ForeignRoute) -> Route {
    Route {
        to: route.to,
        table: foreign::MAIN_TABLE,
        metric: route.metric,
        nexthop: 0,
    }
}

fn name_uplinks(group: &mut Group, adopt: &Adopt, original: ForeignRoute) -> Result<()> {
    if original.encapsulates() {
        bail!("it gives packets another header on the way");
    }
    if original.expires {
        bail!(
            "it ends by itself unless somebody renews it, as router advertisements do: name its ways as uplinks instead"
        );
    }
    if let Some(device) = original.shared_device() {
        bail!("two of its ways lead by {device}: uplinks are told apart by their devices");
    }
    let count = original.hops.len();
    ensure!(count <= UPLINKS_MOST, "{count} uplinks are more than {UPLINKS_MOST}");
    let is_way = |uplink: &&Uplink| original.hops.iter().any(|hop| hop.device == uplink.device);
    if let Some(other) = group.uplinks.iter().find(|uplink| !is_way(uplink)) {
        bail!(
            "it does not lead by {}, which [[paths.group.uplink]] names",
            other.device
        );
    }
    if let Some(hop) = original
        .hops
        .iter()
        .find(|hop| group.pin && !nft::can_name(&hop.device))
    {
        bail!(
            "nftables cannot name a device '{}': rename it, or leave out pin",
            hop.device
        );
    }
    let uplink = |hop: &Hop| {
        let written = group.uplinks.iter().find(|uplink| uplink.device == hop.device);
        Uplink {
            gateway: hop.gateway,
            is_onlink: hop.flags & ONLINK > 0,
            ..written.cloned().unwrap_or_else(|| Uplink {
                device: hop.device.clone(),
                cost: COST_DEFAULT,
                targets: adopt.targets.clone(),
                ..Uplink::default()
            })
        }
    };
    group.uplinks = original.hops.iter().map(uplink).collect();
    group.metric = original.metric;
    group.adopt = Some(Adopt {
        original: Some(original),
        ..adopt.clone()
    });
    Ok(())
}

/// A route that was taken over comes back at `tarn down`: nothing else of ours can have its place.
fn refuse_conflicts(config: &Config, adopted: &[Adopted]) -> Result<()> {
    for (index, group) in config.groups.iter().enumerate() {
        let (to, metric) = (group.to, group.metric);
        let is_here = |other: &Group| (other.to, other.metric) == (to, metric);
        if config.groups[..index].iter().any(is_here) {
            bail!("there are two groups to {to} with metric {metric}: give one of them another metric");
        }
        let is_taken_over = adopted.iter().any(|(ours, _)| (ours.to, ours.metric) == (to, metric));
        if group.adopt.is_none() && is_taken_over {
            bail!(
                "a route to {to} with metric {metric} was there before tarn, which has taken it over: keep adopt = true, or \
                 `tarn down` first"
            );
        }
    }
    Ok(())
}

/// Whether the change put this route of ours in the place of another.
pub fn stands_for_another(ours: &Route, change: &Change) -> bool {
    matches!(PathsChange::of(change), Some(PathsChange::AdoptedRoute { route, .. }) if route == *ours)
}

/// Forgets what a route of ours stands for: somebody else has put another one there, or has removed ours.
///
/// # Errors
/// A full disk.
pub fn forget_original(ours: &Route, journal: &mut Journal) -> Result<()> {
    let is_forgotten = |(_, change): &(u64, &Change)| stands_for_another(ours, change);
    let forgotten = journal.changes(STAGE).filter(is_forgotten);
    let ids: Vec<u64> = forgotten.map(|(id, _)| id).collect();
    ids.into_iter().try_for_each(|id| journal.forget(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_base::config::testing;

    fn group(text: &str) -> Group {
        let text = format!("[[paths.group]]\nto = \"default\"\nadopt = true\ntargets = [\"192.0.2.53\"]\n{text}");
        let config = testing::section("paths", &text, super::super::config::read).unwrap();
        config.groups[0].clone()
    }

    fn route(devices: &[&str]) -> ForeignRoute {
        let hop = |device: &&str| Hop {
            device: (*device).to_owned(),
            gateway: Some("192.0.2.1".parse().unwrap()),
            flags: 0,
            weight: 0,
            attributes: Vec::new(),
        };
        ForeignRoute {
            to: "default".parse().unwrap(),
            metric: 7,
            protocol: 3,
            scope: 0,
            nexthop: None,
            expires: false,
            hops: devices.iter().map(hop).collect(),
            attributes: Vec::new(),
        }
    }

    fn named(text: &str, route: ForeignRoute) -> Result<Group, String> {
        let mut group = group(text);
        let adopt = group.adopt.clone().unwrap();
        name_uplinks(&mut group, &adopt, route).map_err(|error| error.to_string())?;
        Ok(group)
    }

    #[test]
    fn the_route_names_the_uplinks_and_the_file_what_they_cost() {
        let text = "[[paths.group.uplink]]\ndevice = \"wan1\"\ncost = 200\ntargets = []\n";
        let group = named(text, route(&["wan0", "wan1"])).unwrap();
        let shown = |uplink: &Uplink| (uplink.device.clone(), uplink.cost, uplink.targets.len());
        let uplinks: Vec<_> = group.uplinks.iter().map(shown).collect();
        assert_eq!(uplinks, [("wan0".to_owned(), 100, 1), ("wan1".to_owned(), 200, 0)]);
        assert_eq!(group.metric, 7);
    }

    #[test]
    fn what_cannot_be_taken_over_is_said() {
        let mut tunnelled = route(&["wan0", "wan1"]);
        tunnelled.hops[1].attributes.push((21, vec![1, 0]));
        let other = "[[paths.group.uplink]]\ndevice = \"wan7\"\n";
        let devices: Vec<String> = (0..65).map(|number| format!("wan{number}")).collect();
        let many = route(&devices.iter().map(String::as_str).collect::<Vec<_>>());
        let mut leased = route(&["wan0", "wan1"]);
        leased.expires = true;
        for (text, route, expected) in [
            ("", tunnelled, "another header"),
            ("", route(&["wan0", "wan0"]), "two of its ways lead by wan0"),
            (other, route(&["wan0", "wan1"]), "does not lead by wan7"),
            ("", many, "65 uplinks are more than 64"),
            ("", leased, "ends by itself"),
        ] {
            let error = named(text, route).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
