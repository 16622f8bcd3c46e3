//! Loads the programs, with the maps of a running instance where they fit.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapHandle, MapMut, MapType, ProgramInput, ProgramMut};
use nix::errno::Errno;

use super::counters;
use super::maps::Maps;
use super::skeleton::{OpenRedirectMaps, RedirectSkelBuilder, types};
use crate::devices::Devices;
use tarn_kernel::clock::tick_ns;
use tarn_kernel::libbpf;
use tarn_kernel::links::Link;
use tarn_kernel::plain::bytes_of_mut;

/// For how long a next hop is trusted without another look at routes and neighbours.
const NEXT_HOP_LIFETIME_NS: u64 = 1_000_000_000;
/// For how long fragments with one identification are taken for one datagram's: as long as the stack waits for them
/// (`net.ipv4.ipfrag_time`).
const DATAGRAM_LIFETIME_NS: u64 = 30_000_000_000;

/// For how long after a request its answer is waited for, when flows are pushed out meanwhile.
const ANSWER_NS: u64 = 10_000_000_000;

/// The tc program for packets that begin with an Ethernet header, as they come in and as they leave.
pub const ETHERNET_PROGRAMS: [&str; 2] = ["redirect_in", "redirect_out"];
/// The same for packets that begin with the IP header. The kernel takes as long again to verify them, so they are
/// loaded only where there is such a device.
pub const IP_PROGRAMS: [&str; 2] = ["redirect_in_ip", "redirect_out_ip"];
/// The XDP program.
pub const XDP_PROGRAM: &str = "redirect_xdp";
/// The program that tells the time in jiffies.
pub const CLOCK_PROGRAM: &str = "read_clock";

/// How much the maps hold, and whether XDP is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rules.
    pub rules: u32,
    /// Flows of each family, a direction each: see [`Limits::flow_tables`].
    pub flows: u32,
    /// Whether the XDP program redirects, where it can; otherwise only the tc programs do.
    pub xdp: bool,
}

/// Ports that there is room for beyond those of rules for one port each: a rule for every port. With the default number
/// of rules, two: one for TCP and one for UDP.
const RANGES: u32 = 1 << 16;

impl Limits {
    /// The most ports that rules may match, each counted for each rule. The maps hold twice as many: while rules take
    /// the place of others, they know both.
    pub fn ports(self) -> u64 {
        u64::from(self.rules) + u64::from(RANGES)
    }

    /// Entries of each family's flow tables: of flows that are not established, of TCP, and of UDP.
    pub fn flow_tables(self) -> [u32; 3] {
        [self.flows / 4, self.flows / 2, self.flows / 4]
    }

    fn services(self) -> u32 {
        u32::try_from(2 * self.ports()).unwrap_or(u32::MAX)
    }
}

/// What the devices need that carry the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Every packet begins with an Ethernet header.
    Ethernet,
    /// Those of some devices begin with the IP header.
    EthernetAndIp,
}

impl Framing {
    /// How the packets of those of these devices that are there are framed.
    pub fn of(devices: &Devices, links: &[Link]) -> Self {
        if links.iter().any(|link| devices.include(link) && link.is_ip_only()) {
            Self::EthernetAndIp
        } else {
            Self::Ethernet
        }
    }
}

/// The loaded programs and their maps.
pub struct Loaded {
    programs: BTreeMap<String, OwnedFd>,
    /// The maps, shared by all programs.
    pub maps: Maps,
    /// Devices from which somebody else has taken the XDP program, by index.
    pub left_alone: RefCell<HashSet<u32>>,
}

impl Loaded {
    /// The program of this name.
    pub fn program(&self, name: &str) -> Result<BorrowedFd<'_>> {
        self.programs
            .get(name)
            .map(AsFd::as_fd)
            .ok_or_else(|| anyhow!("the program {name} was not loaded"))
    }

    /// Whether the devices' packets may be framed like this.
    pub fn serves(&self, framing: Framing) -> bool {
        framing == Framing::Ethernet || IP_PROGRAMS.iter().all(|name| self.programs.contains_key(*name))
    }
}

/// Loads the programs. `running` are the maps of an instance that runs: those of the same size are used again, so
/// that flows and counters go on.
pub fn load(limits: Limits, framing: Framing, running: Option<&Maps>) -> Result<Loaded> {
    let [opening, tcp, udp] = limits.flow_tables();
    let has_flows = running.is_some_and(|maps| maps.flows4.max_entries() == opening);
    let flows = (!has_flows).then(|| FlowTables::begin(limits)).transpose()?;
    let mut storage = MaybeUninit::uninit();
    let mut open = RedirectSkelBuilder::default()
        .open(&mut storage)
        .context("open the redirect programs")?;
    let constants = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("the redirect programs have no constants")?;
    constants.refresh_jiffies = (NEXT_HOP_LIFETIME_NS / tick_ns()?).max(1);
    constants.datagram_jiffies = (DATAGRAM_LIFETIME_NS / tick_ns()?).max(1);
    constants.answer_jiffies = (ANSWER_NS / tick_ns()?).max(1);
    [constants.opening_flows, constants.tcp_flows, constants.udp_flows] = [opening, tcp, udp].map(u64::from);
    constants.counter_slots = limits.rules;
    resize(&mut open.maps, limits)?;
    if let Some(running) = running {
        running.lend(&mut open.maps)?;
    }
    if let Some(flows) = flows {
        flows.lend(&mut open.maps)?;
    }
    open.progs.redirect_xdp.set_autoload(limits.xdp);
    open.progs.read_clock.set_autoload(false);
    for program in [&mut open.progs.redirect_in_ip, &mut open.progs.redirect_out_ip] {
        program.set_autoload(framing == Framing::EthernetAndIp);
    }
    let skeleton = libbpf::load("the kernel refused the redirect programs", || open.load())?;

    keep_with(&skeleton.progs.redirect_in, &skeleton.maps.xdp_devices)?;
    let mut programs = BTreeMap::new();
    for program in skeleton.object().progs().filter(|program| program.autoload()) {
        programs.insert(
            program.name().to_string_lossy().into_owned(),
            program.as_fd().try_clone_to_owned().context("keep a program open")?,
        );
    }
    let maps = Maps::of_skeleton(&skeleton.maps)?;
    if !has_flows {
        maps.count_flows_anew()?;
    }
    Ok(Loaded {
        programs,
        maps,
        left_alone: RefCell::default(),
    })
}

/// Has a map live as long as a program that does not use it: the next agent may load one that does.
fn keep_with(program: &ProgramMut<'_>, map: &MapMut<'_>) -> Result<()> {
    // SAFETY: both descriptors are open while borrowed, and there are no options.
    let result =
        unsafe { sys::bpf_prog_bind_map(program.as_fd().as_raw_fd(), map.as_fd().as_raw_fd(), std::ptr::null()) };
    match result {
        0.. => Ok(()),
        error => Err(anyhow!(Errno::from_raw(-error))).context("keep a map with a program"),
    }
}

fn resize(maps: &mut OpenRedirectMaps<'_>, limits: Limits) -> Result<()> {
    let services = limits.services();
    let [opening, tcp, udp] = limits.flow_tables();
    let counters = limits.rules.checked_mul(counters::cpus()?);
    let counters = counters.context("max_rules is too large for so many CPUs: lower it in the section [redirect]")?;
    // Where a rule matches and where it leads to, and where it led to before while it is led elsewhere.
    let addresses = limits.rules.saturating_mul(3);
    for (map, entries) in [
        (&mut maps.rule_counters, counters),
        (&mut maps.services, services),
        (&mut maps.sources, services),
        (&mut maps.addresses, addresses),
        (&mut maps.targets, services),
        (&mut maps.flows4, opening),
        (&mut maps.flows6, opening),
        (&mut maps.tcp4, tcp),
        (&mut maps.tcp6, tcp),
        (&mut maps.udp4, udp),
        (&mut maps.udp6, udp),
    ] {
        map.set_max_entries(entries).context("size a map")?;
    }
    Ok(())
}

/// As the map of this name in maps.h.
fn make_flow_table(name: &str, key_size: u32, flows: u32) -> Result<MapHandle> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        ..Default::default()
    };
    let value_size = size_of::<types::flow>() as u32;
    MapHandle::create(MapType::LruHash, Some(name), key_size, value_size, flows, &options)
        .with_context(|| format!("the kernel made no table of {flows} flows: lower `flows` in the section [redirect]"))
}

/// Makes the flow tables, of all maps those that take longest: the kernel allocates all of their entries at once. So each
/// is made on a thread of its own, while the calling one prepares the programs.
struct FlowTables(Vec<JoinHandle<Result<MapHandle>>>);

impl FlowTables {
    fn begin(limits: Limits) -> Result<Self> {
        let [opening, tcp, udp] = limits.flow_tables();
        let (key4, key6) = (size_of::<types::flow_key4>(), size_of::<types::flow_key6>());
        let tables = [
            ("flows4", key4, opening),
            ("flows6", key6, opening),
            ("tcp4", key4, tcp),
            ("tcp6", key6, tcp),
            ("udp4", key4, udp),
            ("udp6", key6, udp),
        ];
        let begin = |(name, key, flows): (&'static str, usize, u32)| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            let begun = thread.spawn(move || make_flow_table(name, key as u32, flows));
            begun.context("start a thread that makes a flow table")
        };
        tables.into_iter().map(begin).collect::<Result<_>>().map(Self)
    }

    /// Waits for them and has the programs use them.
    fn lend(self, maps: &mut OpenRedirectMaps<'_>) -> Result<()> {
        let tables = [
            &mut maps.flows4,
            &mut maps.flows6,
            &mut maps.tcp4,
            &mut maps.tcp6,
            &mut maps.udp4,
            &mut maps.udp6,
        ];
        for (thread, map) in self.0.into_iter().zip(tables) {
            let table = thread
                .join()
                .map_err(|_| anyhow!("the thread that makes a map panicked"))??;
            map.reuse_fd(table.as_fd()).context("use a flow table")?;
        }
        Ok(())
    }
}

/// The kernel's clocks as they were read: turns jiffies into time.
pub struct Clock {
    read: types::clock,
    tick_ns: u64,
}

impl Clock {
    /// CLOCK_MONOTONIC at a jiffy, to within a tick.
    pub fn monotonic_ns(&self, jiffies: u64) -> u64 {
        let types::clock {
            jiffies: then,
            monotonic_ns,
        } = self.read;
        let between = jiffies.abs_diff(then).saturating_mul(self.tick_ns);
        match jiffies > then {
            true => monotonic_ns.saturating_add(between),
            false => monotonic_ns.saturating_sub(between),
        }
    }
}

/// Reads the clocks, by a program that is loaded for that alone. Both go on alike, since the kernel counts jiffies by
/// CLOCK_MONOTONIC: one reading serves a process for good.
pub fn clock() -> Result<Clock> {
    static READ: OnceLock<types::clock> = OnceLock::new();
    let read = match READ.get() {
        Some(read) => *read,
        None => {
            let read = read_clock()?;
            *READ.get_or_init(|| read)
        }
    };
    Ok(Clock {
        read,
        tick_ns: tick_ns()?,
    })
}

fn read_clock() -> Result<types::clock> {
    let mut storage = MaybeUninit::uninit();
    let mut open = RedirectSkelBuilder::default()
        .open(&mut storage)
        .context("open the redirect programs")?;
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = program.name() == CLOCK_PROGRAM;
        program.set_autoload(wanted);
    }
    for mut map in open.open_object_mut().maps_mut() {
        let constants = map.name().to_string_lossy().ends_with(".rodata");
        map.set_autocreate(constants).context("leave a map out")?;
    }
    let skeleton = libbpf::load("the kernel refused the program that reads its clock", || open.load())?;
    let mut now = types::clock::default();
    let input = ProgramInput {
        context_in: Some(bytes_of_mut(&mut now)),
        ..ProgramInput::default()
    };
    skeleton
        .progs
        .read_clock
        .test_run(input)
        .context("read the kernel's clock")?;
    Ok(now)
}
