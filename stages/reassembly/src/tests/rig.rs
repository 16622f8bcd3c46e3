//! A sender that puts fragments on the wire, and a receiver with the module.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::mem::{size_of_val, zeroed};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::kmod;

use super::packet::{self, Ip};
use super::wire::{self, Wire};
use crate::module::tests::SETTINGS;
use crate::module::{Counts, Held, Module, Settings};
use tarn_kernel::modules;
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

/// A family, with the addresses of both ends; both have two.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub sender: &'static str,
    pub other_sender: &'static str,
    pub receiver: &'static str,
    pub other_receiver: &'static str,
    pub is_second: bool,
}

pub const IPV4: Family = Family {
    sender: "10.0.0.1",
    other_sender: "10.0.0.3",
    receiver: "10.0.0.2",
    other_receiver: "10.0.0.4",
    is_second: false,
};
pub const IPV6: Family = Family {
    sender: "fd00::1",
    other_sender: "fd00::3",
    receiver: "fd00::2",
    other_receiver: "fd00::4",
    is_second: true,
};
pub const FAMILIES: [Family; 2] = [IPV4, IPV6];

pub const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
pub const RECEIVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The ports of both ends.
pub const FROM: u16 = 1000;
pub const TO: u16 = 2000;
/// Where the datagram arrives that is behind all others.
const MARK: u16 = 2001;

/// Datagrams of which the stack may hold fragments when the module begins are left to it for so long.
pub const GRACE: Duration = Duration::from_millis(1100);
/// As long as anything takes that happens at all.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// An address and port from their text.
pub fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

impl Family {
    pub fn name(self) -> &'static str {
        if self.is_second { "IPv6" } else { "IPv4" }
    }

    /// The header of a datagram from the sender to the receiver.
    pub fn ip(self) -> Ip {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        Ip::between(address(self.sender), address(self.receiver))
    }

    /// What that carries.
    pub fn udp(self, payload: &[u8]) -> Vec<u8> {
        packet::udp(at(self.sender, FROM), at(self.receiver, TO), payload)
    }
}

/// Loads the module, which a test before may have left.
pub fn load() {
    modules::load("tarn_reassembly").unwrap();
}

/// Loads it again. What it needs is loaded since the first time, and no program has to be run to find that out.
pub fn load_again() {
    let file = File::open("/tarn/modules/tarn_reassembly.ko").unwrap();
    kmod::finit_module(&file, c"", kmod::ModuleInitFlags::empty()).unwrap();
}

pub fn unload() {
    kmod::delete_module(c"tarn_reassembly", kmod::DeleteModuleFlags::O_NONBLOCK).unwrap();
}

/// The module as seen from a namespace.
pub fn module_of(namespace: &Namespace) -> Module {
    namespace
        .enter(|| Ok(Module::find()?.expect("the module is loaded")))
        .unwrap()
}

/// The module at work in a namespace, where nothing is left to the stack any more.
pub fn begin(namespace: &Namespace, settings: &Settings) -> Module {
    load();
    let mut module = module_of(namespace);
    module.set(settings).unwrap();
    std::thread::sleep(GRACE);
    module
}

/// One of the kernel's counters, by its name in /proc/net/snmp (`IpReasmOKs`), netstat (`IpExtReasmOverlaps`) or snmp6 (`Ip6ReasmOKs`).
pub fn counter(namespace: &Namespace, name: &str) -> u64 {
    let read = || {
        let mut old = fs::read_to_string("/proc/thread-self/net/snmp")?;
        old += &fs::read_to_string("/proc/thread-self/net/netstat")?;
        Ok((old, fs::read_to_string("/proc/thread-self/net/snmp6")?))
    };
    let (snmp, snmp6) = namespace.enter(read).unwrap();
    let lines: Vec<&str> = snmp.lines().collect();
    let of_snmp = lines.chunks(2).find_map(|pair| {
        let (group, names) = pair[0].split_once(": ")?;
        let (_, values) = pair[1].split_once(": ")?;
        let index = names.split(' ').position(|found| format!("{group}{found}") == name)?;
        values.split(' ').nth(index)
    });
    let of_snmp6 = snmp6.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next())?
    });
    let value = of_snmp
        .or(of_snmp6)
        .unwrap_or_else(|| panic!("there is no counter {name}"));
    value.parse().unwrap()
}

/// A datagram socket of a namespace, which does not wait, and has room for many.
pub fn bound(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    let socket = namespace.enter(|| Ok(UdpSocket::bind(address)?)).unwrap();
    ready(&socket);
    socket
}

/// A socket of a namespace that gets what a protocol carries; with the header, where that is IPv4.
pub fn raw(namespace: &Namespace, family: Family, protocol: u8) -> UdpSocket {
    let family = if family.is_second {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let open = || {
        // SAFETY: no pointers; the descriptor returned is ours.
        let socket = unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol)) };
        if socket < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(UdpSocket::from(unsafe { OwnedFd::from_raw_fd(socket) }))
    };
    let socket = namespace.enter(open).unwrap();
    ready(&socket);
    socket
}

fn ready(socket: &UdpSocket) {
    wire::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20).unwrap();
    socket.set_nonblocking(true).unwrap();
}

/// What a socket has got; `None` when there is nothing.
pub fn taken(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 66_000];
    match socket.recv(&mut buffer) {
        Ok(length) => Some(buffer[..length].to_vec()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// The same, with the type of service or traffic class that it came with.
pub fn taken_with_service(socket: &UdpSocket) -> Option<(Vec<u8>, u8)> {
    let (mut buffer, mut control) = (vec![0_u8; 66_000], [0_u64; 16]);
    // SAFETY: all-zero structures of these types are valid. Every pointer is to memory that outlives the call, with its true length;
    // control messages are read by the macros that the interface has for it. Both kinds begin with the byte that is meant, on
    // the little-endian machines that tarn is for.
    unsafe {
        let mut vector = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let length = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
        buffer.truncate(usize::try_from(length).ok()?);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null(), "no control message");
        Some((buffer, *libc::CMSG_DATA(header)))
    }
}

/// Reads until what is expected is there, or for a while.
pub fn eventually<T>(mut read: impl FnMut() -> T, is_expected: impl Fn(&T) -> bool) -> T {
    let began = Instant::now();
    loop {
        let found = read();
        if is_expected(&found) || began.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What was counted, by its name in `uapi.h`, without zeros.
pub type Counted = Vec<(&'static str, u64)>;

/// What was counted after `before`.
pub fn since(before: &Counts, now: &Counts) -> Counted {
    macro_rules! differences {
        ($($name:ident)*) => { [$((stringify!($name), now.$name - before.$name)),*] };
    }
    let all = differences!(
        fragments passed duplicates no_memory completed timeout evicted_share evicted_stranger evicted_age overlap bad_end
        bad_length reused ecn security allocation stopped
    );
    assert_eq!(size_of_val(&all) / 24 * 8, size_of::<Counts>(), "every count is listed");
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Both ends.
///
/// ```text
///   sender                                          receiver (tarn_reassembly)
///   10.0.0.1, .3; fd00::1, ::3 ─── eth0 ─ eth0 ─── 10.0.0.2, .4; fd00::2, ::4
/// ```
pub struct Rig {
    pub network: Network,
    pub wire: Wire,
    sockets: [UdpSocket; 2],
    mark: UdpSocket,
    module: RefCell<Module>,
    counts: [Cell<Counts>; 2],
    identification: Cell<u32>,
}

impl Rig {
    /// With the settings of a stock kernel.
    pub fn new() -> Self {
        Self::with(&SETTINGS)
    }

    pub fn with(settings: &Settings) -> Self {
        let network = network();
        let receiver = network.namespace("receiver").unwrap();
        let rig = Self {
            wire: Wire::open(network.namespace("sender").unwrap(), "eth0", libc::ETH_P_ALL),
            sockets: FAMILIES.map(|family| bound(receiver, at(family.receiver, TO))),
            mark: bound(receiver, at(IPV4.receiver, MARK)),
            module: RefCell::new(begin(receiver, settings)),
            counts: Default::default(),
            identification: Cell::new(0x1000),
            network,
        };
        rig.mark.set_nonblocking(false).unwrap();
        rig.mark.set_read_timeout(Some(PATIENCE)).unwrap();
        rig
    }

    /// Begins anew, with a module that was loaded since.
    pub fn begin_anew(&self) {
        self.module.replace(begin(self.receiver(), &SETTINGS));
        self.counts.iter().for_each(|counts| counts.set(Counts::default()));
    }

    pub fn sender(&self) -> &Namespace {
        self.network.namespace("sender").unwrap()
    }

    pub fn receiver(&self) -> &Namespace {
        self.network.namespace("receiver").unwrap()
    }

    /// Speaks to the module in the receiver's namespace.
    pub fn module<T>(&self, speak: impl FnOnce(&mut Module) -> T) -> T {
        speak(&mut self.module.borrow_mut())
    }

    /// The header of a datagram whose identifier no other has.
    pub fn ip(&self, family: Family) -> Ip {
        self.identification.set(self.identification.get() + 1);
        Ip {
            identification: self.identification.get(),
            ..family.ip()
        }
    }

    /// Puts a packet on the wire.
    pub fn send(&self, packet: &[u8]) {
        self.wire.send(&packet::frame(RECEIVER_MAC, SENDER_MAC, packet));
    }

    pub fn send_all(&self, packets: &[Vec<u8>]) {
        packets.iter().for_each(|packet| self.send(packet));
    }

    /// Waits until all that was sent has arrived.
    pub fn settle(&self) {
        let mark = packet::udp(at(IPV4.sender, FROM), at(IPV4.receiver, MARK), b"mark");
        self.send(&IPV4.ip().packet(&mark));
        self.mark.recv(&mut [0; 16]).expect("the mark arrives");
    }

    /// The receiver's socket.
    pub fn socket(&self, family: Family) -> &UdpSocket {
        &self.sockets[usize::from(family.is_second)]
    }

    /// What the receiver's socket has got; `None` when there is nothing.
    pub fn received(&self, family: Family) -> Option<Vec<u8>> {
        self.settle();
        taken(self.socket(family))
    }

    /// The receiver gets a datagram, and no other.
    pub fn expect(&self, family: Family, payload: &[u8], what: &str) {
        let received = self.received(family);
        let length = received.as_ref().map(Vec::len);
        assert!(
            received.as_deref() == Some(payload),
            "{}, {what}: {length:?} of {} bytes; {:?}",
            family.name(),
            payload.len(),
            self.counted(family)
        );
        self.expect_nothing(family, what);
    }

    /// The receiver gets a datagram while nothing is counted.
    pub fn expect_by_stack(&self, family: Family, payload: &[u8]) {
        let received = self.received(family);
        assert!(received.as_deref() == Some(payload), "{}", family.name());
    }

    pub fn expect_nothing(&self, family: Family, what: &str) {
        let length = self.received(family).map(|payload| payload.len());
        assert_eq!(length, None, "{}, {what}", family.name());
    }

    /// What was counted since the last call.
    pub fn counted(&self, family: Family) -> Counted {
        self.settle();
        let state = self.module(Module::state).unwrap().expect("it runs");
        let now = if family.is_second { state.ipv6 } else { state.ipv4 };
        since(&self.counts[usize::from(family.is_second)].replace(now), &now)
    }

    /// What is held now.
    pub fn held(&self) -> Held {
        self.settle();
        self.module(Module::state).unwrap().expect("it runs").held
    }

    /// Nothing is held, and nothing is accounted for.
    pub fn expect_empty(&self) {
        let held = self.held();
        assert_eq!(
            (held.memory, held.strangers, held.datagrams, held.sources),
            (0, 0, 0, 0),
            "{held:?}"
        );
    }
}

fn network() -> Network {
    let end = |node: &str, addresses: fn(Family) -> [&'static str; 2]| {
        let all = FAMILIES.map(|family| addresses(family).map(|address| (address, family)));
        all.into_iter()
            .flatten()
            .fold(End::new(node, "eth0"), |end, (address, family)| {
                end.address(&format!("{address}/{}", if family.is_second { 64 } else { 24 }))
            })
    };
    Topology::new()
        .node(Node::new("sender"))
        .node(Node::new("receiver"))
        .link(
            end("sender", |family| [family.sender, family.other_sender]),
            end("receiver", |family| [family.receiver, family.other_receiver]),
        )
        .permanent_neighbours()
        .build()
        .unwrap()
}
