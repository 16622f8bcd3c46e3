//! What a user would lose if a mistake were accepted, or told in the wrong place.

use std::time::Duration;

use super::*;
use crate::judge::{Measure, Policy, RATE_MOST};
use tarn_base::config::testing;

const GROUP: &str = r#"
[[paths.group]]
to = "default"
targets = ["192.0.2.53"]
[[paths.group.uplink]]
device = "wan0"
gateway = "192.0.2.1"
[[paths.group.uplink]]
device = "wan1"
cost = 150
targets = ["198.51.100.1", "198.51.100.2"]
"#;

fn section(text: &str) -> Result<Config, Vec<String>> {
    testing::section("paths", text, read)
}

fn wrong(from: &str, to: &str) -> String {
    assert!(GROUP.contains(from));
    section(&GROUP.replace(from, to)).unwrap_err().join("\n")
}

#[test]
fn little_has_to_be_said() {
    let config = section(GROUP).unwrap();
    assert_eq!(config.settings, Settings::default());
    let [one, two] = &config.groups[0].uplinks[..] else {
        panic!("{config:?}")
    };
    assert_eq!((one.cost, one.targets.len()), (100, 1));
    assert_eq!((two.gateway, two.cost, two.targets.len()), (None, 150, 2));
}

#[test]
fn everything_can_be_said() {
    let settings = "[paths]\npolicy = \"proportional\"\nmeasure = \"load\"\nload_gain = 1024\nrate = 5\nmemory = \"1m\"\nmargin = 20\nhold = \"1s\"\nstay = \"0ms\"\n\
                    back_after = \"30s\"\ntimeout = \"500ms\"\nmark_mask = 0x00ff0000\nrule_priority = 500\ntcp = true\n";
    let config = section(&format!("{settings}{GROUP}")).unwrap();
    assert_eq!(
        (config.settings.policy, config.settings.rate),
        (Policy::Proportional, Some(5))
    );
    assert_eq!((config.settings.measure, config.settings.gain), (Measure::Load, 1024));
    assert_eq!(config.settings.memory, Duration::from_secs(60));
    assert_eq!(
        (
            config.settings.margin,
            config.mark_mask,
            config.rule_priority,
            config.tcp
        ),
        (0.2, 0x00ff_0000, 500, true)
    );
    let written = serde_json::to_string(&config).unwrap();
    assert_eq!(
        serde_json::from_str::<Config>(&written).unwrap(),
        config,
        "what is up is remembered"
    );
}

#[test]
fn mistakes_are_told_with_their_place_and_what_would_be_right() {
    for (from, to, expected) in [
        (
            "\"default\"",
            "\"internet\"",
            "t:3:6: paths.group.to: 'internet' is no destination; write default",
        ),
        ("\"default\"", "\"10.0.0.1/8\"", "bits set after the first 8"),
        ("\"default\"", "\"::/0\"", "192.0.2.1 cannot lead to ::/0"),
        (
            "\"192.0.2.53\"",
            "\"one.one.one.one\"",
            "t:4:12: paths.group.targets: 'one.one.one.one' is no target; write an address, or udp:",
        ),
        ("\"192.0.2.53\"", "\"udp:192.0.2.53\"", "'udp:192.0.2.53' is no target"),
        (
            "\"192.0.2.53\"",
            "\"udp:[2001:db8::1]:53\"",
            "udp:[2001:db8::1]:53 is not of the family of default",
        ),
        (
            "\"192.0.2.1\"",
            "\"dhcp\"",
            "write the address of the router behind the device, or auto",
        ),
        (
            "cost = 150",
            "onlink = true",
            "paths.group.uplink.onlink: onlink is about a gateway",
        ),
        (
            "to = \"default\"",
            "to = \"default\"\nadopt = true",
            "paths.group.uplink.gateway: the route that is taken over names the gateways",
        ),
        ("\"192.0.2.53\"", "\"2001:db8::1\"", "is not of the family of default"),
        ("\"198.51.100.2\"", "\"198.51.100.1\"", "is named twice"),
        ("\"wan1\"", "\"wan0\"", "paths.group.uplink.device: wan0 is named twice"),
        ("\"wan1\"", "\"lo\"", "lo leads nowhere but to this host"),
        (
            "\"192.0.2.53\"",
            "\"127.0.0.1\"",
            "127.0.0.1 is this host itself; name a host beyond",
        ),
        (
            "\"192.0.2.53\"",
            "\"udp:224.0.0.1:53\"",
            "udp:224.0.0.1:53 is a multicast group",
        ),
        ("\"192.0.2.53\"", "\"0.0.0.0\"", "0.0.0.0 is no host"),
        (
            "\"192.0.2.53\"",
            "\"192.0.2.1\"",
            "192.0.2.1 is the gateway of wan0, which answers while",
        ),
        ("\"wan1\"", "\"a/b\"", "'a/b' cannot be the name of a device"),
        (
            "cost = 150",
            "cost = 0",
            "paths.group.uplink.cost: 0 is out of range; write 1 to 10000",
        ),
        ("cost = 150", "costs = 150", "costs"),
    ] {
        let told = wrong(from, to);
        assert!(told.contains(expected), "{to}: {told}");
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    for line in [
        "rate = 0",
        "rate = 101",
        "memory = \"0ms\"",
        "margin = 91",
        "timeout = \"20ms\"",
        "back_after = \"2h\"",
        "mark_mask = 0",
        "mark_mask = 0x101",
        "mark_mask = -1",
        "rule_priority = 0",
        "policy = \"fastest\"",
    ] {
        assert!(section(&format!("[paths]\n{line}\n{GROUP}")).is_err(), "{line}");
    }
    assert!(section(&format!("[paths]\nmark_mask = 0xffffffff\n{GROUP}")).is_ok());
}

/// A host with many uplinks and targets would do nothing but probe, and flood whoever is asked.
#[test]
fn probes_are_bounded_in_all() {
    let group = |metric: u32| {
        let uplinks = (0..64).map(|number| format!("[[paths.group.uplink]]\ndevice = \"wan{number}\"\n"));
        let targets = "targets = [\"192.0.2.53\", \"192.0.2.54\"]";
        let head = format!("[[paths.group]]\nto = \"default\"\nmetric = {metric}\n{targets}\n");
        head + &uplinks.collect::<String>()
    };
    let many = format!("{}{}", group(1), group(2));
    assert!(section(&many).is_ok(), "by default, few are sent");
    let at_20 = format!("[paths]\nrate = 20\n{many}");
    let told = section(&at_20).unwrap_err().join("\n");
    let expected = "paths.rate: 256 targets of uplinks, each asked 20 times a second, are more than 5000 probes a second; set rate to at \
                    most 19, or name fewer targets";
    assert!(told.contains(expected), "{told}");
    for (text, most) in [
        (format!("[paths]\nrate = 19\n{many}"), 19),
        (group(1), 39),
        (GROUP.to_owned(), RATE_MOST),
    ] {
        let mut config = section(&text).unwrap();
        config.bound_probes().unwrap();
        assert_eq!(config.settings.rate_most, most);
    }
}

#[test]
fn one_uplink_is_no_choice_and_marks_have_to_suffice() {
    let one = GROUP.split("[[paths.group.uplink]]\ndevice = \"wan1\"").next().unwrap();
    assert!(section(one).unwrap_err()[0].contains("nothing to choose from"));
    let told = section(&format!("[paths]\nmark_mask = 1\n{GROUP}"))
        .unwrap_err()
        .join("\n");
    assert!(told.contains("2 uplinks need more marks than the 1"), "{told}");
    let twice = format!("{GROUP}{GROUP}");
    assert!(section(&twice).unwrap_err()[0].contains("already"));
    assert!(
        section(&format!(
            "{GROUP}{}",
            GROUP.replace("to = \"default\"", "to = \"default\"\nmetric = 5")
        ))
        .is_ok()
    );
}

#[test]
fn a_route_that_is_taken_over_names_its_uplinks_itself() {
    let adopt = |to: &str, rest: &str| format!("[[paths.group]]\nto = \"{to}\"\nadopt = true\n{rest}");
    let config = section(&format!("{}{}", adopt("default", ""), adopt("::/0", "metric = 0\n"))).unwrap();
    let metrics = config.groups.iter().map(|group| group.adopt.as_ref().unwrap().metric);
    // What IPv6 makes of 0.
    assert_eq!(metrics.collect::<Vec<_>>(), [None, Some(1024)]);
    let uplink = "[[paths.group.uplink]]\ndevice = \"wan1\"\ncost = 200\n";
    let config = section(&adopt("default", uplink)).unwrap();
    assert_eq!(
        (config.groups[0].uplinks.len(), config.groups[0].uplinks[0].cost),
        (1, 200)
    );
    // Only the kernel knows whether these are one and the same.
    assert!(section(&format!("{GROUP}{}", adopt("default", ""))).is_ok());
    assert!(section(&format!("{GROUP}{}", adopt("default", "metric = 0\n"))).is_err());
    let missing = section("[[paths.group]]\nto = \"default\"\n").unwrap_err().join("\n");
    assert!(missing.contains("nothing to choose from"), "{missing}");
}

#[test]
fn a_gateway_may_be_somebody_else_s_to_find_out() {
    let config = section(&GROUP.replace("gateway = \"192.0.2.1\"", "gateway = \"auto\"\nonlink = true")).unwrap();
    let uplink = &config.groups[0].uplinks[0];
    assert_eq!((uplink.gateway, uplink.is_auto, uplink.is_onlink), (None, true, true));
}

/// Clients with another provider's addresses would be sent where these are dropped.
#[test]
fn a_prefix_belongs_to_one_uplink() {
    let with = |one: &str, other: &str| {
        let uplink = |number: u8, prefixes: &str| {
            format!("[[paths.group.uplink]]\ndevice = \"wan{number}\"\nprefixes = [{prefixes}]\n")
        };
        let text = format!("[[paths.group]]\nto = \"::/0\"\n{}{}", uplink(0, one), uplink(1, other));
        section(&text).map(|config| config.groups[0].uplinks[1].prefixes.len())
    };
    assert_eq!(with("", "\"2001:db8:b::/56\", \"2001:db8:c::/56\""), Ok(2));
    for (one, other, expected) in [
        (
            "\"2001:db8::/48\"",
            "\"2001:db8:0:1::/64\"",
            "2001:db8:0:1::/64 overlaps 2001:db8::/48",
        ),
        (
            "\"2001:db8:0:1::/64\"",
            "\"2001:db8::/48\"",
            "2001:db8::/48 overlaps 2001:db8:0:1::/64",
        ),
        ("\"10.0.0.0/8\"", "", "10.0.0.0/8 is not of the family of ::/0"),
        ("\"::/0\"", "", "::/0 is every address"),
        ("\"2001:db8::1\"", "", "'2001:db8::1' is no destination"),
    ] {
        let told = with(one, other).unwrap_err().join("\n");
        assert!(told.contains(expected), "{told}");
    }
}
