//! What clients send in TLS that asks for nothing, and what only looks like it.

use std::time::Duration;

use super::protocols::{APPLICATION_DATA, CLIENT_HELLO, Pair, SERVER_HELLO, served};
use crate::module::{Protocol, Settings};

/// As long as a record with HTTP/2's acknowledgement of settings.
const ACKNOWLEDGEMENT: &[u8] = b"\x17\x03\x03\x00\x1aan acknowledgement in here";
/// The beginning of a record whose rest comes in another segment.
const PART_OF_A_RECORD: &[u8] = b"\x17\x03\x03\x01\x00the beginning of it";
const TWO_RECORDS: &[u8] = b"\x17\x03\x03\x00\x05first\x17\x03\x03\x00\x06second";

/// A browser acknowledges the settings of HTTP/2 while the service works on its first requests: that is no sign that these were answered,
/// and what the service needs for a connection is found all the same.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_what_asks_for_nothing_is_no_request() {
    assert_eq!((APPLICATION_DATA.len(), ACKNOWLEDGEMENT.len()), (43, 31));
    let took = Duration::from_millis(50);
    let (scene, listener) = served(Protocol::Auto);
    let mut one = Pair::new(&scene, &listener, 7000);
    one.asks(CLIENT_HELLO);
    one.answers(SERVER_HELLO);
    one.asks(b"\x14\x03\x03\x00\x01\x01 the handshake is finished, says the client");
    one.answers(b"session tickets");
    one.asks(APPLICATION_DATA);
    one.answers(b"settings");
    one.asks(ACKNOWLEDGEMENT);
    std::thread::sleep(took);
    one.answers(b"the answer itself");
    assert!(
        scene.state().service < took,
        "nothing is counted yet: {:?}",
        scene.state()
    );
    one.asks(APPLICATION_DATA);
    let service = scene.state().service;
    assert!(service > took && service < took * 6, "{service:?}");
}

/// A client that asks in records as short as an acknowledgement has gone on all the same, and what it thinks about is not counted as
/// the service's work for long.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_short_requests_in_tls_are_no_notices_for_long() {
    let (scene, listener) = served(Protocol::Auto);
    let mut one = Pair::new(&scene, &listener, 7000);
    one.asks(CLIENT_HELLO);
    one.answers(SERVER_HELLO);
    for asked in [APPLICATION_DATA, APPLICATION_DATA, ACKNOWLEDGEMENT, ACKNOWLEDGEMENT] {
        one.asks(asked);
        one.answers(b"an answer");
    }
    std::thread::sleep(Duration::from_millis(10));
    let before = scene.state().service;
    one.asks(ACKNOWLEDGEMENT);
    let service = scene.state().service;
    assert!(before.is_zero() && !service.is_zero(), "{before:?}, then {service:?}");
    assert!(service < Duration::from_millis(10), "{service:?}");
}

/// What is short because of how it was cut into segments is a request, and ends what the service did before it.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_short_segment_that_is_not_one_record_is_no_notice() {
    for segment in [PART_OF_A_RECORD, TWO_RECORDS] {
        let (scene, listener) = served(Protocol::Auto);
        let mut one = Pair::new(&scene, &listener, 7000);
        one.asks(CLIENT_HELLO);
        one.answers(SERVER_HELLO);
        for _ in 0..2 {
            one.asks(APPLICATION_DATA);
            one.answers(b"an answer");
        }
        let before = scene.state().service;
        one.asks(segment);
        let service = scene.state().service;
        assert!(before.is_zero() && !service.is_zero(), "{before:?}, then {service:?}");
    }
}

/// A service that pushes something when its client, after a while, opens a window has not worked for so long: others' places are not
/// kept for them as if it had.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_a_late_notice_teaches_no_pause() {
    let (scene, listener) = served(Protocol::Auto);
    let mut one = Pair::new(&scene, &listener, 7000);
    one.sends(CLIENT_HELLO);
    for port in [7001, 7002] {
        let mut next = Pair::new(&scene, &listener, port);
        one.is_heard(CLIENT_HELLO);
        one.answers(SERVER_HELLO);
        one.asks(APPLICATION_DATA);
        one.answers(b"an answer");
        next.sends(CLIENT_HELLO);
        assert_eq!(scene.waiting(0, 1), 1);
        // Longer than a connection keeps its place before a pause is known.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(scene.counts()[0].waiting, 0);
        one.asks(ACKNOWLEDGEMENT);
        one.answers(b"what the window was opened for");
        one = next;
    }
}

/// Who sends short records for ever, and is never answered, has a place for no longer than any request.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_short_records_keep_no_place() {
    let (scene, listener) = served(Protocol::Auto);
    scene.set(&Settings {
        overdue: Some(Duration::from_millis(500)),
        ..Settings::default()
    });
    let mut hostile = Pair::new(&scene, &listener, 7000);
    let mut other = Pair::new(&scene, &listener, 7001);
    hostile.asks(CLIENT_HELLO);
    hostile.answers(SERVER_HELLO);
    other.sends(CLIENT_HELLO);
    assert_eq!(scene.waiting(0, 1), 1);
    // A connection would rest after a second.
    for _ in 0..8 {
        hostile.asks(ACKNOWLEDGEMENT);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(scene.counts()[0].waiting, 0);
    other.is_heard(CLIENT_HELLO);
    other.answers(SERVER_HELLO);
}
