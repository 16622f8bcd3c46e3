//! What this host offers to the BPF carrier.

use crate::ipsec;
use tarn_frame::Ability;
use tarn_kernel::attach;
use tarn_kernel::features::{Host, OLDEST};

/// The names of the abilities that the carrier needs, all of them.
pub const NAMES: [&str; 5] = ["kernel", "BTF", "BPF", "network administration", ipsec::NAME];

/// The abilities; nothing is changed.
pub fn abilities() -> Vec<Ability> {
    let host = Host::this();
    let mut abilities = vec![
        host.kernel_since(OLDEST).ability(NAMES[0], false),
        host.btf().ability(NAMES[1], false),
        host.bpf().ability(NAMES[2], false),
        host.network_administration().ability(NAMES[3], false),
        ipsec::ability(),
    ];
    if abilities.iter().all(|ability| ability.present) {
        let detail = if attach::has_tcx() {
            "tcx"
        } else {
            "clsact filters (tcx comes with 6.6)"
        };
        let present = Ability {
            name: "tc hook".into(),
            present: true,
            required: false,
            detail: detail.into(),
        };
        abilities.push(present);
    }
    abilities
}
