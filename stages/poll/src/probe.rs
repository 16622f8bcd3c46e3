//! What this host offers to the stage, and what would be done here.

use tarn_frame::Ability;
use tarn_kernel::features::{Finding, Host, OLDEST, Release};
use tarn_kernel::sysfs::Sysfs;
use tarn_kernel::{links, modules, netdev};

use crate::awake::idle_states;
use crate::device::reason_against;
use crate::handover;
use crate::module::MODULE;
use crate::threads;

/// From about this kernel on softirqs run at once also while `ksoftirqd` waits for the CPU, so that in an overload each network call of any
/// program lasts for milliseconds. Measured: so on 6.12 and 7.x, not on 6.1.
const LIVELOCK_SINCE: Release = Release {
    major: 6,
    minor: 4,
    patch: 0,
};

/// The first kernel that reports a device's NAPIs and their threads over netlink.
const NAPIS_SINCE: Release = Release {
    major: 6,
    minor: 8,
    patch: 0,
};

/// The abilities; nothing is changed.
pub fn abilities() -> Vec<Ability> {
    let host = Host::this();
    vec![
        host.kernel_since(OLDEST).ability("kernel", true),
        host.network_administration().ability("network administration", true),
        host.btf().ability("type information of the kernel", true),
        host.bpf().ability("BPF", true),
        host.bpf_jit().ability("BPF as machine code", is_interpreted()),
        livelock(&host).ability("receive livelock", false),
        napis(&host).ability("NAPIs by netlink", false),
        handover::finding(&host).ability("takeover by threads", false),
        module(),
        Ability::of("devices", false, devices()),
        Ability::of("idle states", false, Ok(idle_states())),
    ]
}

/// Only the profile "timely" needs the module.
fn module() -> Ability {
    let mut ability = modules::finding(MODULE.name).ability(MODULE.name, false);
    ability.detail += "; only profile = \"timely\" needs it";
    ability
}

/// The kernel takes a program that calls functions and another program only as machine code. Where this cannot be read it is not known.
fn is_interpreted() -> bool {
    std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").is_ok_and(|value| value.trim() == "0")
}

fn livelock(host: &Host) -> Finding {
    match host.kernel_since(LIVELOCK_SINCE) {
        Finding::Present(release) => Finding::Present(format!(
            "{release}: an overload starves programs that use the network, without `poll`"
        )),
        Finding::Absent { .. } => Finding::Absent {
            reason: format!("{} serves on under overload", host.release_text()),
            remedy: "nothing is to be done".to_owned(),
        },
    }
}

fn napis(host: &Host) -> Finding {
    match host.kernel_since(NAPIS_SINCE) {
        Finding::Present(release) => Finding::Present(release),
        Finding::Absent { reason, .. } => Finding::Absent {
            reason,
            remedy: "use Linux 6.8 or newer, which reports the thread of each receive queue".to_owned(),
        },
    }
}

/// Why nothing is done on this host, whether or not threads were to receive always.
pub fn nothing_to_do(always_threads: bool) -> Option<String> {
    let host = Host::this();
    match (livelock(&host), napis(&host)) {
        (Finding::Absent { reason, .. }, _) if !always_threads => Some(reason),
        (_, Finding::Absent { reason, remedy }) => Some(format!("{reason}: {remedy}")),
        _ => None,
    }
}

/// What would be done with each device.
fn devices() -> anyhow::Result<String> {
    let sysfs = Sysfs::of_this_namespace()?;
    let has_livelock = nothing_to_do(false).is_none();
    let mut told = Vec::new();
    for link in links::all()? {
        let name = &link.name;
        told.push(match reason_against(&link) {
            Some(reason) => format!("{name}: left alone, {reason}"),
            None if threads::is_threaded(&sysfs, name) == Some(true) => {
                format!("{name}: receives in threads now; unless they are tarn's, somebody else manages them and it is left alone")
            }
            None if !has_livelock => format!("{name}: left alone unless threads = \"on\""),
            None if netdev::runs_xdp(link.index)? => format!("{name}: sheds, threads during storms"),
            None => format!("{name}: its driver runs no XDP programs: always threads"),
        });
    }
    Ok(told.join("; "))
}
