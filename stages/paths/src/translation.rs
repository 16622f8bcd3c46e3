//! `pin = "auto"`: whether connections have to stay on the uplink that they began by, because they have its address.

use anyhow::Result;
use serde_json::Value;

use super::STAGE;
use super::config::{Config, Group};
use super::ruleset;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::addresses::{self, Address};
use tarn_kernel::nft;
use tarn_kernel::route::Destination;
use tarn_kernel::sysctl;

/// What rewrites the sender's address; and `xt`, a target of iptables-nft's, which nft does not always name.
const TRANSLATING: [&str; 2] = ["masquerade", "snat"];
/// The tables that iptables-legacy has loaded, which nft does not show.
const LEGACY: [&str; 2] = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];

/// Finds it out for the groups that do not say.
///
/// # Errors
/// A kernel that does not answer.
pub fn resolve(config: &mut Config) -> Result<()> {
    if !config.groups.iter().any(|group| group.finds_pin) {
        return Ok(());
    }
    // Without an answer, connections stay: that breaks none.
    let rules = rules().inspect_err(|error| {
        let text = format!("taken for translated, because nft does not list its rules: {error:#}");
        log_at(Priority::Warning, STAGE, text);
    });
    let addresses = addresses::all()?;
    for group in config.groups.iter_mut().filter(|group| group.finds_pin) {
        let is_ipv6 = group.to.address.is_ipv6();
        let is_translated = rules.as_ref().map_or(true, |rules| is_translated(rules, group));
        group.pin = can_be(group) && (is_translated || has_own_addresses(group, &addresses) && !forwards(is_ipv6));
    }
    Ok(())
}

/// The destinations of those of these groups whose senders' addresses are translated.
///
/// # Errors
/// nft does not list its rules.
pub fn translated(groups: &[Group]) -> Result<Vec<Destination>> {
    let rules = rules()?;
    let found = groups.iter().filter(|group| is_translated(&rules, group));
    Ok(found.map(|group| group.to).collect())
}

fn is_translated(rules: &[Value], group: &Group) -> bool {
    has_legacy_translation(group.to.address.is_ipv6()) || rules.iter().any(|rule| meets(rule, group))
}

/// Whether a group is not pinned, and would be if something were translated.
pub fn may_be_pinned(group: &Group) -> bool {
    group.finds_pin && !group.pin && can_be(group)
}

/// Whether nft's rules, which pin connections, can name the uplinks.
fn can_be(group: &Group) -> bool {
    group.uplinks.iter().all(|uplink| nft::can_name(&uplink.device))
}

/// Groups that were pinned until now stay so: an agent may begin just while a firewall is loaded anew, whose rules are not there
/// for a moment, and every connection would be lost. `before` is what runs.
pub fn keep(groups: &mut [Group], before: &[Group]) {
    for group in groups.iter_mut().filter(|group| may_be_pinned(group)) {
        let is_same = |other: &&Group| (other.to, other.metric) == (group.to, group.metric);
        group.pin = before
            .iter()
            .find(is_same)
            .is_some_and(|before| before.finds_pin && before.pin);
    }
}

/// What is said of a group that does not say itself.
pub fn said(group: &Group) -> String {
    let (to, is_pinned) = (group.to, group.pin);
    match is_pinned {
        true => format!(
            "{to}: connections stay on the uplink that they began by, because they have its address (pin = false: they move)"
        ),
        false => format!(
            "{to}: connections move from uplink to uplink, because nothing translates them (pin = true: they stay)"
        ),
    }
}

/// The rules that translate senders' addresses; none where there is no nft.
fn rules() -> Result<Vec<Value>> {
    let objects = ruleset::objects()?;
    let chains = objects.iter().filter_map(|object| object.get("chain"));
    let nat: Vec<(Value, Value)> = chains
        .filter(|chain| chain["type"] == "nat")
        .map(|chain| (chain["family"].clone(), chain["table"].clone()))
        .collect();
    let is_translating = |rule: &&Value| {
        let is_in_nat = nat.contains(&(rule["family"].clone(), rule["table"].clone()));
        let mut statements = rule["expr"].as_array().into_iter().flatten();
        let translates = |statement: &Value| match statement.get("xt") {
            Some(xt) => xt["type"] == "target",
            None => TRANSLATING.iter().any(|key| statement.get(key).is_some()),
        };
        is_in_nat && statements.any(translates)
    };
    let rules = objects.iter().filter_map(|object| object.get("rule"));
    Ok(rules.filter(is_translating).cloned().collect())
}

/// Whether a rule may meet what leaves by an uplink of the group.
fn meets(rule: &Value, group: &Group) -> bool {
    let (family, protocol) = match group.to.address.is_ipv6() {
        true => ("ip6", "ipv6"),
        false => ("ip", "ipv4"),
    };
    let is_of_family = rule["family"] == "inet" || rule["family"] == family;
    let mut statements = rule["expr"].as_array().into_iter().flatten();
    let allows = |statement: &Value| {
        let Some(condition) = statement.get("match") else {
            return true;
        };
        let (left, right) = (&condition["left"], &condition["right"]);
        let is_negated = condition["op"] == "!=";
        match left["meta"]["key"].as_str() {
            Some("oifname" | "oif") => group
                .uplinks
                .iter()
                .any(|uplink| names(right, &uplink.device) != is_negated),
            Some("nfproto") => (*right == *protocol) != is_negated,
            _ => !["ip", "ip6"]
                .iter()
                .any(|other| *other != family && left["payload"]["protocol"] == **other),
        }
    };
    is_of_family && statements.all(allows)
}

/// Whether a device is meant by what a rule compares with: a name, one with a `*` at its end, or several. A set that has a name may
/// have any.
fn names(right: &Value, device: &str) -> bool {
    match right {
        Value::String(name) if name.starts_with('@') => true,
        Value::String(name) => name == device || name.strip_suffix('*').is_some_and(|start| device.starts_with(start)),
        Value::Array(all) => all.iter().any(|one| names(one, device)),
        other => other.get("set").is_some_and(|set| names(set, device)),
    }
}

/// Whether iptables-legacy has a table for translation. What is in it only its own program can tell.
fn has_legacy_translation(is_ipv6: bool) -> bool {
    let tables = std::fs::read_to_string(LEGACY[usize::from(is_ipv6)]).unwrap_or_default();
    tables.lines().any(|table| table == "nat")
}

/// Whether this host passes on what others send, who have addresses of their own.
fn forwards(is_ipv6: bool) -> bool {
    let name = if is_ipv6 {
        "net.ipv6.conf.all.forwarding"
    } else {
        "net.ipv4.ip_forward"
    };
    sysctl::read(&sysctl::path(name)).is_ok_and(|value| value.trim() != "0")
}

/// Whether uplinks give this host addresses of their own, which its sockets have then. A route that is taken over has used them at
/// once until now.
fn has_own_addresses(group: &Group, addresses: &[Address]) -> bool {
    let is_ipv6 = group.to.address.is_ipv6();
    let has_own = |device: &str| {
        addresses
            .iter()
            .filter(|address| address.is_beyond_link(is_ipv6))
            .any(|address| address.device == device)
    };
    let own = group
        .uplinks
        .iter()
        .filter(|uplink| uplink.is_auto || has_own(&uplink.device));
    group.adopt.is_none() && own.count() >= 2
}

/// Whether uplinks give this host addresses that are good for one of them each, and connections are not pinned: this host forwards, or
/// has got its addresses later.
pub fn has_addresses_apart(group: &Group, addresses: &[Address]) -> bool {
    group.finds_pin && !group.pin && has_own_addresses(group, addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Uplink;
    use serde_json::json;

    fn group(to: &str) -> Group {
        let uplink = |device: &str| Uplink {
            device: device.to_owned(),
            ..Uplink::default()
        };
        Group {
            to: to.parse().unwrap(),
            metric: 0,
            pin: false,
            finds_pin: true,
            number: 0,
            uplinks: vec![uplink("wan0"), uplink("ppp1")],
            adopt: None,
        }
    }

    /// An agent that begins anew with an uplink that nft cannot name would fail to pin, and with it everything else.
    #[test]
    fn what_nft_cannot_name_does_not_stay_pinned() {
        let on_device = |device: &str| {
            let mut group = group("default");
            group.uplinks[0].device = device.to_owned();
            group
        };
        let mut before = group("default");
        before.pin = true;
        for (device, expected) in [("wan0", true), ("wan\"0", false)] {
            let mut groups = [on_device(device)];
            keep(&mut groups, std::slice::from_ref(&before));
            assert_eq!(groups[0].pin, expected, "{device}");
        }
    }

    fn condition(key: &str, op: &str, right: &Value) -> Value {
        json!({"match": {"op": op, "left": {"meta": {"key": key}}, "right": right}})
    }

    /// A rule for containers is no reason, and one that leaves out a single bridge is.
    #[test]
    fn a_rule_meets_uplinks_by_its_device_and_family() {
        let rule = |family: &str, conditions: &[Value]| json!({"family": family, "expr": conditions});
        for (right, op, expected) in [
            (json!("wan0"), "==", true),
            (json!("ppp*"), "==", true),
            (json!({"set": ["eth7", "wan0"]}), "==", true),
            (json!("@outer"), "==", true),
            (json!("eth7"), "==", false),
            (json!("docker0"), "!=", true),
            (json!({"set": ["wan0", "ppp1"]}), "!=", false),
        ] {
            let rule = rule("inet", &[condition("oifname", op, &right)]);
            assert_eq!(meets(&rule, &group("default")), expected, "{op} {right}");
        }
        assert!(meets(&rule("ip", &[]), &group("default")) && !meets(&rule("ip", &[]), &group("::/0")));
        let only_ipv4 = [condition("nfproto", "==", &json!("ipv4"))];
        assert!(
            meets(&rule("inet", &only_ipv4), &group("default")) && !meets(&rule("inet", &only_ipv4), &group("::/0"))
        );
        let from = json!({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.1"}});
        assert!(
            meets(&rule("inet", std::slice::from_ref(&from)), &group("default"))
                && !meets(&rule("inet", std::slice::from_ref(&from)), &group("::/0"))
        );
    }

    #[test]
    fn a_host_has_addresses_of_its_uplinks_when_two_have_one() {
        let address = |device: &str, text: &str| Address {
            device: device.to_owned(),
            address: text.parse().unwrap(),
            network: "192.0.2.0/24".parse().unwrap(),
        };
        let both = [address("wan0", "192.0.2.7"), address("ppp1", "198.51.100.7")];
        assert!(has_own_addresses(&group("default"), &both));
        assert!(!has_own_addresses(&group("default"), &both[..1]));
        assert!(!has_own_addresses(&group("::/0"), &both));
        let mut leased = group("default");
        leased.uplinks[1].is_auto = true;
        assert!(has_own_addresses(&leased, &both[..1]), "its lease comes later");
    }
}
