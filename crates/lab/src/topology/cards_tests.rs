//! A card, or a storm, that is not what it is said to be would make everything wrong that is measured on it.
//!
//! ```text
//!   inside            outside
//!   10.8.0.1 ──────── 10.8.0.2
//!   fd08::1 eth0 eth0 fd08::2
//! ```

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use super::*;
use crate::cards::OF_TESTS;
use crate::load::Ping;

fn network() -> Network {
    let end = |node: &str, number: u8| {
        End::new(node, "eth0")
            .address(&format!("10.8.0.{number}/24"))
            .address(&format!("fd08::{number}/64"))
    };
    Topology::new()
        .node(Node::new("inside"))
        .node(Node::new("outside"))
        .wire(end("inside", 1), end("outside", 2))
        .permanent_neighbours()
        .build()
        .unwrap()
}

fn received(namespace: &Namespace) -> u64 {
    let read = || {
        let table = fs::read_to_string("/proc/thread-self/net/dev")?;
        let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        Ok(line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap())
    };
    namespace.enter(read).unwrap()
}

/// Also in the second network, which gets them back from the first.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_answer_one_another() {
    for _ in 0..2 {
        let network = network();
        for target in ["10.8.0.2", "fd08::2"] {
            let ping = Ping::new(target.parse().unwrap());
            let exchanges = network.namespace("inside").unwrap().enter(|| ping.run()).unwrap();
            assert_eq!((exchanges.answered_count(), exchanges.damaged_count()), (10, 0));
        }
    }
}

/// Each lap brings each frame twice, to the card whose address it has, as long as anybody looks; and to no later network's.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_under_a_storm_receive_what_circles() {
    const FRAMES: u64 = 10;
    let storm = Storm::new().unwrap();
    let lap = OF_TESTS.lap().unwrap();
    for _ in 0..2 {
        let network = network();
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&network.hardware_address(0, 0));
        frame[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
        let [inside, outside] = ["inside", "outside"].map(|node| network.namespace(node).unwrap());
        assert_eq!(received(inside), 0, "what circles for an earlier network");
        storm.begin((0..FRAMES).map(|_| frame.as_slice())).unwrap();
        sleep(Duration::from_millis(10));
        let before = received(inside);
        sleep(1000 * lap);
        let came = received(inside) - before;
        let expected = 1000 * 2 * FRAMES;
        assert!(came.abs_diff(expected) <= expected / 50, "{came} of {expected}");
        assert_eq!(received(outside), 0);
    }
}
