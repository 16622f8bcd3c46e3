//! The bench's programs, over the maps of loaded redirect programs, and running one with `BPF_PROG_RUN`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::time::{ClockId, clock_gettime};

use super::skeleton::{BenchSkelBuilder, types};
use crate::bpf::maps::Maps;
use tarn_kernel::plain::{Plain, bytes_of, from_bytes};

/// An Ethernet frame with 64 bytes of IP packet: headers and 36 bytes of data.
const FRAME_LENGTH: usize = 14 + 64;
/// Sizes of the contexts, up to the last member that is set: `struct xdp_md`, `struct __sk_buff`.
const XDP_CONTEXT: usize = 20;
const TC_CONTEXT: usize = 44;
/// `XDP_ABORTED` and `TC_ACT_SHOT`: what the programs answer when there is no room for the packet.
const XDP_ABORTED: u32 = 0;
const TC_DROPPED: u32 = 2;

// SAFETY: a repr(C) structure of integers, laid out in bench.bpf.c without padding.
unsafe impl Plain for types::bench {}
// SAFETY: as above, laid out by the variables of maps.h.
unsafe impl Plain for types::bss {}

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Before an sk_buff is there.
    Xdp,
    /// tc ingress.
    Tc,
}

impl Hook {
    /// The name shown.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Xdp => "XDP",
            Hook::Tc => "tc",
        }
    }
}

/// What the packets are; numbers as in `enum traffic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Of this many flows in progress, which lie evenly over the rules.
    KnownFlow(u32),
    /// Each the first of a flow, to any rule.
    FirstPacket,
    /// To and from ports that no rule has.
    OtherPorts,
    /// To a rule's port at an address that no rule has.
    OtherAddresses,
}

/// The bench's programs with one set of maps.
pub struct Programs {
    empty: [OwnedFd; 2],
    draw: [OwnedFd; 2],
    redirect: [OwnedFd; 2],
    lookup: OwnedFd,
    variables: MapHandle,
}

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Does nothing.
    Empty(Hook),
    /// Makes the packet only.
    Draw(Hook),
    /// Makes the packet and handles it.
    Redirect(Hook),
    /// Makes the packet and looks its rule up, at tc.
    Lookup,
}

impl Which {
    fn hook(self) -> Hook {
        match self {
            Which::Empty(hook) | Which::Draw(hook) | Which::Redirect(hook) => hook,
            Which::Lookup => Hook::Tc,
        }
    }
}

impl Programs {
    /// Loads the programs with the maps of a loaded instance for this many rules and a table of their own for this many flows. Next hops are
    /// trusted for good, so that a known flow is known for the whole run.
    pub fn load(maps: &Maps, rules: u32, flows: u32) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let mut open = BenchSkelBuilder::default()
            .open(&mut storage)
            .context("open the bench's programs")?;
        let constants = open
            .maps
            .rodata_data
            .as_deref_mut()
            .context("the bench's programs have no constants")?;
        constants.refresh_jiffies = 1 << 40;
        constants.counter_slots = rules;
        let state = maps
            .state
            .lookup(bytes_of(&0_u32), MapFlags::ANY)
            .context("read the programs' state")?;
        let own = open
            .maps
            .bss_data
            .as_deref_mut()
            .context("the bench's programs have no state")?;
        *own = state
            .as_deref()
            .and_then(from_bytes)
            .context("the bench's programs are of another version")?;
        open.maps.flows4.set_max_entries(flows).context("size the flow table")?;
        for (map, known) in [
            (&mut open.maps.rule_counters, &maps.rule_counters),
            (&mut open.maps.services, &maps.services),
            (&mut open.maps.sources, &maps.sources),
            (&mut open.maps.locals, &maps.locals),
            (&mut open.maps.addresses, &maps.addresses),
            (&mut open.maps.exits, &maps.exits),
            (&mut open.maps.xdp_devices, &maps.xdp_devices),
            (&mut open.maps.events, &maps.events),
        ] {
            map.reuse_fd(known.as_fd())
                .context("use a map of the redirect programs")?;
        }
        let skeleton = open.load().context("the kernel refused the bench's programs")?;
        let keep = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().context("keep a program open");
        let programs = &skeleton.progs;
        Ok(Self {
            empty: [keep(programs.empty_xdp.as_fd())?, keep(programs.empty_tc.as_fd())?],
            draw: [keep(programs.draw_xdp.as_fd())?, keep(programs.draw_tc.as_fd())?],
            redirect: [keep(programs.bench_xdp.as_fd())?, keep(programs.bench_tc.as_fd())?],
            lookup: keep(programs.lookup_tc.as_fd())?,
            variables: MapHandle::try_from(&skeleton.maps.data_bench).context("keep a map open")?,
        })
    }

    /// Sets what packets the next runs make.
    pub fn set_traffic(&self, traffic: Traffic, rules: u32, in_order: bool) -> Result<()> {
        let mut variables = self.variables()?;
        variables.rules = rules;
        variables.in_order = u32::from(in_order);
        variables.flows = 1;
        variables.traffic = match traffic {
            Traffic::KnownFlow(flows) => {
                variables.flows = flows.max(1);
                0
            }
            Traffic::FirstPacket => 1,
            Traffic::OtherPorts => 2,
            Traffic::OtherAddresses => 3,
        };
        let key = bytes_of(&0_u32);
        self.variables
            .update(key, bytes_of(&variables), MapFlags::ANY)
            .context("set the bench's variables")
    }

    /// How many packets the programs have redirected, or found a rule for, so far.
    pub fn redirected(&self) -> Result<u64> {
        Ok(self.variables()?.redirected)
    }

    fn variables(&self) -> Result<types::bench> {
        let bytes = self
            .variables
            .lookup(bytes_of(&0_u32), MapFlags::ANY)
            .context("read the bench's variables")?;
        bytes
            .as_deref()
            .and_then(from_bytes)
            .context("the bench's variables are missing")
    }

    /// Runs a program over this many packets that arrive by the device `ifindex` of the calling thread's namespace.
    /// Returns the CPU time that the calling thread took for it.
    pub fn run(&self, which: Which, packets: u32, ifindex: u32) -> Result<Duration> {
        let program = match which {
            Which::Empty(hook) => &self.empty[hook as usize],
            Which::Draw(hook) => &self.draw[hook as usize],
            Which::Redirect(hook) => &self.redirect[hook as usize],
            Which::Lookup => &self.lookup,
        };
        let frame = frame();
        let context = context(which.hook(), ifindex);
        let mut options = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            ctx_in: context.as_ptr().cast(),
            ctx_size_in: context.len() as u32,
            repeat: i32::try_from(packets).unwrap_or(i32::MAX),
            ..Default::default()
        };
        let before = thread_time()?;
        // SAFETY: the program is open, and frame and context live until the call returns.
        let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
        let took = thread_time()?.saturating_sub(before);
        ensure!(
            result == 0,
            "BPF_PROG_RUN failed: {}",
            nix::errno::Errno::from_raw(-result)
        );
        let no_room = if which.hook() == Hook::Xdp {
            XDP_ABORTED
        } else {
            TC_DROPPED
        };
        ensure!(
            options.retval != no_room,
            "the bench's program had no room for its packet"
        );
        Ok(took)
    }
}

/// The CPU time of the calling thread: what other processes take in between does not count.
pub fn thread_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .context("read the thread's CPU time")?
        .into())
}

/// All that does not change from packet to packet: IPv4 and UDP, without options, 64 bytes from the IP header on.
fn frame() -> [u8; FRAME_LENGTH] {
    let mut frame = [0; FRAME_LENGTH];
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&64_u16.to_be_bytes());
    frame[23] = 17; // UDP
    frame[38..40].copy_from_slice(&44_u16.to_be_bytes());
    frame
}

/// A context with the device the packet came by: `ingress_ifindex` in both.
fn context(hook: Hook, ifindex: u32) -> Vec<u8> {
    let (length, place) = match hook {
        Hook::Xdp => (XDP_CONTEXT, 12),
        Hook::Tc => (TC_CONTEXT, 36),
    };
    let mut context = vec![0; length];
    if hook == Hook::Xdp {
        context[4..8].copy_from_slice(&(FRAME_LENGTH as u32).to_ne_bytes()); // data_end
    }
    context[place..place + 4].copy_from_slice(&ifindex.to_ne_bytes());
    context
}
