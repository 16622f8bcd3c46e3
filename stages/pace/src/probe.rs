//! What this host offers to the stage.

use tarn_frame::Ability;
use tarn_kernel::cgroup;
use tarn_kernel::features::{Finding, Host, OLDEST};

/// What connections need to be chosen by destination or control group.
pub fn choice() -> Ability {
    let found = match cgroup::root() {
        Ok(root) => Finding::Present(format!("control groups at {}", root.display())),
        Err(error) => Finding::Absent {
            reason: "no control groups".to_owned(),
            remedy: format!("{error:#}"),
        },
    };
    found.ability("choice by destination or cgroup", true)
}

/// The abilities; nothing is changed.
pub fn abilities() -> Vec<Ability> {
    let host = Host::this();
    vec![
        host.kernel_since(OLDEST).ability("kernel", true),
        host.network_administration().ability("network administration", true),
        host.btf().ability("type information of the kernel", true),
        host.bpf().ability("BPF", true),
        host.bpf_jit().ability("BPF as machine code", false),
    ]
}
