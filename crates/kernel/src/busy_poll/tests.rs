//! What a kernel refuses, without a NAPI. What it does with one: the lab tests of the stage that uses this.

use super::*;

/// Either a ring cannot poll by identifiers here, or not by one that no NAPI has (they begin above the number of CPUs).
#[test]
fn an_identifier_that_no_napi_has_is_refused() {
    assert!(Ring::of_napis(&[1]).is_err());
}

#[test]
fn a_device_that_is_not_here_has_no_queue() {
    assert!(Socket::of_queue(u32::MAX, 0).is_err());
}
