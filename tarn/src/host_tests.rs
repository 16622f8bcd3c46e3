//! A host with every stage up, for tests of the whole program.
//!
//! ```text
//!   client                 host                        server
//!   10.8.0.2 eth0 ──────── eth0 10.8.0.1, right ────── eth0 10.8.2.2     (tarn_poll::proof::rig)
//!   192.0.2.1                                          192.0.2.1         both are uplinks: probes are answered
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tarn_lab::load::{Flow, TcpAnswerer, TcpRequests};
use tarn_lab::testing::Program;
use tarn_poll::proof::rig::{HOST, Rig};

/// The sections of all stages, in packet order.
pub const SECTIONS: [&str; 6] = [
    "[poll]\n",
    r#"
[[redirect.rule]]
protocol = "udp"
from = "10.8.0.1:9100"
to = "10.8.2.2:9000"
"#,
    "[reassembly]\n",
    r#"
[classes]
deadline = "40ms"

[[classes.service]]
ports = ["tcp/80"]
protocol = "stream"
limit = 8

[[classes.class]]
name = "gold"
target = 90
networks = ["10.8.0.0/24"]

[[classes.class]]
name = "guest"
target = 50
"#,
    r#"
[pace]
for = "all"
"#,
    r#"
[[paths.group]]
to = "198.51.100.0/24"
targets = ["192.0.2.1"]
uplink = [{ device = "eth0", gateway = "10.8.0.2" }, { device = "right", gateway = "10.8.2.2" }]
"#,
];

/// The network, for a test to make a [`Program`] on its host.
pub fn network() -> Rig {
    let rig = Rig::with_server().unwrap();
    for node in [rig.client().unwrap(), rig.server().unwrap()] {
        node.ip("address add 192.0.2.1/32 dev lo").unwrap();
    }
    rig
}

/// Brings every stage up, waits until the uplinks have been measured, and has the client ask for something.
pub fn up(rig: &Rig) -> Program<'_> {
    let program = Program::new(rig.host().unwrap(), &SECTIONS.concat());
    program.run("up");
    rig.readdress().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let service = SocketAddr::new(IpAddr::V4(HOST), 80);
    let server = TcpAnswerer::start(program.host, service, 64, 64).unwrap();
    let requests = TcpRequests::new(Flow::to(service), 50);
    let answers = rig.client().unwrap().enter(|| requests.run()).unwrap();
    assert_eq!(answers.answered_count(), 50);
    server.stop().unwrap();
    program
}
