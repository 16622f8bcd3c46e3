//! `tarn up` and `tarn down` that are killed at every step.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::available;
use super::chosen::{control, host, pair, programs};
use tarn_kernel::cgroup;
use tarn_lab::testing::is_thorough;
use tarn_lab::testing::trial::{Subject, kill_down, kill_up};
use tarn_lab::topology::Namespace;

/// So many different states have to have been met at least.
const STATES: usize = 4;

const FOR_ALL: &str = "[pace]\nfor = \"all\"\nexisting = true\n";
const CHOSEN: &str = "[pace]\nfor = [\"192.0.2.0/24\"]\nexisting = true\nfq = [\"eth0\"]\n";

/// A host with a connection to itself, which was there before tarn, and a way to the world.
struct Host {
    host: Namespace,
    connection: [TcpStream; 2],
}

impl Host {
    fn new() -> Self {
        let host = host(&["192.0.2.1/32"]);
        for command in [
            "link add eth0 type ifb",
            "link set eth0 up",
            "address add 10.7.0.1/24 dev eth0",
            "route add default via 10.7.0.2",
        ] {
            host.ip(command).unwrap();
        }
        let connection = pair(&host, "192.0.2.1");
        Self { host, connection }
    }

    fn default(&self) -> String {
        let path = "/proc/sys/net/ipv4/tcp_congestion_control";
        self.host.run("cat", &[path]).unwrap()
    }
}

impl Subject for Host {
    fn host(&self) -> &Namespace {
        &self.host
    }

    fn look(&self) -> BTreeMap<&'static str, String> {
        let root = cgroup::root().unwrap();
        BTreeMap::from([
            ("default", self.default()),
            ("available", available().join(" ")),
            ("queues", self.host.tc("qdisc show dev eth0").unwrap()),
            ("programs", programs(&root).to_string()),
            ("connection", control(&self.connection[0])),
        ])
    }

    fn step(&self) -> String {
        format!("{:?}", self.look())
    }

    /// Bytes go through the connection, both ways.
    fn works(&self, _: bool) {
        let [one, other] = &self.connection;
        for (mut from, mut to) in [(one, other), (other, one)] {
            let mut got = vec![0; 4096];
            from.write_all(&[7; 4096]).unwrap();
            to.read_exact(&mut got).unwrap();
        }
    }
}

/// The lab ends a guest that prints nothing for five minutes of CPU time, and each half takes two or three.
const HALF: &str = "the first half is done";

/// The congestion control, `fq` or a program of a control group would stay on a host whose memory was short when tarn came up.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_survives_an_up_that_is_killed_at_any_step() {
    kill_up(&Host::new(), FOR_ALL, STATES);
    if is_thorough() {
        println!("{HALF}");
        kill_up(&Host::new(), CHOSEN, STATES);
    }
}

/// The same on a host that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_survives_a_down_that_is_killed_at_any_step() {
    kill_down(&Host::new(), CHOSEN, STATES);
    if is_thorough() {
        println!("{HALF}");
        kill_down(&Host::new(), FOR_ALL, STATES);
    }
}
