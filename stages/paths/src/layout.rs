//! What a configuration comes to in the kernel: numbers, tables, marks, rules and routes. Nothing is asked or changed here.
//!
//! ```text
//!  main table:   default ──────────► group 0x74610000 ──┬─► nexthop 0x74610001 via 192.0.2.1 dev wan0
//!                                    (resilient)        └─► nexthop 0x74610002 via 198.51.100.1 dev wan1
//!  rule 1000:  mark 0x01000000/0xff000000 ─► table 0x74610001: default ─► nexthop 0x74610001
//!  rule 1001:  mark 0x02000000/0xff000000 ─► table 0x74610002: default ─► nexthop 0x74610002
//! ```

use std::net::IpAddr;
use std::time::Duration;

use super::config::{Config, Group, Uplink};
use super::judge::{MAIN, Policy, STANDBY};
use super::prefixes;
use crate::change::PathsChange;
use crate::foreign::{ForeignRoute, MAIN_TABLE};
use crate::nexthop::{self, Member, Nexthop};
use tarn_frame::journal::Change;
use tarn_kernel::route::{Destination, Route, Rule};

/// The number of the first group; those of its uplinks follow. The next group's is so much higher.
const FIRST: u32 = 0x7461_0000;
const STEP: u32 = 0x100;
/// The numbers of a group for IPv6 are so much higher.
const IPV6: u32 = 0x80;
/// Two numbers behind those of the first group's uplinks, to try out on what the kernel takes.
pub const SCRATCH: [u32; 2] = [FIRST + STEP - 2, FIRST + STEP - 1];
/// A bucket through which nothing was sent for so long may move: what comes next is no part of anything under way.
const IDLE: Duration = Duration::from_secs(5);
/// Buckets of a group whose kernel takes great weights: so many that two flows seldom share one.
const BUCKETS: u16 = 1024;

/// One group in the kernel, with its uplinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// What all of them have in common.
    pub group: GroupLayout,
    /// One an uplink.
    pub ways: Vec<Way>,
}

/// One group in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLayout {
    /// The nexthop group's number.
    pub id: u32,
    /// The route that the group is for.
    pub route: Route,
    /// What stands there without tarn, which it takes the place of.
    pub original: Option<ForeignRoute>,
    /// The group's buckets.
    pub buckets: u16,
    /// The greatest weight that the kernel takes.
    pub weight_most: u32,
    /// Whether connections stay on their uplinks.
    pub is_pinned: bool,
}

/// One uplink in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The nexthop's number, and its table's.
    pub id: u32,
    /// The device's name.
    pub device: String,
    /// The router.
    pub gateway: Option<IpAddr>,
    /// Whether the router is the one of somebody else's default route by the device.
    pub is_auto: bool,
    /// Whether the router is known, or that there is none: false as long as nobody has told.
    pub is_known: bool,
    /// Whether the router is reached by the device though it is in none of its networks.
    pub is_onlink: bool,
    /// Packets with this mark leave by this uplink.
    pub rule: Rule,
    /// The route in the uplink's own table.
    pub route: Route,
    /// What comes from prefixes of the uplink's own leaves by it.
    pub from: Vec<prefixes::Pair>,
}

/// The number of the group that a nexthop of ours belongs to.
pub const fn number_of(nexthop: u32) -> u32 {
    nexthop.saturating_sub(FIRST) / STEP
}

/// The layout of every group of a configuration that is numbered. `weight_most` is the greatest weight that the kernel takes.
pub fn of(config: &Config, weight_most: u32) -> Vec<Layout> {
    let groups = config.groups.iter();
    groups
        .map(|group| {
            // Of its own for each family: the kernel tells nexthops of IPv4 from those of IPv6.
            let id = FIRST + group.number * STEP + if group.to.address.is_ipv6() { IPV6 } else { 0 };
            let route = Route {
                to: group.to,
                table: MAIN_TABLE,
                metric: group.metric,
                nexthop: id,
            };
            let way = |uplink| way(config, group, uplink, id + 1 + uplink.number);
            let original = group.adopt.as_ref().and_then(|adopt| adopt.original.clone());
            Layout {
                group: GroupLayout {
                    id,
                    route,
                    original,
                    buckets: buckets(config.settings.policy, group.uplinks.len(), weight_most),
                    weight_most,
                    is_pinned: group.pin,
                },
                ways: group.uplinks.iter().map(way).collect(),
            }
        })
        .collect()
}

fn way(config: &Config, group: &Group, uplink: &Uplink, id: u32) -> Way {
    let is_ipv6 = group.to.address.is_ipv6();
    Way {
        id,
        device: uplink.device.clone(),
        gateway: uplink.gateway,
        is_auto: uplink.is_auto,
        is_known: !uplink.is_auto,
        is_onlink: uplink.is_onlink,
        rule: Rule {
            is_ipv6,
            priority: config.rule_priority + uplink.serial,
            mark: (uplink.serial + 1) << config.mark_mask.trailing_zeros(),
            mask: config.mark_mask,
            table: id,
            from: None,
            to: None,
            suppress: None,
        },
        route: Route {
            to: Destination::all(is_ipv6),
            table: id,
            metric: 0,
            nexthop: id,
        },
        from: from(uplink, group.to, id),
    }
}

/// The rules of what leaves by an uplink wherever it goes; `table` is the uplink's.
pub fn from(uplink: &Uplink, to: Destination, table: u32) -> Vec<prefixes::Pair> {
    let prefixes = uplink.prefixes.iter().chain(&uplink.networks);
    prefixes.map(|from| prefixes::rules(*from, to, table)).collect()
}

/// The buckets that a group of so many uplinks is made with: as many that the standbys, with a weight of 1 each, get none of them: each member's share is rounded to the nearest
/// (`nh_res_group_rebalance`), the standbys come first, and together they stay below half a bucket.
pub fn buckets(policy: Policy, uplinks: usize, weight_most: u32) -> u16 {
    let standbys = (uplinks.max(2) - 1) as u32;
    let most = (weight_most + standbys - 1) / (2 * standbys);
    match policy {
        Policy::Proportional => BUCKETS,
        Policy::Calmest => u16::try_from(most).unwrap_or(BUCKETS).clamp(1, BUCKETS),
    }
}

impl Layout {
    /// Every change that the group is, in the order to be made.
    pub fn changes(&self) -> Vec<Change> {
        let of_way = |way: &Way| {
            let own = [
                PathsChange::Nexthop { id: way.id }.into(),
                Change::Route(way.route),
                Change::Rule(way.rule),
            ];
            let from = way.from.iter().flatten().map(|rule| Change::Rule(*rule));
            own.into_iter().chain(from).collect::<Vec<_>>()
        };
        let mut changes: Vec<Change> = self.ways.iter().flat_map(of_way).collect();
        let route = match &self.group.original {
            Some(original) => PathsChange::AdoptedRoute {
                route: self.group.route,
                original: Box::new(original.clone()),
            }
            .into(),
            None => Change::Route(self.group.route),
        };
        changes.extend([PathsChange::Nexthop { id: self.group.id }.into(), route]);
        changes
    }

    /// The weights that members found in the kernel amount to, one an uplink.
    pub fn weights(&self, members: &[Member]) -> Vec<u32> {
        let weight = |way: &Way| {
            let member = members.iter().find(|member| member.id == way.id);
            member.map_or(0, |member| member.weight)
        };
        // Of a kernel that has no greater weight than this, it stands for the one of the judgement.
        let most = self.group.weight_most;
        let has_main = members.iter().all(|member| [STANDBY, most].contains(&member.weight));
        let restored = |weight| if has_main && weight == most { MAIN } else { weight };
        self.ways.iter().map(weight).map(restored).collect()
    }

    /// As commands that a person can read.
    pub fn commands(&self, weights: &[u32]) -> Vec<String> {
        let family = if self.group.route.to.address.is_ipv6() {
            "-6 "
        } else {
            ""
        };
        let mut commands = Vec::new();
        for way in &self.ways {
            let via = way.gateway.map(|gateway| format!("via {gateway} ")).unwrap_or_default();
            let onlink = if way.is_onlink { " onlink" } else { "" };
            commands.push(format!(
                "ip {family}nexthop replace id {} {via}dev {}{onlink}",
                way.id, way.device
            ));
            commands.push(format!("ip {family}route add default nhid {} table {}", way.id, way.id));
            commands.push(format!(
                "ip {family}rule add priority {} fwmark {:#x}/{:#x} lookup {}",
                way.rule.priority, way.rule.mark, way.rule.mask, way.id
            ));
            commands.extend(way.from.iter().flat_map(prefixes::commands));
        }
        let weighed = self.ways.iter().map(|way| way.id).zip(weights.iter().copied());
        if let Some(group) = self.group.weighed(weighed) {
            let members: Vec<String> = group
                .members
                .iter()
                .map(|member| format!("{},{}", member.id, member.weight))
                .collect();
            commands.push(format!(
                "ip nexthop replace id {} group {} type resilient buckets {} idle_timer {} unbalanced_timer 0",
                group.id,
                members.join("/"),
                group.buckets,
                IDLE.as_secs()
            ));
        }
        let metric = match self.group.route.metric {
            0 => String::new(),
            metric => format!(" metric {metric}"),
        };
        let verb = if self.group.original.is_some() {
            "replace"
        } else {
            "add"
        };
        commands.push(format!(
            "ip {family}route {verb} {} nhid {}{metric}",
            self.group.route.to, self.group.id
        ));
        if self.group.original.is_some() {
            commands.push("# the multipath route that stands there comes back with `tarn down`".into());
        }
        commands
    }
}

impl GroupLayout {
    /// The group with these nexthops and weights, as the kernel takes it; `None` when nobody has any.
    pub fn weighed(&self, weights: impl Iterator<Item = (u32, u32)>) -> Option<nexthop::Group> {
        let mut members: Vec<Member> = weights
            .filter(|(_, weight)| *weight > 0)
            .map(|(id, weight)| Member {
                id,
                weight: weight.min(self.weight_most),
            })
            .collect();
        // Those with the least weight first; see `buckets`.
        members.sort_by_key(|member| (member.weight, member.id));
        (!members.is_empty()).then_some(nexthop::Group {
            id: self.id,
            members,
            buckets: self.buckets,
            idle: IDLE,
        })
    }
}

impl Way {
    /// Its nexthop, by the index that its device has now.
    pub fn nexthop(&self, device: u32) -> Nexthop {
        Nexthop {
            id: self.id,
            device,
            gateway: self.gateway,
            is_ipv6: self.rule.is_ipv6,
            is_onlink: self.is_onlink && self.gateway.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nexthop::WEIGHT_MOST_OLD;
    use crate::numbers;

    /// `nh_res_group_rebalance` of the kernel's net/ipv4/nexthop.c, with its `DIV_ROUND_CLOSEST`.
    fn shares(members: &[Member], buckets: u16) -> Vec<u32> {
        let total: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
        let (mut weight, mut before) = (0, 0);
        let share = |member: &Member| {
            weight += u64::from(member.weight);
            let upper = (u64::from(buckets) * weight + total / 2) / total;
            let wanted = upper - before;
            before = upper;
            wanted as u32
        };
        members.iter().map(share).collect()
    }

    fn config(uplinks: usize, policy: Policy) -> Config {
        let uplink = |index| Uplink {
            device: format!("wan{index}"),
            ..Uplink::default()
        };
        let mut config = Config {
            groups: vec![Group {
                to: Destination::all(false),
                metric: 0,
                pin: false,
                finds_pin: false,
                adopt: None,
                number: 0,
                uplinks: (0..uplinks).map(uplink).collect(),
            }],
            settings: crate::judge::Settings {
                policy,
                ..Default::default()
            },
            mark_mask: 0xff00_0000,
            rule_priority: 1000,
            tcp: false,
        };
        numbers::assign(&mut config, None, &[]);
        config
    }

    /// New flows must not go to an uplink that only stands by.
    #[test]
    fn standbys_get_no_bucket_on_any_kernel() {
        for weight_most in [WEIGHT_MOST_OLD, MAIN] {
            for count in 2..=64 {
                let layout = &of(&config(count, Policy::Calmest), weight_most)[0];
                for main in 0..count {
                    let weights: Vec<u32> = (0..count)
                        .map(|index| if index == main { MAIN } else { STANDBY })
                        .collect();
                    let weighed = layout.ways.iter().map(|way| way.id).zip(weights.iter().copied());
                    let group = layout.group.weighed(weighed).unwrap();
                    let shares = shares(&group.members, group.buckets);
                    let (last, standbys) = shares.split_last().unwrap();
                    assert_eq!(
                        *last,
                        u32::from(group.buckets),
                        "{count} uplinks, weights to {weight_most}"
                    );
                    assert!(standbys.iter().all(|share| *share == 0));
                    assert_eq!(layout.weights(&group.members), weights);
                }
            }
        }
    }

    #[test]
    fn every_uplink_has_a_mark_a_table_and_a_rule_of_its_own() {
        let mut config = config(64, Policy::Calmest);
        config.groups = vec![config.groups[0].clone(); 3];
        (1..)
            .zip(&mut config.groups)
            .for_each(|(metric, group)| group.metric = metric);
        numbers::assign(&mut config, None, &[]);
        let layouts = of(&config, MAIN);
        let ways: Vec<&Way> = layouts.iter().flat_map(|layout| &layout.ways).collect();
        for (index, way) in ways.iter().enumerate() {
            let same = |other: &&&Way| {
                other.rule.mark == way.rule.mark || other.id == way.id || other.rule.priority == way.rule.priority
            };
            assert_eq!(ways.iter().filter(same).count(), 1, "{index}");
            assert_eq!(
                (way.rule.mark & config.mark_mask, way.rule.mark != 0),
                (way.rule.mark, true)
            );
            assert!(layouts.iter().all(|layout| layout.group.id != way.id));
        }
    }
}
