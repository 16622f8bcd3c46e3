//! A server with the module, and clients of five classes.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::kmod;

use crate::module::{Counts, Module, Ports, Settings, State, Target};
use tarn_kernel::modules;
use tarn_lab::debug;
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

/// The targets of the thesis, in 1/10000.
pub const TARGETS: [u32; 5] = [9000, 8000, 7000, 6000, 5000];

pub struct Scene {
    pub network: Network,
}

/// An address and port from their text.
pub fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// The service's address.
pub const SERVICE: &str = "10.0.0.100";
pub const PORT: u16 = 80;

/// A client's address, by its class.
pub fn client(class: usize) -> String {
    format!("10.0.0.{}", class + 1)
}

/// Loads the module, which a test before may have left.
pub fn load() {
    modules::load("tarn_classes").unwrap();
}

/// Loads it again. What it needs is loaded since the first time, and no program has to be run to find that out.
pub fn load_again() {
    let file = File::open("/tarn/modules/tarn_classes.ko").unwrap();
    kmod::finit_module(&file, c"", kmod::ModuleInitFlags::empty()).unwrap();
}

pub fn unload() {
    kmod::delete_module(c"tarn_classes", kmod::DeleteModuleFlags::O_NONBLOCK).unwrap();
}

/// Whether times mean something here: a debug kernel takes a good part of the time that the service should have.
pub fn are_measured() -> bool {
    !debug::is_here()
}

/// One of the kernel's counters, by its name in nstat.
pub fn counter(namespace: &Namespace, name: &str) -> u64 {
    let printed = namespace.run("nstat", &["-asz", name]).unwrap();
    let value = printed.lines().last().and_then(|line| line.split_whitespace().nth(1));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {printed}"))
}

/// Reads until what is expected is there, or for five seconds: a packet that was sent may not have come up yet, because a busy
/// kernel leaves it to a thread of its own (ksoftirqd).
pub fn eventually<T>(read: impl Fn() -> T, is_expected: impl Fn(&T) -> bool) -> T {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let found = read();
        if is_expected(&found) || began.elapsed() > Duration::from_secs(5) {
            return found;
        }
        std::thread::sleep(pause);
        // To read may take a program's start, which keeps the guest busy.
        pause = (2 * pause).min(Duration::from_millis(64));
    }
}

/// Five classes with a common deadline, on one port. A request that a test leaves unanswered keeps its place.
pub fn settings(deadline: Duration) -> Settings {
    let target = |target| Target {
        deadline: deadline.as_nanos() as u64,
        target,
        cap: 1024,
    };
    let ports = |protocol: i32| Ports {
        first: PORT,
        last: PORT,
        protocol: protocol as u8,
        padding: [0; 3],
    };
    Settings {
        ports: Some(vec![ports(libc::IPPROTO_UDP), ports(libc::IPPROTO_TCP)]),
        classes: Some(TARGETS.map(target).to_vec()),
        limit: Some(1),
        overdue: Some(Duration::from_secs(3600)),
        ..Settings::default()
    }
}

/// A datagram socket.
pub fn bound(scene: &Scene, node: &str, address: SocketAddr) -> UdpSocket {
    let socket = scene.node(node).enter(|| Ok(UdpSocket::bind(address)?)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// One request is in service and nobody answers it: all others wait, until `answer`.
pub fn occupied(scene: &Scene, service: &UdpSocket) -> impl FnOnce() {
    let first = bound(scene, "clients", at(&client(4), 9));
    first.send_to(b"first", (SERVICE, PORT)).unwrap();
    let service = service.try_clone().unwrap();
    let mut buffer = [0; 16];
    let (_, from) = service.recv_from(&mut buffer).unwrap();
    assert_eq!(scene.state().in_flight, 1);
    move || {
        service.send_to(b"answer", from).unwrap();
        drop(first);
    }
}

impl Scene {
    pub fn new() -> Self {
        load();
        let mut clients = End::new("clients", "eth0");
        for class in 0..5 {
            clients = clients
                .address(&format!("{}/24", client(class)))
                .address(&format!("fd00::{}/64", class + 1));
        }
        let server = End::new("server", "eth0")
            .address("10.0.0.100/24")
            .address("fd00::100/64");
        let topology = Topology::new()
            .node(Node::new("clients"))
            .node(Node::new("server"))
            .link(clients, server);
        let scene = Self {
            network: topology.build().unwrap(),
        };
        scene.classify();
        scene
    }

    pub fn node(&self, name: &str) -> &Namespace {
        self.network.namespace(name).unwrap()
    }

    /// The map that nftables classifies by: the class stands in the packet's priority.
    fn classify(&self) {
        let elements: Vec<String> = (0..5)
            .map(|class| format!("{} : 7461:{class}", client(class)))
            .collect();
        let elements6: Vec<String> = (0..5)
            .map(|class| format!("fd00::{} : 7461:{class}", class + 1))
            .collect();
        let ruleset = format!(
            "table inet classes {{
                map clients4 {{ type ipv4_addr : classid; flags interval; elements = {{ {} }} }}
                map clients6 {{ type ipv6_addr : classid; flags interval; elements = {{ {} }} }}
                chain input {{
                    type filter hook input priority 0;
                    meta priority set ip saddr map @clients4
                    meta priority set ip6 saddr map @clients6
                }}
            }}",
            elements.join(", "),
            elements6.join(", ")
        );
        self.node("server").run("nft", &[&ruleset]).unwrap();
    }

    /// Speaks to the module in the server's namespace.
    pub fn module<T>(&self, speak: impl FnOnce(&mut Module) -> T) -> T {
        let mut module = self
            .node("server")
            .enter(|| Ok(Module::find()?.expect("the module is loaded")))
            .unwrap();
        speak(&mut module)
    }

    pub fn set(&self, settings: &Settings) {
        self.module(|module| module.set(settings)).unwrap();
    }

    pub fn state(&self) -> State {
        self.module(Module::state).unwrap().expect("classes run")
    }

    pub fn counts(&self) -> Vec<Counts> {
        self.state().counts
    }

    /// How many of a class's requests wait: so many, or as many as it comes to.
    pub fn waiting(&self, class: usize, expected: u32) -> u32 {
        eventually(|| self.counts()[class].waiting, |waiting| *waiting == expected)
    }

    /// A class's counts, once so many of its requests have come in.
    pub fn counts_after(&self, class: usize, requests: u64) -> Counts {
        let all_in = |counts: &Counts| counts.requests == requests;
        eventually(|| self.counts()[class], all_in)
    }
}
