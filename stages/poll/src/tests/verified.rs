//! What the programs cost the kernel's verifier.

use libbpf_rs::query::ProgInfoIter;

use crate::programs::Programs;

/// What the verifier may look at of each program, in instructions: a quarter more than on the dearest of Debian's kernels when this was
/// written.
const VERIFIED_AT_MOST: [(&str, u32); 2] = [("count", 350), ("shed", 70_000)];

/// A kernel without AF_XDP (`CONFIG_XDP_SOCKETS`) must not lose the stage for it.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_poll_loads_where_there_is_no_af_xdp() {
    let programs = Programs::load_with(false).unwrap();
    assert!(programs.handovers.is_none());
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_poll_costs_the_verifier_no_more_than_before() {
    let programs = Programs::load().unwrap();
    let counted: Vec<(String, u32)> = ProgInfoIter::default()
        .map(|program| (program.name.to_string_lossy().into_owned(), program.verified_insns))
        .collect();
    drop(programs);
    println!("{counted:?}");
    for (name, most) in VERIFIED_AT_MOST {
        let count = counted.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        assert!(count.is_some_and(|count| count <= most), "{name}: {counted:?}");
    }
}
