//! The debug kernel must not be blind: on purpose, the lab's own module does what a module must not do.
//!
//! These tests run on debug kernels only, each in a guest of its own: a kernel that has complained checks less afterwards.

use std::process::Command;

use super::*;

/// Loads the module with a fault in it, of which the kernel has to complain in these words.
fn is_found(fault: &str, complaint: &str) {
    println!("\nCOMPLAINT: {complaint}");
    let run =
        |program: &str, arguments: &[&str]| assert!(Command::new(program).args(arguments).status().unwrap().success());
    run("insmod", &["/tarn/modules/tarn_probe.ko", &format!("fault={fault}")]);
    run("rmmod", &["tarn_probe"]);
}

#[test]
#[ignore = "needs the lab"]
fn lab_debug_kernel_finds_the_use_of_freed_memory() {
    is_found("use-after-free", "KASAN: slab-use-after-free in tarn_probe");
}

#[test]
#[ignore = "needs the lab"]
fn lab_debug_kernel_finds_memory_that_is_never_freed() {
    is_found("leak", "unreferenced object");
}

#[test]
#[ignore = "needs the lab"]
fn lab_debug_kernel_finds_sleep_under_a_spinlock() {
    is_found("sleep", "sleeping function called from invalid context");
}

#[test]
#[ignore = "needs the lab"]
fn lab_debug_kernel_finds_locks_taken_in_two_orders() {
    is_found("deadlock", "possible circular locking dependency");
}

/// The use of a packet's device, say, without the protection that keeps it.
#[test]
#[ignore = "needs the lab"]
fn lab_debug_kernel_finds_rcu_pointers_followed_without_protection() {
    is_found("rcu", "suspicious RCU usage");
}

/// The kernel's source of backports is not the suite's own.
#[test]
fn the_source_is_that_of_the_suites_kernel() {
    let last = |suite| packages(Suite::named(suite).unwrap()).pop().unwrap();
    assert_eq!(last("trixie"), "linux-source");
    assert_eq!(last("trixie-backports"), "linux-source/trixie-backports");
}
