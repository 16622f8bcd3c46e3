use proptest::prelude::*;

use super::*;
use crate::rule::samples::{any_rule, rules, udp};

fn mistake(protocols: &[&str], from: &str, to: &str, source: Option<&str>) -> String {
    let written = Written {
        protocols,
        from,
        to,
        source,
        note: None,
    };
    let mistakes = super::rules(&written, Origin::Config).expect_err("a mistake");
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n")
}

fn from_mistake(from: &str) -> String {
    mistake(
        &["udp"],
        from,
        if from.contains('[') {
            "[2001:db8::2]:1"
        } else {
            "10.0.1.2"
        },
        None,
    )
}

fn to_mistake(to: &str) -> String {
    mistake(&["udp"], "192.0.2.1:8000-8100", to, None)
}

fn source_mistake(source: &str) -> String {
    mistake(&["udp"], "192.0.2.1:53", "10.0.1.2", Some(source))
}

#[test]
fn a_rule_says_what_was_written() {
    let rule = udp("192.168.64.2:8080", "10.0.1.2:8083", Some("10.0.0.0/8"));
    assert_eq!(
        rule.to_string(),
        "udp 192.168.64.2:8080 to 10.0.1.2:8083 source 10.0.0.0/8"
    );
    let rule = udp("[::]:53", "[2001:db8::1]:53", None);
    assert_eq!(
        (rule.address, rule.to_string().as_str()),
        (Address::Any(Family::V6), "udp [::]:53 to [2001:db8::1]:53")
    );
    assert_eq!(udp("0.0.0.0:53", "10.0.1.2", None).address, Address::Any(Family::V4));
}

#[test]
fn one_rule_a_protocol() {
    let both = rules(&["tcp", "udp"], "192.0.2.1:53", "10.0.1.2", None);
    assert_eq!(
        both.iter().map(|rule| rule.protocol).collect::<Vec<_>>(),
        [Protocol::Tcp, Protocol::Udp]
    );
}

#[test]
fn ports_are_kept_shifted_or_gathered() {
    assert!(udp("192.0.2.1:8000-8100", "10.0.1.2", None).keeps_port());
    assert_eq!(
        udp("192.0.2.1:8000-8100", "10.0.1.2:9000-9100", None).target_port(8042),
        9042
    );
    assert_eq!(udp("192.0.2.1:8000-8100", "10.0.1.2:53", None).target_port(8042), 53);
    assert_eq!(udp("192.0.2.1:1-65535", "10.0.1.2", None).ports.count(), 65_535);
}

#[test]
fn a_bare_ipv6_target_keeps_the_port() {
    let rule = udp("[2001:db8::1]:53", "2001:db8::2", None);
    assert_eq!(rule.target_text(), "[2001:db8::2]:53");
}

#[test]
fn every_sender_is_no_prefix() {
    assert_eq!(udp("192.0.2.1:53", "10.0.1.2", Some("0.0.0.0/0")).source, None);
    assert_eq!(
        udp("192.0.2.1:53", "10.0.1.2", Some("10.1.2.3"))
            .source
            .map(|prefix| prefix.length),
        Some(32)
    );
}

/// What someone reads who mistyped a match.
#[test]
fn mistakes_in_from() {
    let cases = [
        (
            "192.0.2.1",
            "from: '192.0.2.1' has no port; write one, as in 192.0.2.1:53",
        ),
        (
            "192.0.2.1:0",
            "from: '0' is no port; write 1 to 65535, or a range like 8000-8100",
        ),
        (
            "192.0.2.1:70000",
            "from: '70000' is no port; write 1 to 65535, or a range like 8000-8100",
        ),
        (
            "192.0.2.1:+5",
            "from: '+5' is no port; write 1 to 65535, or a range like 8000-8100",
        ),
        (
            "192.0.2.1:domain",
            "from: 'domain' is no port; write 1 to 65535, or a range like 8000-8100; names are not looked up",
        ),
        ("192.0.2.1:9-5", "from: the range 9-5 runs backwards; write 5-9"),
        (
            "*:53",
            "from: '*:53' names no address; for any address of this host write 0.0.0.0:53 (IPv4) or [::]:53 (IPv6)",
        ),
        (
            "127.0.0.1:53",
            "from: 127.0.0.1 is a loopback address, which no packet from outside can have; \
            name the address that clients speak to, or any of this host: 0.0.0.0:53",
        ),
        (
            "224.0.0.1:53",
            "from: 224.0.0.1 is a multicast address: it has many receivers and cannot be redirected; \
            name the address of one host",
        ),
        (
            "[ff02::1]:53",
            "from: ff02::1 is a multicast address: it has many receivers and cannot be redirected; \
            name the address of one host",
        ),
        (
            "[fe80::1%eth0]:53",
            "from: 'fe80::1%eth0' has a zone ('%eth0'); name a global or unique local (fd00::/8) address",
        ),
        (
            "[2001:db8::1%eth0]:53",
            "from: '2001:db8::1%eth0' has a zone ('%eth0'); rules hold for all interfaces: write 2001:db8::1",
        ),
        (
            "[fe80::1]:53",
            "from: fe80::1 is a link-local address: it means nothing beyond one link and cannot be \
            redirected; name a global or unique local (fd00::/8) address",
        ),
        (
            "[::ffff:192.0.2.1]:53",
            "from: ::ffff:192.0.2.1 is an IPv4 address in IPv6 notation, which no packet carries; \
            write 192.0.2.1",
        ),
        (
            "[2001:db8::1:53",
            "from: '[2001:db8::1:53' is not an address and a port; write it like [2001:db8::1]:53",
        ),
        (
            "[2001:db8::1]53",
            "from: '[2001:db8::1]53' is not an address and a port; write it like [2001:db8::1]:53",
        ),
        (
            "dns:53",
            "from: 'dns' is no IP address; write one like 192.0.2.1 or [2001:db8::1]; names are not looked up",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(from_mistake(text), expected, "{text}");
    }
    assert_eq!(
        from_mistake("2001:db8::1:53"),
        "from: '2001:db8::1:53' has no brackets around its IPv6 address; write [2001:db8::1]:53, or [2001:db8::1:53] if \
         that is all address"
    );
}

/// `2001:db8::2:53` was meant to have a port: not to be taken for an address whose port stays.
#[test]
fn an_ipv6_target_without_brackets_is_not_guessed_at() {
    let remedy = "has no brackets around its IPv6 address; write";
    assert_eq!(
        to_mistake("2001:db8::2:53"),
        format!("to: '2001:db8::2:53' {remedy} [2001:db8::2]:53, or [2001:db8::2:53] if that is all address")
    );
    assert_eq!(
        to_mistake("2001:db8:0:0:0:0:0:2:53"),
        format!("to: '2001:db8:0:0:0:0:0:2:53' {remedy} [2001:db8:0:0:0:0:0:2]:53")
    );
}

#[test]
fn mistakes_in_to() {
    let cases = [
        (
            "127.0.0.1:53",
            "to: 127.0.0.1 is a loopback address, which the kernel accepts from this host alone; \
            let the server listen on an address of the network too, and name that",
        ),
        (
            "0.0.0.0:53",
            "to: 0.0.0.0 is no address to send to; name the server's own address",
        ),
        (
            "255.255.255.255",
            "to: 255.255.255.255 is a broadcast address: it has many receivers and cannot be a target; \
            name the address of one host",
        ),
        (
            "[2001:db8::1]:53",
            "to: 2001:db8::1 is IPv6, but 'from' is IPv4; \
            name an IPv4 address: a redirect does not translate between families",
        ),
        (
            "10.0.1.2:9000-9050",
            "to: 9000-9050 are 51 ports, but 8000-8100 are 101; \
            write 10.0.1.2:9000-9100, or the one port that all go to",
        ),
        (
            "10.0.1.2:65500-65510",
            "to: 65500-65510 are 11 ports, but 8000-8100 are 101; \
            give both 101 ports, or name the one port that all go to",
        ),
        (
            "192.0.2.1",
            "to: 192.0.2.1:8000-8100 is matched by the rule itself; \
            name another address, or ports outside of 'from'",
        ),
        (
            "192.0.2.1:8100",
            "to: 192.0.2.1:8100 is matched by the rule itself; \
            name another address, or ports outside of 'from'",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(to_mistake(text), expected, "{text}");
    }
}

#[test]
fn mistakes_in_source() {
    let cases = [
        (
            "10.0.0.1/8",
            "source: 10.0.0.1/8 has bits set after the first 8; write 10.0.0.0/8, or 10.0.0.1 for that one address",
        ),
        (
            "10.0.0.0/33",
            "source: '/33' is no prefix length of IPv4; write 0 to 32",
        ),
        ("10.0.0.0/", "source: '/' is no prefix length of IPv4; write 0 to 32"),
        (
            "2001:db8::/32",
            "source: 2001:db8::/32 is IPv6, but 'from' is IPv4; name an IPv4 prefix",
        ),
        (
            "224.0.0.0/4",
            "source: 224.0.0.0/4 is multicast, which nobody sends from; name the senders' prefix",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(source_mistake(text), expected, "{text}");
    }
}

#[test]
fn mistakes_in_protocol_and_note() {
    let remedy = "write \"tcp\", \"udp\" or [\"tcp\", \"udp\"]";
    let ends = |protocols| mistake(protocols, "192.0.2.1:53", "10.0.1.2", None);
    assert_eq!(
        ends(&["icmp"]),
        format!("protocol: 'icmp' is not a protocol that can be redirected; {remedy}")
    );
    assert_eq!(
        ends(&["udp", "udp"]),
        format!("protocol: 'udp' is named twice; {remedy}")
    );
    assert_eq!(ends(&[]), format!("protocol: no protocol is named; {remedy}"));
    assert_eq!(ends(&["UDP"]), "protocol: 'UDP' is written in capitals; write udp");
    assert_eq!(
        ends(&["192.0.2.1:53"]),
        "protocol: '192.0.2.1:53' is an address; the protocol comes first: udp ADDRESS:PORT TARGET"
    );
    assert!(note("two\nlines").is_err() && note(&"x".repeat(NOTE_MAX + 1)).is_err() && note("one line").is_ok());
}

/// Someone who got three things wrong is told all three at once.
#[test]
fn all_mistakes_of_a_rule_are_found() {
    assert_eq!(
        mistake(&["sctp"], "192.0.2.1", "127.0.0.1", Some("10.0.0.1/8"))
            .lines()
            .count(),
        4
    );
}

#[test]
fn a_port_of_the_same_address_may_be_moved() {
    assert_eq!(
        udp("192.0.2.1:80", "192.0.2.1:8080", None).to_ports,
        PortRange::single(8080)
    );
}

proptest! {
    /// What `list` shows can be given back to `add`, and what the store writes it can read.
    #[test]
    fn a_rule_survives_being_written(rule in any_rule()) {
        let source = rule.source.map(|source| source.to_string());
        let written = Written {
            protocols: &[rule.protocol.name()], from: &rule.match_text(), to: &rule.target_text(),
            source: source.as_deref(), note: rule.note.as_deref(),
        };
        let mut again = super::rules(&written, rule.origin).expect("readable");
        again[0].id = rule.id;
        prop_assert_eq!(&again, std::slice::from_ref(&rule));
        let json = serde_json::to_string(&rule).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Rule>(&json).expect("a rule"), rule);
    }

    /// No text, however mangled, ends the program.
    #[test]
    fn any_text_is_taken_or_refused(text in "[0-9a-f:.\\[\\]%/*-]{0,24}") {
        let _ = (from(&text), to(&text), source(&text));
    }
}
