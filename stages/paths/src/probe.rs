//! What this host offers to the stage.

use crate::judge::Measure;
use crate::nexthop;
use crate::pin::Pins;
use tarn_frame::Ability;
use tarn_kernel::cgroup;
use tarn_kernel::features::{Finding, Host, OLDEST};
use tarn_kernel::route;

/// What connections need that stay on their uplinks.
pub fn pins() -> Ability {
    let found = Pins::probe();
    Ability {
        name: "marks of connections".to_owned(),
        present: found.is_ok(),
        required: true,
        detail: found.unwrap_or_else(|error| format!("{error:#}")),
    }
}

/// What the round trips of TCP connections need.
pub fn round_trips() -> Ability {
    let host = Host::this();
    let root = match cgroup::root() {
        Ok(root) => Finding::Present(format!("control groups at {}", root.display())),
        Err(error) => Finding::Absent {
            reason: "no control group to follow connections in".to_owned(),
            remedy: format!("{error:#}"),
        },
    };
    let found = [host.btf(), host.bpf()]
        .into_iter()
        .find(|finding| !finding.is_present());
    found.unwrap_or(root).ability("round trips of TCP (tcp = true)", true)
}

/// The abilities, those needed that this measure needs; nothing is changed.
pub fn abilities(measure: Measure) -> Vec<Ability> {
    let host = Host::this();
    let mut netlink = route::open();
    // Any number will do: a kernel that has nexthop objects says that there is none.
    let found = netlink
        .as_mut()
        .map_err(|error| format!("{error:#}"))
        .and_then(|netlink| {
            nexthop::find(netlink, u32::MAX).map_err(|error| format!("{error:#}: boot a kernel with nexthop objects"))
        });
    vec![
        host.kernel_since(OLDEST).ability("kernel", true),
        host.network_administration().ability("network administration", true),
        host.raw_sockets().ability("raw sockets", true),
        host.btf().ability(
            "type information of the kernel (measure = \"load\")",
            measure == Measure::Load,
        ),
        host.bpf().ability("BPF (measure = \"load\")", measure == Measure::Load),
        Ability {
            name: "nexthop objects".to_owned(),
            present: found.is_ok(),
            required: true,
            detail: found.map_or_else(|why| why, |_| "resilient groups of nexthops".to_owned()),
        },
    ]
}
