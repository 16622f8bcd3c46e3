//! What the module says of itself, built for debugging.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use super::scene::{run, unload};
use tarn_kernel::modules;

/// The rule that decides who is served works in the kernel as it does in the unit tests, or the module is not loaded.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_module_tests_its_choice_when_it_is_loaded() {
    if modules::is_loaded("tarn_classes") {
        unload();
    }
    // What it depends on is loaded as for the ordinary one.
    modules::load("tarn_classes").unwrap();
    unload();
    run("insmod", &["/tarn/modules/debug/tarn_classes.ko"]);
    unload();
    let log = kernel_log();
    assert!(log.contains("tarn_classes: selftest of the choice: pass"), "{log}");
}

/// The kernel's log so far.
fn kernel_log() -> String {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")
        .unwrap();
    let (mut log, mut record) = (String::new(), [0; 8192]);
    while let Ok(length) = file.read(&mut record) {
        log.push_str(&String::from_utf8_lossy(&record[..length]));
    }
    log
}
