//! What the module says of itself, built for debugging.

use tarn_lab::testing::log_of_self_tests;

/// The rule that decides who is served works in the kernel as it does in the unit tests, or the module is not loaded.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_the_module_tests_its_choice_when_it_is_loaded() {
    let log = log_of_self_tests("tarn_classes");
    assert!(log.contains("tarn_classes: selftest of the choice: pass"), "{log}");
}
