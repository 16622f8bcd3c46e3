use proptest::prelude::*;

use super::*;
use crate::rule::samples::{any_rule, udp};

fn texts(rule: &Rule) -> Vec<String> {
    elements(rule)
        .map(|element| format!("{} {{ {element} }}", element.place))
        .collect()
}

#[test]
fn a_plain_rule_is_one_lookup() {
    assert_eq!(
        texts(&udp("192.168.64.2:8080", "10.0.1.2:8083", None)),
        [
            "to4 { 17 . 192.168.64.2 . 8080 comment \"tarn 0\" : 10.0.1.2 . 8083 }",
            "count4 { 17 . 192.168.64.2 . 8080 . 10.0.1.2 comment \"tarn 0\" }",
        ]
    );
}

#[test]
fn source_prefix_and_any_address_have_maps_of_their_own() {
    assert_eq!(
        texts(&udp("[::]:53", "[2001:db8::1]", Some("2001:db8:a::/48"))),
        [
            "to6_any_from48 { 17 . 2001:db8:a:: . 53 comment \"tarn 0\" : 2001:db8::1 . 53 }",
            "count6_any_from48 { 17 . 2001:db8:a:: . 53 . 2001:db8::1 comment \"tarn 0\" }",
        ]
    );
}

#[test]
fn ranges_become_blocks_unless_they_shift() {
    let places = |to: &str| -> Vec<String> {
        elements(&udp("192.0.2.1:8000-8100", to, None))
            .map(|e| format!("{} {}", e.place, e.key.port))
            .collect()
    };
    let kept = places("10.0.1.2");
    assert_eq!(
        kept.iter().step_by(2).collect::<Vec<_>>(),
        [
            "keep4_ports64 8000",
            "keep4_ports32 8064",
            "keep4_ports4 8096",
            "to4 8100"
        ]
    );
    assert!(
        places("10.0.1.2:9000")
            .iter()
            .step_by(2)
            .all(|place| place.starts_with("to4"))
    );
    assert_eq!(places("10.0.1.2:9000").len(), 8);
    assert_eq!(places("10.0.1.2:9000-9100").len(), 202);
}

#[test]
fn an_element_of_someone_else_is_told_apart() {
    assert_eq!(
        (id_of("tarn 17"), id_of("tarn"), id_of("17"), id_of("tarnished 1")),
        (Some(17), None, None, None)
    );
}

proptest! {
    /// Each port of a rule is found in exactly one of its blocks, and leads to the right port.
    #[test]
    fn every_port_is_found_once(rule in any_rule()) {
        let steering: Vec<Element> = elements(&rule).filter(|e| e.place.role != Role::Count).collect();
        prop_assert_eq!(2 * steering.len() as u64, element_count(&rule));
        for port in rule.ports.first.saturating_sub(3)..=rule.ports.last.saturating_add(3) {
            let found: Vec<&Element> =
                steering.iter().filter(|e| port & e.place.shape.port_mask() == e.key.port).collect();
            prop_assert_eq!(found.len(), usize::from(rule.ports.contains(port)));
            for element in found {
                let to_port = if element.to_port == 0 { port } else { element.to_port };
                prop_assert_eq!(to_port, rule.target_port(port));
            }
        }
    }

    /// What the kernel gives back is what was given to it.
    #[test]
    fn an_element_survives_the_kernel_s_form(rule in any_rule()) {
        for element in elements(&rule) {
            prop_assert_eq!(Place::named(&element.place.to_string()), Some(element.place));
            let data = element.data();
            let key = element.place.encode(&element.key);
            let again = element.place.decode(&key, &data, rule.id).expect("of this form");
            prop_assert_eq!(again, element);
            let part = again.as_rule();
            prop_assert!(part.ports.first >= rule.ports.first && part.ports.last <= rule.ports.last);
            for length in 0..key.len() - 2 {
                prop_assert!(element.place.decode(&key[..length], &data, 0).is_none() || element.place.role != Role::Count);
            }
        }
    }
}
