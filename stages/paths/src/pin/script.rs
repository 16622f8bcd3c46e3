//! The table, as lines for `nft`.

use super::{FAMILY, Pin};
use tarn_base::network::Prefix;
use tarn_kernel::addresses::Address;
use tarn_kernel::nft::MARK;

/// The chains that packets come by: name, and where they hook in.
const BASE: [(&str, &str); 5] = [
    ("prerouting", "type filter hook prerouting priority 300; "),
    ("output", "type route hook output priority mangle; "),
    ("postrouting", "type filter hook postrouting priority mangle; "),
    (RESET[0], "type filter hook forward priority mangle; "),
    (RESET[1], "type filter hook output priority filter; "),
];
/// Those that reset connections, of others and of this host's own, which are there only while there is any uplink to give up.
const RESET: [&str; 2] = ["reset_forward", "reset_output"];
/// New connections from beyond an uplink,
const ARRIVALS: &str = "arrivals";
/// and from an uplink's own address.
const OWN: &str = "own";
/// These need no gateway, whatever addresses a device has.
const LINK_LOCAL: [&str; 2] = ["ip saddr 169.254.0.0/16", "ip6 saddr fe80::/10"];

/// The names of all chains.
pub fn chains(mask: u32, pins: &[Pin]) -> Vec<String> {
    let is_any_given_up = pins.iter().any(|pin| pin.keeps && pin.is_given_up);
    let base = BASE
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| is_any_given_up || !RESET.contains(name))
        .chain([ARRIVALS, OWN])
        .map(str::to_owned);
    base.chain(keeping(pins).flat_map(|pin| [keep(mask, pin), mark(mask, pin), leave(mask, pin)]))
        .collect()
}

fn keeping(pins: &[Pin]) -> impl Iterator<Item = &Pin> {
    pins.iter().filter(|pin| pin.keeps)
}

/// Gives the connection the mark of the uplink.
fn keep(mask: u32, pin: &Pin) -> String {
    format!("keep_{}", pin.mark >> mask.trailing_zeros())
}

/// Gives the packet the mark of the uplink.
fn mark(mask: u32, pin: &Pin) -> String {
    format!("mark_{}", pin.mark >> mask.trailing_zeros())
}

/// Gives a packet of this host's own the mark of the uplink, unless it leaves by that one anyway: the kernel looks up the way of a
/// packet again whose mark has changed.
fn leave(mask: u32, pin: &Pin) -> String {
    format!("leave_{}", pin.mark >> mask.trailing_zeros())
}

/// Lines that make the table, or put it in the place of the one that is there. Carried out together, no packet meets half of it.
pub fn lines(table: &str, mask: u32, pins: &[Pin], addresses: &[Address]) -> Vec<String> {
    let mut lines = vec![format!("add table {FAMILY} {table} {{ comment \"{MARK} paths\"; }}")];
    for chain in chains(mask, pins) {
        let hook = BASE
            .iter()
            .find(|(name, _)| *name == chain)
            .map_or("", |(_, hook)| hook);
        lines.push(format!(
            "add chain {FAMILY} {table} {chain} {{ {hook}comment \"{MARK}\"; }}"
        ));
        lines.push(format!("flush chain {FAMILY} {table} {chain}"));
    }
    let rules = rules(mask, pins, addresses).into_iter();
    lines.extend(rules.map(|(chain, rule)| format!("add rule {FAMILY} {table} {chain} {rule} comment \"{MARK}\"")));
    lines
}

/// Each rule behind its chain's name.
fn rules(mask: u32, pins: &[Pin], addresses: &[Address]) -> Vec<(String, String)> {
    let mut rules = Vec::new();
    let mut add = |chain: &str, rule: String| rules.push((chain.to_owned(), rule));
    let is_marked = format!("ct mark and {mask:#x} != 0 return");
    let restore = |chain: fn(u32, &Pin) -> String| {
        let marks = keeping(pins).map(|pin| format!("{:#x} : goto {}", pin.mark, chain(mask, pin)));
        format!("ct mark and {mask:#x} vmap {{ {} }}", joined(marks))
    };
    let devices = format!(
        "{{ {} }}",
        joined(keeping(pins).map(|pin| format!("\"{}\"", pin.device)))
    );

    // What comes from an uplink goes where its destination is, not back.
    add("prerouting", format!("iifname {devices} goto {ARRIVALS}"));
    add("prerouting", restore(mark));
    // Nothing that this host tells its own networks leaves by an uplink, though it be about a connection that does.
    add("output", format!("oifname != {devices} return"));
    add("output", restore(leave));
    add("postrouting", format!("oifname != {devices} return"));
    add("postrouting", is_marked.clone());
    let given_up = joined(
        keeping(pins)
            .filter(|pin| pin.is_given_up)
            .map(|pin| format!("{:#x}", pin.mark)),
    );
    if !given_up.is_empty() {
        // But for resets: those that are sent here bear the mark of their connection, too.
        let segments = "tcp flags and rst == 0";
        // Who was called cannot begin anew: what comes in by the uplink, an administrator's ssh too, shows that it works.
        let reset =
            format!("ct direction original ct mark and {mask:#x} {{ {given_up} }} {segments} reject with tcp reset");
        // What comes by an uplink shows that it is not dead after all.
        add(RESET[0], format!("iifname {devices} return"));
        RESET.iter().for_each(|chain| add(chain, reset.clone()));
    }
    for pin in pins.iter().filter(|pin| pin.is_known) {
        let leaves = leaves(pin);
        add("output", format!("{leaves} {}", then(pin, OWN)));
        add("postrouting", format!("{leaves} {}", then(pin, &keep(mask, pin))));
    }
    for rule in ["ct direction reply return", &is_marked, "meta pkttype != host return"] {
        add(ARRIVALS, rule.to_owned());
    }
    for network in LINK_LOCAL {
        add(ARRIVALS, format!("{network} return"));
    }
    for Address { device, network, .. } in addresses {
        add(
            ARRIVALS,
            format!("iifname \"{device}\"{} return", side("saddr", network)),
        );
    }
    for pin in pins {
        let arrives = format!("iifname \"{}\" meta nfproto {}", pin.device, family(pin));
        let then = then(pin, &keep(mask, pin));
        add(ARRIVALS, format!("{arrives}{} {then}", side("saddr", &pin.to)));
    }
    for Address { device, address, .. } in addresses {
        let source = side("saddr", &Prefix::of(*address, u8::MAX));
        let is_its = |pin: &&Pin| pin.device == *device && pin.is_ipv6() == address.is_ipv6();
        for pin in pins.iter().filter(is_its) {
            let then = then(pin, &leave(mask, pin));
            add(OWN, format!("{}{} {then}", source.trim_start(), side("daddr", &pin.to)));
        }
    }
    for pin in keeping(pins) {
        let (bits, others) = (pin.mark, !mask);
        let set = |what: &str| format!("{what} mark set {what} mark and {others:#x} or {bits:#x}");
        add(&leave(mask, pin), format!("{} return", leaves(pin)));
        add(&leave(mask, pin), format!("goto {}", mark(mask, pin)));
        add(&keep(mask, pin), set("ct"));
        add(&mark(mask, pin), set("meta"));
    }
    rules
}

/// What becomes of packets by an uplink: connections of a group that does not keep them need no mark.
fn then(pin: &Pin, chain: &str) -> String {
    match pin.keeps {
        true => format!("goto {chain}"),
        false => "return".to_owned(),
    }
}

/// What leaves by an uplink as a group's route has it. What goes to a neighbour has that one's address as its nexthop. The kernel
/// does not tell IPv6 gateways of IPv4 packets (RFC 8950).
fn leaves(pin: &Pin) -> String {
    let gateway = match pin.gateway.filter(|gateway| gateway.is_ipv6() == pin.is_ipv6()) {
        Some(gateway) if pin.is_ipv6() => format!(" rt ip6 nexthop {gateway}"),
        Some(gateway) => format!(" rt ip nexthop {gateway}"),
        None => String::new(),
    };
    let to = side("daddr", &pin.to);
    format!("oifname \"{}\" meta nfproto {}{gateway}{to}", pin.device, family(pin))
}

/// That one side of a packet lies there; nothing of all addresses.
fn side(which: &str, network: &Prefix) -> String {
    let protocol = if network.address.is_ipv6() { "ip6" } else { "ip" };
    match network.length {
        0 => String::new(),
        length => format!(" {protocol} {which} {}/{length}", network.address),
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    let mut parts: Vec<String> = parts.collect();
    parts.sort();
    parts.dedup();
    parts.join(", ")
}

fn family(pin: &Pin) -> &'static str {
    if pin.is_ipv6() { "ipv6" } else { "ipv4" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(number: u32, device: &str, to: &str, gateway: Option<&str>) -> Pin {
        Pin {
            mark: number << 24,
            device: device.to_owned(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            is_known: true,
            to: to.parse().unwrap(),
            keeps: true,
            is_given_up: false,
        }
    }

    /// Every packet of the host would pay for chains that reset nothing.
    #[test]
    fn only_connections_of_an_uplink_that_is_given_up_are_reset() {
        let mut pins = [
            pin(1, "wan0", "default", Some("192.0.2.1")),
            pin(2, "ppp0", "default", None),
        ];
        let resets = |pins: &[Pin]| -> Vec<String> {
            let rules = rules(0xff00_0000, pins, &[]).into_iter();
            let in_it = rules.filter(|(chain, _)| RESET.contains(&chain.as_str()));
            in_it.map(|(_, rule)| rule).collect()
        };
        assert_eq!(resets(&pins), Vec::<String>::new());
        assert!(
            !chains(0xff00_0000, &pins)
                .iter()
                .any(|chain| RESET.contains(&chain.as_str()))
        );
        pins[1].is_given_up = true;
        let reset =
            "ct direction original ct mark and 0xff000000 { 0x2000000 } tcp flags and rst == 0 reject with tcp reset";
        assert_eq!(resets(&pins), ["iifname { \"ppp0\", \"wan0\" } return", reset, reset]);
    }

    #[test]
    fn what_is_under_way_to_a_neighbour_or_marked_already_is_left_as_it_is() {
        let pins = [
            pin(1, "wan0", "default", Some("192.0.2.1")),
            pin(2, "ppp0", "default", None),
            pin(3, "wan0", "::/0", Some("fe80::1")),
        ];
        let address = Address {
            device: "wan0".to_owned(),
            address: "192.0.2.7".parse().unwrap(),
            network: "192.0.2.0/24".parse().unwrap(),
        };
        let rules = rules(0xff00_0000, &pins, &[address]);
        let of = |chain: &str| -> Vec<&str> {
            let in_it = rules.iter().filter(|(name, _)| name == chain);
            in_it.map(|(_, rule)| rule.as_str()).collect()
        };
        assert_eq!(
            of("postrouting"),
            [
                "oifname != { \"ppp0\", \"wan0\" } return",
                "ct mark and 0xff000000 != 0 return",
                "oifname \"wan0\" meta nfproto ipv4 rt ip nexthop 192.0.2.1 goto keep_1",
                "oifname \"ppp0\" meta nfproto ipv4 goto keep_2",
                "oifname \"wan0\" meta nfproto ipv6 rt ip6 nexthop fe80::1 goto keep_3",
            ]
        );
        // An error that the host tells its own network is about a marked connection, too.
        assert_eq!(of("output")[0], "oifname != { \"ppp0\", \"wan0\" } return");
        assert_eq!(of("own"), ["ip saddr 192.0.2.7/32 goto leave_1"]);
        let arrivals = of("arrivals");
        let place = |wanted: &str| arrivals.iter().position(|rule| rule.starts_with(wanted)).unwrap();
        assert!(place("ct direction reply") < place("iifname \"wan0\" meta nfproto"));
        assert!(place("iifname \"wan0\" ip saddr 192.0.2.0/24 return") < place("iifname \"wan0\" meta nfproto"));
        let leaves = "oifname \"ppp0\" meta nfproto ipv4 return";
        assert_eq!(of("leave_2"), [leaves, "goto mark_2"]);
        assert_eq!(of("keep_3"), ["ct mark set ct mark and 0xffffff or 0x3000000"]);
        assert_eq!(of("mark_3"), ["meta mark set meta mark and 0xffffff or 0x3000000"]);
    }

    /// Before a lease, its neighbours would be taken for hosts beyond it.
    #[test]
    fn nothing_is_pinned_to_an_uplink_whose_gateway_is_not_known_yet() {
        let unknown = Pin {
            is_known: false,
            ..pin(1, "wan0", "default", None)
        };
        let rules = rules(0xff00_0000, &[unknown, pin(2, "ppp0", "default", None)], &[]);
        let leads = |to: &str| {
            rules
                .iter()
                .any(|(chain, rule)| chain == "postrouting" && rule.contains(to))
        };
        assert_eq!((leads("keep_1"), leads("keep_2")), (false, true));
    }

    /// A private network that is reached by the same gateway as all else, but whose connections may move.
    #[test]
    fn another_group_keeps_its_own_way() {
        let special = Pin {
            keeps: false,
            ..pin(1, "wan0", "10.0.0.0/8", Some("192.0.2.1"))
        };
        let address = Address {
            device: "wan0".to_owned(),
            address: "192.0.2.7".parse().unwrap(),
            network: "192.0.2.0/24".parse().unwrap(),
        };
        let rules = rules(
            0xff00_0000,
            &[special, pin(3, "wan0", "default", Some("192.0.2.1"))],
            &[address],
        );
        let place = |wanted: &str| rules.iter().position(|(_, rule)| rule == wanted).unwrap();
        assert!(
            place("ip saddr 192.0.2.7/32 ip daddr 10.0.0.0/8 return") < place("ip saddr 192.0.2.7/32 goto leave_3")
        );
        let leaves = "oifname \"wan0\" meta nfproto ipv4 rt ip nexthop 192.0.2.1";
        assert!(place(&format!("{leaves} ip daddr 10.0.0.0/8 return")) < place(&format!("{leaves} goto keep_3")));
        let arrives = "iifname \"wan0\" meta nfproto ipv4";
        assert!(place(&format!("{arrives} ip saddr 10.0.0.0/8 return")) < place(&format!("{arrives} goto keep_3")));
        assert!(!rules.iter().any(|(chain, _)| chain.ends_with("_1")));
    }
}
