//! What the programs cost the kernel's verifier.

use libbpf_rs::query::ProgInfoIter;

use crate::registration::Registration;
use crate::skeleton::types::pace_parameters;

/// What the verifier may look at of each program, in instructions: a quarter more than on the dearest of Debian's kernels, 6.1 to
/// 7.3, when this was written. Its limit is a million; a program that comes near it fails on some kernel to come.
const VERIFIED_AT_MOST: [(&str, u32); 2] = [("begin", 120), ("acknowledged", 165_000)];

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_costs_the_verifier_no_more_than_before() {
    let registration = Registration::new(&pace_parameters::default(), |_| Ok(())).unwrap();
    let counted: Vec<(String, u32)> = ProgInfoIter::default()
        .map(|program| (program.name.to_string_lossy().into_owned(), program.verified_insns))
        .collect();
    registration.remove().unwrap();
    println!("{counted:?}");
    for (name, most) in VERIFIED_AT_MOST {
        let count = counted.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        assert!(count.is_some_and(|count| count <= most), "{name}: {counted:?}");
    }
}
