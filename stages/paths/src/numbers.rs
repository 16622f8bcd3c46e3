//! Which numbers groups and uplinks have in the kernel: those that they have already, whatever the order of the file, so that
//! marks of connections, rules and tables keep their meaning from one `up` to the next.

use std::collections::HashSet;

use super::config::{Config, Group, UPLINKS_MOST, Uplink, marks};

/// Numbers what is in the file; `before` is what runs, and `held` are numbers of groups that are in neither, and still in the kernel.
pub fn assign(config: &mut Config, before: Option<&Config>, held: &[u32]) {
    let known: &[Group] = before.map_or(&[], |before| &before.groups);
    let same = |group: &Group| {
        known
            .iter()
            .find(|old| (old.to, old.metric) == (group.to, group.metric))
    };
    let matched: Vec<Option<&Group>> = config.groups.iter().map(same).collect();

    let others = known.iter().map(|old| old.number).chain(held.iter().copied());
    let groups = config.groups.iter_mut().zip(&matched);
    number(
        groups.map(|(group, old)| (&mut group.number, old.map(|old| old.number))),
        others,
        u32::MAX,
    );
    for (group, old) in config.groups.iter_mut().zip(&matched) {
        let others = old.iter().flat_map(|old| &old.uplinks).map(|uplink| uplink.number);
        let uplinks = group.uplinks.iter_mut().map(|uplink| {
            let old = same_device(*old, uplink).map(|old| old.number);
            (&mut uplink.number, old)
        });
        number(uplinks, others, UPLINKS_MOST as u32);
    }
    let others = known.iter().flat_map(|old| &old.uplinks).map(|uplink| uplink.serial);
    let uplinks = config.groups.iter_mut().zip(&matched).flat_map(|(group, old)| {
        group.uplinks.iter_mut().map(|uplink| {
            let old = same_device(*old, uplink).map(|old| old.serial);
            (&mut uplink.serial, old)
        })
    });
    number(uplinks, others, marks(config.mark_mask));
}

fn same_device<'a>(old: Option<&'a Group>, uplink: &Uplink) -> Option<&'a Uplink> {
    old?.uplinks.iter().find(|other| other.device == uplink.device)
}

/// Gives each a number: its old one, or a new one below `limit`, one that nobody had before if there is any.
fn number<'a>(each: impl Iterator<Item = (&'a mut u32, Option<u32>)>, before: impl Iterator<Item = u32>, limit: u32) {
    let before: HashSet<u32> = before.collect();
    let each: Vec<(&mut u32, Option<u32>)> = each.collect();
    let mut taken: HashSet<u32> = each.iter().filter_map(|(_, old)| *old).collect();
    for (number, old) in each {
        let fresh = || (0..limit).find(|number| !taken.contains(number) && !before.contains(number));
        *number = old
            .or_else(fresh)
            .or_else(|| (0..limit).find(|number| !taken.contains(number)))
            .unwrap_or(0);
        taken.insert(*number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Settings;

    fn config(groups: &[(&str, &[&str])]) -> Config {
        let uplink = |device: &&str| Uplink {
            device: (*device).to_owned(),
            ..Uplink::default()
        };
        let group = |(to, devices): &(&str, &[&str])| Group {
            to: to.parse().unwrap(),
            metric: 0,
            pin: false,
            finds_pin: false,
            adopt: None,
            number: 0,
            uplinks: devices.iter().map(uplink).collect(),
        };
        Config {
            groups: groups.iter().map(group).collect(),
            settings: Settings::default(),
            mark_mask: 0xff00_0000,
            rule_priority: 1000,
            tcp: false,
        }
    }

    /// The number of each group; the name, number and serial of each uplink.
    fn shown(config: &Config) -> Vec<String> {
        let uplink = |uplink: &Uplink| format!(" {} {} {}", uplink.device, uplink.number, uplink.serial);
        let uplinks = |group: &Group| group.uplinks.iter().map(uplink).collect::<Vec<_>>().join(",");
        let groups = config.groups.iter();
        groups
            .map(|group| format!("{}:{}", group.number, uplinks(group)))
            .collect()
    }

    #[test]
    fn what_is_up_keeps_its_numbers() {
        let mut before = config(&[("default", &["a", "b"]), ("::/0", &["a", "b"])]);
        assign(&mut before, None, &[]);
        assert_eq!(shown(&before), ["0: a 0 0, b 1 1", "1: a 0 2, b 1 3"]);
        let mut after = config(&[
            ("10.0.0.0/8", &["b", "c"]),
            ("::/0", &["b", "a"]),
            ("default", &["c", "b"]),
        ]);
        assign(&mut after, Some(&before), &[]);
        let expected = ["2: b 0 4, c 1 5", "1: b 1 3, a 0 2", "0: c 2 6, b 1 1"];
        assert_eq!(shown(&after), expected);
    }

    /// A route that could not be put back yet goes by the nexthops of a group that is in no file: another group's uplinks under its
    /// number would get its packets.
    #[test]
    fn a_number_that_is_still_in_the_kernel_is_nobody_else_s() {
        let mut after = config(&[("10.0.0.0/8", &["a"]), ("::/0", &["a"])]);
        assign(&mut after, None, &[0]);
        assert_eq!(shown(&after), ["1: a 0 0", "2: a 0 1"]);
    }

    /// A small mask has no marks to spare: then what has gone makes room.
    #[test]
    fn there_is_a_mark_for_everybody_as_long_as_they_suffice() {
        let mut before = config(&[("default", &["a", "b", "c"])]);
        before.mark_mask = 3;
        assign(&mut before, None, &[]);
        let mut after = config(&[("default", &["c", "d", "b"])]);
        after.mark_mask = 3;
        assign(&mut after, Some(&before), &[]);
        assert_eq!(shown(&after), ["0: c 2 2, d 3 0, b 1 1"]);
    }
}
