//! Loads the programs, with the maps of a running instance where they fit.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, anyhow};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapHandle, OpenMapMut, ProgramInput};

use super::maps::Maps;
use super::skeleton::{OpenRedirectMaps, RedirectSkelBuilder, types};
use tarn_kernel::clock::tick_ns;
use tarn_kernel::libbpf;
use tarn_kernel::plain::bytes_of_mut;

/// For how long a next hop is trusted without another look at routes and neighbours.
const NEXT_HOP_LIFETIME_NS: u64 = 1_000_000_000;
/// For how long fragments with one identification are taken for one datagram's: as long as the stack waits for them
/// (`net.ipv4.ipfrag_time`).
const DATAGRAM_LIFETIME_NS: u64 = 30_000_000_000;

/// The tc program for packets that begin with an Ethernet header, as they come in and as they leave.
pub const ETHERNET_PROGRAMS: [&str; 2] = ["redirect_in", "redirect_out"];
/// The same for packets that begin with the IP header. The kernel takes as long again to verify them, so they are
/// loaded only where there is such a device.
pub const IP_PROGRAMS: [&str; 2] = ["redirect_in_ip", "redirect_out_ip"];
/// The XDP program.
pub const XDP_PROGRAM: &str = "redirect_xdp";
/// The program that tells the time in jiffies.
pub const CLOCK_PROGRAM: &str = "read_clock";

/// How much the maps hold, and what the XDP program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rules.
    pub rules: u32,
    /// Flows of each family, a direction each.
    pub flows: u32,
    /// Whether the XDP program redirects; otherwise it rewrites and passes on.
    pub xdp_delivers: bool,
    /// Whether XDP is used at all.
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

/// The loaded programs and their maps.
pub struct Loaded {
    programs: BTreeMap<String, OwnedFd>,
    /// The maps, shared by all programs.
    pub maps: Maps,
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
    constants.xdp_delivers = u8::from(limits.xdp_delivers);
    resize(&mut open.maps, limits)?;
    if let Some(running) = running {
        reuse(&mut open.maps, running)?;
    }
    open.progs.redirect_xdp.set_autoload(limits.xdp);
    open.progs.read_clock.set_autoload(false);
    for program in [&mut open.progs.redirect_in_ip, &mut open.progs.redirect_out_ip] {
        program.set_autoload(framing == Framing::EthernetAndIp);
    }
    let skeleton = libbpf::load("the kernel refused the redirect programs", || open.load())?;

    let mut programs = BTreeMap::new();
    for program in skeleton.object().progs().filter(|program| program.autoload()) {
        programs.insert(
            program.name().to_string_lossy().into_owned(),
            program.as_fd().try_clone_to_owned().context("keep a program open")?,
        );
    }
    Ok(Loaded {
        programs,
        maps: Maps::of_skeleton(&skeleton.maps)?,
    })
}

fn resize(maps: &mut OpenRedirectMaps<'_>, limits: Limits) -> Result<()> {
    let services = limits.services();
    // Where a rule matches and where it leads to, and where it led to before while it is led elsewhere.
    let addresses = limits.rules.saturating_mul(3);
    for (map, entries) in [
        (&mut maps.rule_counters, limits.rules),
        (&mut maps.services, services),
        (&mut maps.sources, services),
        (&mut maps.addresses, addresses),
        (&mut maps.flows4, limits.flows),
        (&mut maps.flows6, limits.flows),
    ] {
        map.set_max_entries(entries).context("size a map")?;
    }
    Ok(())
}

fn reuse(maps: &mut OpenRedirectMaps<'_>, running: &Maps) -> Result<()> {
    for (map, known) in [
        (&mut maps.rule_counters, &running.rule_counters),
        (&mut maps.services, &running.services),
        (&mut maps.sources, &running.sources),
        (&mut maps.locals, &running.locals),
        (&mut maps.addresses, &running.addresses),
        (&mut maps.flows4, &running.flows4),
        (&mut maps.flows6, &running.flows6),
        (&mut maps.exits, &running.exits),
        (&mut maps.events, &running.events),
        (&mut maps.bss, &running.state),
    ] {
        if fits(map, known) {
            map.reuse_fd(known.as_fd()).context("use a running map again")?;
        }
    }
    if let Some(devices) = running
        .xdp_devices
        .as_ref()
        .filter(|devices| fits(&maps.xdp_devices, devices))
    {
        maps.xdp_devices
            .reuse_fd(devices.as_fd())
            .context("use a running map again")?;
    }
    Ok(())
}

fn fits(map: &OpenMapMut<'_>, known: &MapHandle) -> bool {
    map.max_entries() == known.max_entries()
        && map.key_size() == known.key_size()
        && map.value_size() == known.value_size()
        && map.map_type() == known.map_type()
}

/// The kernel's clocks at one moment: turns jiffies into time.
pub struct Clock {
    now: types::clock,
    tick_ns: u64,
}

impl Clock {
    /// CLOCK_MONOTONIC at a past jiffy, to within a tick.
    pub fn monotonic_ns(&self, jiffies: u64) -> u64 {
        let ago = self.now.jiffies.saturating_sub(jiffies).saturating_mul(self.tick_ns);
        self.now.monotonic_ns.saturating_sub(ago)
    }
}

/// Reads the clocks, by a program that is loaded for that alone.
pub fn clock() -> Result<Clock> {
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
    Ok(Clock {
        now,
        tick_ns: tick_ns()?,
    })
}
