use std::collections::HashSet;

use super::*;
use crate::rule::samples::udp;
use tarn_base::config::testing;

/// The section as read, or every error, as the user sees them.
fn section(text: &str) -> Result<Config, Vec<String>> {
    testing::section("redirect", text, read)
}

fn errors(text: &str) -> Vec<String> {
    section(text).expect_err("errors")
}

#[test]
fn everything_may_be_left_out() {
    let config = section("[redirect]\n").unwrap();
    let expected = Config {
        mode: Mode::Auto,
        deliver: Deliver::Tc,
        devices: Devices::All,
        max_rules: LIMIT_DEFAULT,
        flows: FLOWS_DEFAULT,
        rules: Vec::new(),
        over_listeners: HashSet::new(),
    };
    assert_eq!(config, expected);
}

#[test]
fn everything_may_be_said() {
    let config = section(
        r#"
        [redirect]
        mode = "bpf"
        deliver = "tc"
        devices = ["eth0", "wan"]
        max_rules = 10
        flows = 2048
        [[redirect.rule]]
        protocol = ["tcp", "udp"]
        from = "192.168.64.2:8080"
        to = "10.0.1.2:8083"
        source = "10.0.0.0/8"
        note = "a note"
        over_listeners = true
        [[redirect.rule]]
        protocol = "udp"
        from = "[::]:53"
        to = "2001:db8::1"
        "#,
    )
    .unwrap();
    assert_eq!((config.mode, config.deliver), (Mode::Bpf, Deliver::Tc));
    assert_eq!(config.devices, Devices::Named(vec!["eth0".into(), "wan".into()]));
    assert_eq!((config.max_rules, config.flows, config.rules.len()), (10, 2048, 3));
    assert!(config.rules.iter().all(|rule| rule.origin == Origin::Config));
    let expected = udp("192.168.64.2:8080", "10.0.1.2:8083", Some("10.0.0.0/8"));
    assert!(config.rules[1].same_effect(&expected));
    assert_eq!(config.rules[1].note.as_deref(), Some("a note"));
    let over: Vec<bool> = config
        .rules
        .iter()
        .map(|rule| config.over_listeners.contains(&rule.matched()))
        .collect();
    assert_eq!(over, [true, true, false]);
}

/// `auto` is what costs least everywhere; what was a choice once is refused with the word to write instead.
#[test]
fn former_choices_are_refused_with_the_present_ones() {
    let config = section("[redirect]\nmode = \"auto\"\ndeliver = \"auto\"\n").unwrap();
    assert_eq!((config.mode, config.deliver), (Mode::Auto, Deliver::Tc));
    let expected = [
        "t:2:8: redirect.mode: `xdp` has another name now, as it does not need XDP; write \"bpf\"",
        "t:3:11: redirect.deliver: `pass` was removed, as routing without tarn was faster; \
         leave this key out, or write \"tc\"",
    ];
    assert_eq!(errors("[redirect]\nmode = \"xdp\"\ndeliver = \"pass\"\n"), expected);
    let mistyped =
        "t:2:8: redirect.mode: `bfp` is not a choice here; did you mean `bpf`? Known here: auto, bpf, nftables";
    assert_eq!(errors("[redirect]\nmode = \"bfp\"\n"), [mistyped]);
}

/// Each mistake is told with its line, column, key and remedy, and all at once.
#[test]
fn every_mistake_is_told_with_its_place() {
    let told = errors(
        "[redirect]\nmode = \"nftables\"\ndeliver = \"tc\"\ndevices = [\"eth0\", \"eth0\", \"a b\"]\nmax_rules = 5000000\n\
         flows = 7\n[[redirect.rule]]\nprotocol = \"sctp\"\nfrom = \"192.0.2.1\"\nto = \"10.0.1.2\"\nsource = \"10.0.0.1/8\"\n",
    );
    let expected = [
        "t:3:11: redirect.deliver: mode = \"nftables\" leaves delivery to the kernel's routing; \
         leave this key out, or choose mode = \"bpf\"",
        "t:4:11: redirect.devices: 'eth0' is named twice; name each device once",
        "t:4:11: redirect.devices: 'a b' cannot be the name of a device; 'ip link' shows those there are",
        "t:5:13: redirect.max_rules: 5000000 is out of range; write 1 to 4194304",
        "t:6:9: redirect.flows: 7 is out of range; write 1024 to 16777216",
        "t:8:12: redirect.rule.protocol: 'sctp' is not a protocol that can be redirected; \
         write \"tcp\", \"udp\" or [\"tcp\", \"udp\"]",
        "t:9:8: redirect.rule.from: '192.0.2.1' has no port; write one, as in 192.0.2.1:53",
        "t:11:10: redirect.rule.source: 10.0.0.1/8 has bits set after the first 8; \
         write 10.0.0.0/8, or 10.0.0.1 for that one address",
    ];
    assert_eq!(told, expected);
}

#[test]
fn rules_that_cannot_stand_together_are_told_with_both_lines() {
    let rule =
        |from: &str, to: &str| format!("[[redirect.rule]]\nprotocol = \"udp\"\nfrom = \"{from}\"\nto = \"{to}\"\n");
    let text =
        rule("192.0.2.1:53", "10.0.1.2") + &rule("192.0.2.1:50-60", "10.0.1.3") + &rule("192.0.2.2:1", "192.0.2.1:53");
    let told = errors(&text);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(
        told[0].starts_with("t:7:8: redirect.rule.from: 192.0.2.1:50-60 is matched by"),
        "{told:#?}"
    );
    assert!(
        told[0].contains("udp 192.0.2.1:53 to 10.0.1.2:53 (line 3) too"),
        "{told:#?}"
    );
    assert!(
        told[1].starts_with("t:12:6: redirect.rule.to: the target 192.0.2.1:53 is the match of"),
        "{told:#?}"
    );
}

#[test]
fn keys_and_types_that_are_not_known_are_refused() {
    let told = errors("[redirect]\nmode = \"fast\"\n[[redirect.rule]]\nprotocol = 6\nform = \"x\"\n");
    assert!(
        told.iter()
            .any(|error| error.contains("fast") && error.contains("nftables")),
        "{told:#?}"
    );
    assert!(told.iter().any(|error| error.contains("protocol")), "{told:#?}");
    assert!(errors("[redirect]\ndevices = []\n")[0].contains("no device is named"));
    assert!(
        errors(
            "[redirect]\nmax_rules = 1\n[[redirect.rule]]\nprotocol = [\"tcp\", \"udp\"]\nfrom = \"192.0.2.1:53\"\n\
         to = \"10.0.1.2\"\n"
        )[0]
        .contains("2 rules are more than max_rules = 1 allows")
    );
}
