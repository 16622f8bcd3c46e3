//! The carrier on a real kernel:
//!
//! ```text
//!   client                    host                        server
//!   192.168.64.1, .130 ── 192.168.64.2   10.0.1.1 ── 10.0.1.2, .3
//!   fd64::1           eth0    fd64::2     fd01::1       fd01::2
//! ```
//!
//! Everyone answers with the name of who was asked and the port: `server 10.0.1.2:8083`.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::carrier::{Carrier, Counters};
use crate::devices::Devices;
use crate::nft::Nftables;
use crate::rule::Rule;
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_lab::topology::{End, Network, Node, Topology};

/// A network, the carrier's state, and servers that end with it.
pub struct Scene {
    pub network: Network,
    directory: tempfile::TempDir,
    pub ended: Arc<AtomicBool>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Scene {
    pub fn new() -> Self {
        let network = Topology::new()
            .node(
                Node::new("client")
                    .route("default", "192.168.64.2")
                    .route("default", "fd64::2"),
            )
            .node(Node::new("host").forwarding())
            .node(
                Node::new("server")
                    .route("default", "10.0.1.1")
                    .route("default", "fd01::1"),
            )
            .link(
                End::new("client", "eth0")
                    .address("192.168.64.1/24")
                    .address("192.168.64.130/24")
                    .address("fd64::1/64"),
                End::new("host", "left")
                    .address("192.168.64.2/24")
                    .address("fd64::2/64"),
            )
            .link(
                End::new("host", "right").address("10.0.1.1/24").address("fd01::1/64"),
                End::new("server", "eth0")
                    .address("10.0.1.2/24")
                    .address("10.0.1.3/24")
                    .address("fd01::2/64"),
            )
            .build()
            .unwrap();
        let scene = Scene {
            network,
            directory: tempfile::tempdir().unwrap(),
            ended: Arc::default(),
        };
        // A link carries packets a moment after it was set up.
        for (from, to) in [("192.168.64.1", "10.0.1.2:1"), ("fd64::1", "[fd01::2]:1")] {
            let client = scene.client("client", from, to);
            client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            while ask(&client) != "[refused]" {}
        }
        scene
    }

    pub fn within<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        self.network.namespace(node).unwrap().enter(|| Ok(work())).unwrap()
    }

    /// Answers on these addresses of a node until the scene ends.
    pub fn serve(&self, node: &'static str, addresses: &[&str]) {
        for address in addresses {
            let address: SocketAddr = address.parse().unwrap();
            let socket = self.within(node, || UdpSocket::bind(address).unwrap());
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let ended = Arc::clone(&self.ended);
            std::thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while !ended.load(Ordering::Relaxed) {
                    if let Ok((_, client)) = socket.recv_from(&mut buffer) {
                        socket.send_to(format!("{node} {address}").as_bytes(), client).unwrap();
                    }
                }
            });
        }
    }

    pub fn state(&self) -> StateDirectory {
        StateDirectory::at(self.directory.path(), "state")
    }

    pub fn carrier(&self) -> Nftables {
        Nftables {
            devices: Devices::All,
            state: self.state(),
        }
    }

    pub fn up(&self, rules: &[Rule]) {
        self.within("host", || {
            let mut journal = Journal::open(&self.state()).unwrap();
            self.carrier().up(&mut journal, rules, &[]).unwrap();
        });
    }

    pub fn change(&self, add: &[Rule], remove: &[Rule]) {
        self.within("host", || self.carrier().change(add, remove).unwrap());
    }

    pub fn counters(&self, rules: &[Rule]) -> Vec<Counters> {
        self.within("host", || self.carrier().counters(rules).unwrap())
    }

    pub fn nft(&self, arguments: &str) -> String {
        self.network
            .namespace("host")
            .unwrap()
            .run("nft", &[arguments])
            .unwrap()
    }

    /// The host's whole ruleset, without what counts.
    pub fn ruleset(&self) -> String {
        self.network
            .namespace("host")
            .unwrap()
            .run("nft", &["--stateless", "list", "ruleset"])
            .unwrap()
    }

    /// A client's socket that hears only who it asks.
    pub fn client(&self, node: &str, from: &str, to: &str) -> UdpSocket {
        self.within(node, || {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        })
    }

    /// Who answers a new client.
    pub fn answer(&self, from: &str, to: &str) -> String {
        ask(&self.client("client", from, to))
    }
}

/// Who answers; a refusal or silence is told in brackets.
pub fn ask(socket: &UdpSocket) -> String {
    let mut buffer = [0; 64];
    match socket.send(b"who?").and_then(|_| socket.recv(&mut buffer)) {
        Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => "[refused]".to_owned(),
        Err(_) => "[silence]".to_owned(),
    }
}

pub fn numbered(rules: Vec<Rule>) -> Vec<Rule> {
    rules
        .into_iter()
        .enumerate()
        .map(|(id, rule)| Rule { id: id as u32, ..rule })
        .collect()
}
