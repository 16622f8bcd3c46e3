//! What clients send in TLS that asks for nothing, and what only looks like it.

use std::time::Duration;

use super::protocols::{APPLICATION_DATA, CLIENT_HELLO, Pair, SERVER_HELLO, served};
use crate::module::Protocol;

/// As long as a record with HTTP/2's acknowledgement of settings.
const ACKNOWLEDGEMENT: &[u8] = b"\x17\x03\x03\x00\x1aan acknowledgement in here";

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
