//! The live page of a real agent.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tarn_frame::agent::information;
use tarn_lab::testing::{Program, ticks};
use tarn_lab::topology::{End, Namespace, Node, Topology};

/// What an agent may take more for somebody who looks all the time: a part of a CPU, and memory, in KiB. The program that tests run is
/// larger and slower than the one that is installed: docs/operations.md has the latter's figures.
const CPU_MOST: f64 = 0.015;
const MEMORY_MOST: u64 = 4 << 10;
/// For how long somebody looks, once a second.
const LOOKS: u32 = 30;
/// USER_HZ.
const TICKS: f64 = 100.0;

const ADDRESS: &str = "127.0.0.1:9780";

const CONFIGURATION: &str = "\
[page]
listen = \"127.0.0.1:9780\"
[[redirect.rule]]
protocol = \"udp\"
from = \"10.8.2.1:9100\"
to = \"10.8.2.2:9000\"
[pace]
[[paths.group]]
to = \"default\"
targets = [\"9.9.9.9\"]
[[paths.group.uplink]]
device = \"eth0\"
gateway = \"10.8.2.2\"
[[paths.group.uplink]]
device = \"eth1\"
gateway = \"10.8.3.2\"
";

/// What the page gets.
fn now(host: &Namespace, stage: &str) -> Option<Value> {
    let ask = || {
        let address: SocketAddr = ADDRESS.parse()?;
        let mut connection = TcpStream::connect(address)?;
        write!(connection, "GET /now?stage={stage} HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = host.enter(ask).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// Of a process: what it ran, in s, and the memory that it has, in KiB.
fn taken(process: u32) -> (f64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (
        ticks(process) as f64 / TICKS,
        memory.trim().trim_end_matches(" kB").parse().unwrap(),
    )
}

/// Somebody leaves the page open on a second screen.
#[test]
#[ignore = "needs the lab"]
fn lab_page_costs_an_agent_little_while_somebody_looks() {
    let link = |device: &str, network: u8| {
        let end = |node, host: u8| End::new(node, device).address(&format!("10.8.{network}.{host}/24"));
        (end("host", 1), end("server", 2))
    };
    let (first, second) = (link("eth0", 2), link("eth1", 3));
    let network = Topology::new()
        .node(Node::new("host"))
        .node(Node::new("server"))
        .link(first.0, first.1)
        .link(second.0, second.1)
        .build()
        .unwrap();
    let host = network.namespace("host").unwrap();
    let program = Program::new(host, CONFIGURATION);
    program.run("up");
    let agent = information(&program.state()).unwrap().pid;
    sleep(Duration::from_secs(5));
    let (ran, memory) = taken(agent);
    sleep(Duration::from_secs(u64::from(LOOKS)));
    let idle = taken(agent).0 - ran;
    let end = Instant::now() + Duration::from_secs(10);
    while now(host, "paths").is_none_or(|now| now["opened"]["tables"].as_array().is_none_or(Vec::is_empty)) {
        assert!(Instant::now() < end, "{:?}", now(host, "paths"));
        sleep(Duration::from_millis(100));
    }
    let before = taken(agent).0;
    for _ in 0..LOOKS {
        let shown = now(host, "paths").unwrap();
        assert_eq!(shown["stages"].as_array().unwrap().len(), 6, "{shown}");
        sleep(Duration::from_secs(1));
    }
    let looked_at = taken(agent);
    let added = (looked_at.0 - before - idle) / f64::from(LOOKS);
    let more = looked_at.1.saturating_sub(memory);
    println!("added to the agent: {:.2} % of a CPU, {more} KiB", added * 100.0);
    assert!(added < CPU_MOST, "{added}");
    assert!(more < MEMORY_MOST, "{more} KiB");
    program.run("down");
}
