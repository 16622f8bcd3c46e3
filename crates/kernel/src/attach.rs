//! Attaches BPF programs to network devices, and takes away exactly those that are ours.
//!
//! Programs are attached without a `bpf_link`: the device holds them, so they outlive the process, and no BPF file
//! system is needed to keep them, which a namespace made by `ip netns` does not have. A program is known by its id,
//! which the kernel does not give twice; a detachment names the id and does nothing when another program is there.
//!
//! tc programs go to tcx where the kernel has it (6.6), to a `clsact` queueing discipline before.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, anyhow};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{Program, XdpFlags};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use super::libbpf;
use super::links;
use super::netlink::Netlink;
use super::qdisc;
use crate::undone::Undone;

/// Which way packets go through an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received.
    Ingress,
    /// Sent.
    Egress,
}

impl Direction {
    /// As tc(8) names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Where an XDP program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the interface's driver.
    Native,
    /// In the network stack, for drivers that cannot.
    Generic,
}

/// As many programs as one device has at one tcx hook: `BPF_MPROG_MAX`.
const TCX_PROGRAMS_MAX: usize = 64;

/// Our place among a clsact's filters. Low, so that an administrator's come after unless they ask to be first.
pub const FILTER_PRIORITY: u32 = 49_000;
/// The handle of our filters.
pub const FILTER_HANDLE: u32 = 0x7a;

fn tcx_hook(direction: Direction) -> sys::bpf_attach_type {
    match direction {
        Direction::Ingress => sys::BPF_TCX_INGRESS,
        Direction::Egress => sys::BPF_TCX_EGRESS,
    }
}

fn clsact_side(direction: Direction) -> sys::bpf_tc_attach_point {
    match direction {
        Direction::Ingress => sys::BPF_TC_INGRESS,
        Direction::Egress => sys::BPF_TC_EGRESS,
    }
}

/// The parent of a direction's filters in a clsact: `TC_H_CLSACT` with the minor number of its side.
fn clsact_parent(direction: Direction) -> u32 {
    match direction {
        Direction::Ingress => 0xffff_fff2,
        Direction::Egress => 0xffff_fff3,
    }
}

/// The id of a loaded program.
pub fn program_id(program: BorrowedFd<'_>) -> Result<u32> {
    Program::id_from_fd(program).context("ask for a BPF program's id")
}

/// Opens a program by its id; `None` when there is none any more.
pub fn open_program(id: u32) -> Result<Option<OwnedFd>> {
    match Program::fd_from_id(id) {
        Ok(program) => Ok(Some(program)),
        Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("open the BPF program with id {id}")),
    }
}

/// Whether this kernel has tcx.
pub fn has_tcx() -> bool {
    tcx_programs(1, Direction::Ingress).is_ok()
}

/// The ids of the programs at a device's tcx hook, in their order.
pub fn tcx_programs(index: u32, direction: Direction) -> Result<Vec<u32>> {
    let mut ids = [0_u32; TCX_PROGRAMS_MAX];
    let mut options = sys::bpf_prog_query_opts {
        sz: size_of::<sys::bpf_prog_query_opts>() as sys::size_t,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = TCX_PROGRAMS_MAX as u32;
    // SAFETY: `ids` has room for `count` ids and lives until the call returns.
    let result = call(|| unsafe { sys::bpf_prog_query_opts(index as i32, tcx_hook(direction), &mut options) });
    result.context("ask for the programs at a tcx hook")?;
    // SAFETY: both members of the union are the same integer.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    Ok(ids.into_iter().take(count).collect())
}

/// Attaches a program at the end of a device's tcx hook, or in the place of `replaced`.
pub fn attach_tcx(
    index: u32,
    direction: Direction,
    program: BorrowedFd<'_>,
    replaced: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let mut options = sys::bpf_prog_attach_opts {
        sz: size_of::<sys::bpf_prog_attach_opts>() as sys::size_t,
        ..Default::default()
    };
    if let Some(replaced) = replaced {
        options.flags = sys::BPF_F_REPLACE;
        options.__bindgen_anon_1.replace_fd = replaced.as_raw_fd();
    }
    // SAFETY: all file descriptors are open as long as their borrows live.
    let result =
        call(|| unsafe { sys::bpf_prog_attach_opts(program.as_raw_fd(), index as i32, tcx_hook(direction), &options) });
    result.context("attach a program to a tcx hook")
}

/// Takes the program with this id from a device's tcx hook.
pub fn detach_tcx(index: u32, direction: Direction, id: u32) -> Result<Undone> {
    let attached = match tcx_programs(index, direction) {
        Ok(attached) => attached,
        Err(error) if is_gone(&error) => return Ok(Undone::Gone),
        Err(error) => return Err(error),
    };
    let Some(program) = open_program(id)?.filter(|_| attached.contains(&id)) else {
        return Ok(Undone::Gone);
    };
    let options = sys::bpf_prog_detach_opts {
        sz: size_of::<sys::bpf_prog_detach_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: the file descriptor is open until the end of this function.
    let result =
        call(|| unsafe { sys::bpf_prog_detach_opts(program.as_raw_fd(), index as i32, tcx_hook(direction), &options) });
    put_back(result).context("take a program from a tcx hook")
}

/// Adds a clsact queueing discipline; false when the device has one (or an ingress one) already.
pub fn create_clsact(index: u32) -> Result<bool> {
    let mut hook = hook(index, sys::BPF_TC_INGRESS | sys::BPF_TC_EGRESS);
    // SAFETY: `hook` is a whole, initialised structure.
    match call(|| unsafe { sys::bpf_tc_hook_create(&mut hook) }) {
        Ok(()) => Ok(true),
        Err(error) if errno(&error) == Some(Errno::EEXIST) => Ok(false),
        Err(error) => Err(error).context("add a clsact queueing discipline"),
    }
}

/// Removes a device's clsact queueing discipline, unless somebody's filter is in it.
pub fn remove_clsact(index: u32, interface: &str) -> Result<Undone> {
    for direction in [Direction::Ingress, Direction::Egress] {
        if has_filters(index, direction)? {
            let side = direction.name();
            return Ok(Undone::LeftAlone(format!(
                "{interface} has {side} filters that are not tarn's"
            )));
        }
    }
    let mut hook = hook(index, sys::BPF_TC_INGRESS | sys::BPF_TC_EGRESS);
    // SAFETY: `hook` is a whole, initialised structure.
    put_back(call(|| unsafe { sys::bpf_tc_hook_destroy(&mut hook) })).context("remove a clsact queueing discipline")
}

/// Attaches a program as our filter in a clsact; `replace` says that ours may be there already.
pub fn attach_filter(index: u32, direction: Direction, program: BorrowedFd<'_>, replace: bool) -> Result<()> {
    let hook = hook(index, clsact_side(direction));
    let mut options = filter_options();
    options.prog_fd = program.as_raw_fd();
    options.flags = if replace { sys::BPF_TC_F_REPLACE } else { 0 };
    // SAFETY: both structures are whole and initialised, and the program is open while borrowed.
    call(|| unsafe { sys::bpf_tc_attach(&hook, &mut options) }).context("attach a program as a tc filter")
}

/// The id of the program in our filter's place; `None` when there is none.
pub fn filter_program(index: u32, direction: Direction) -> Result<Option<u32>> {
    let hook = hook(index, clsact_side(direction));
    let mut options = filter_options();
    // SAFETY: both structures are whole and initialised.
    match call(|| unsafe { sys::bpf_tc_query(&hook, &mut options) }) {
        Ok(()) => Ok(Some(options.prog_id)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error).context("ask for a tc filter's program"),
    }
}

/// Takes a filter away if it still holds the program with this id.
pub fn detach_filter(
    index: u32,
    interface: &str,
    direction: Direction,
    handle: u32,
    priority: u32,
    id: u32,
) -> Result<Undone> {
    match filter_program(index, direction)? {
        None => return Ok(Undone::Gone),
        Some(found) if found != id => {
            return Ok(Undone::LeftAlone(format!(
                "{interface} has another program in its place, id {found}"
            )));
        }
        Some(_) => {}
    }
    let hook = hook(index, clsact_side(direction));
    let options = sys::bpf_tc_opts {
        handle,
        priority,
        ..filter_options()
    };
    // SAFETY: both structures are whole and initialised.
    put_back(call(|| unsafe { sys::bpf_tc_detach(&hook, &options) })).context("take a tc filter away")
}

/// The id of the native XDP program of a device; `None` when there is none, or the device is gone.
pub fn xdp_program(index: u32) -> Result<Option<u32>> {
    // Not by libbpf: it asks for features on the way, and to that a kernel before 6.3 starts modprobe each time.
    links::xdp_program(index).context("ask for a device's XDP program")
}

/// Attaches a native XDP program where there is none, or in the place of `replaced`.
pub fn attach_xdp(index: u32, program: BorrowedFd<'_>, replaced: Option<BorrowedFd<'_>>) -> Result<()> {
    change_xdp(index, program.as_raw_fd(), replaced)
}

/// Takes the XDP program with this id away. Only native ones are ours.
pub fn detach_xdp(index: u32, interface: &str, id: u32) -> Result<Undone> {
    match xdp_program(index)? {
        None => return Ok(Undone::Gone),
        Some(found) if found != id => {
            return Ok(Undone::LeftAlone(format!(
                "{interface} has another XDP program, id {found}"
            )));
        }
        Some(_) => {}
    }
    let Some(program) = open_program(id)? else {
        return Ok(Undone::Gone);
    };
    put_back(change_xdp(index, -1, Some(program.as_fd())))
}

/// The file descriptor -1 detaches. The kernel compares with what is expected there, so that nobody else's is hit.
fn change_xdp(index: u32, program: i32, expected: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut options = sys::bpf_xdp_attach_opts {
        sz: size_of::<sys::bpf_xdp_attach_opts>() as sys::size_t,
        ..Default::default()
    };
    let mut flags = XdpFlags::DRV_MODE.bits();
    if let Some(expected) = expected {
        options.old_prog_fd = expected.as_raw_fd();
        flags |= XdpFlags::REPLACE.bits();
    } else {
        flags |= XdpFlags::UPDATE_IF_NOEXIST.bits();
    }
    // SAFETY: the structure is whole, and the programs are open while borrowed.
    call(|| unsafe { sys::bpf_xdp_attach(index as i32, program, flags, &options) })
        .context("change a device's XDP program")
}

fn hook(index: u32, point: sys::bpf_tc_attach_point) -> sys::bpf_tc_hook {
    sys::bpf_tc_hook {
        sz: size_of::<sys::bpf_tc_hook>() as sys::size_t,
        ifindex: index as i32,
        attach_point: point,
        ..Default::default()
    }
}

fn filter_options() -> sys::bpf_tc_opts {
    sys::bpf_tc_opts {
        sz: size_of::<sys::bpf_tc_opts>() as sys::size_t,
        handle: FILTER_HANDLE,
        priority: FILTER_PRIORITY,
        ..Default::default()
    }
}

/// Whether a device has a clsact queueing discipline.
pub fn has_clsact(index: u32) -> Result<bool> {
    Ok(qdisc::of(index)?.iter().any(|qdisc| qdisc.kind == "clsact"))
}

/// Whether any filter, ours or not, is in one side of a device's clsact.
fn has_filters(index: u32, direction: Direction) -> Result<bool> {
    let request = qdisc::header(index, 0, clsact_parent(direction));
    let answer = Netlink::open(SockProtocol::NetlinkRoute, 0)?
        .request(libc::RTM_GETTFILTER, libc::NLM_F_DUMP as u16, &request)
        .context("list the tc filters of a device")?;
    Ok(answer.iter().any(|message| message.kind == libc::RTM_NEWTFILTER))
}

/// Calls libbpf, whose results are negative error numbers, to which the kernel may have added words of its own.
pub(crate) fn call(function: impl FnOnce() -> i32) -> Result<()> {
    let (result, said) = libbpf::listen(function);
    if result >= 0 {
        return Ok(());
    }
    let error = anyhow!(Errno::from_raw(-result));
    Err(match libbpf::kernel_words(&said) {
        Some(words) => error.context(words.to_owned()),
        None => error,
    })
}

pub(crate) fn errno(error: &anyhow::Error) -> Option<Errno> {
    error.downcast_ref::<Errno>().copied()
}

/// What was to be undone may have gone by itself meanwhile, with its device.
fn put_back(result: Result<()>) -> Result<Undone> {
    match result {
        Ok(()) => Ok(Undone::PutBack),
        Err(error) if is_gone(&error) => Ok(Undone::Gone),
        Err(error) => Err(error),
    }
}

/// What is asked about does not exist: the device, the filter, the queueing discipline.
fn is_gone(error: &anyhow::Error) -> bool {
    matches!(errno(error), Some(Errno::ENOENT | Errno::ENODEV | Errno::EINVAL))
}
