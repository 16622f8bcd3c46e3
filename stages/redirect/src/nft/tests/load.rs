//! Very many rules.

use std::time::Instant;

use super::scene::Scene;
use super::*;
use crate::rule::Address;
use crate::rule::samples::udp;
use tarn_frame::journal::Undone;
use tarn_kernel::nft::delete_table;

/// A host with very many rules comes up, is listed and goes down. `TARN_RULES` sets how many, to measure with more.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_loads_very_many_rules() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:8083"]);
    let count = std::env::var("TARN_RULES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(4_000);
    let (rules, middle) = (many(count), count as usize / 2);
    let timed = |what: &str, work: &dyn Fn()| {
        let start = Instant::now();
        work();
        println!("{what}: {:?}", start.elapsed());
    };
    timed(&format!("up with {count} rules"), &|| scene.up(&rules));
    timed("up again", &|| scene.up(&rules));
    assert_eq!(
        scene.answer("192.168.64.1", &rules[middle].match_text()),
        "server 10.0.1.2:8083"
    );
    timed("one rule added and removed", &|| {
        let one = Rule {
            id: count,
            ..udp("192.168.64.2:1", "10.0.1.2:8083", None)
        };
        scene.change(std::slice::from_ref(&one), &[]);
        assert_eq!(scene.answer("192.168.64.1", "192.168.64.2:1"), "server 10.0.1.2:8083");
        scene.change(&[], &[one]);
    });
    timed("counters read", &|| {
        let counters = scene.counters(&rules);
        assert_eq!((counters[middle].packets, counters[0].packets), (1, 0));
    });
    timed("down", &|| {
        assert_eq!(
            scene.within("host", || delete_table(FAMILY, TABLE).unwrap()),
            Undone::PutBack
        )
    });
}

/// Rules for addresses of 172.16.0.0/12, which the client's default route leads to the host.
fn many(count: u32) -> Vec<Rule> {
    let template = udp("172.16.0.0:8080", "10.0.1.2:8083", None);
    let address = |id: u32| Address::Ip(std::net::Ipv4Addr::from_bits(0xac10_0000 + id).into());
    (0..count)
        .map(|id| Rule {
            id,
            address: address(id),
            ..template.clone()
        })
        .collect()
}
