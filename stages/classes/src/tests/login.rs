//! A login handler that keeps a session while agents replace each other.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use super::program::{Server, Session};
use super::scene::Scene;
use tarn_frame::state::StateDirectory;
use tarn_frame::testing::wait_until;

/// Logs clients in, one after the other, until it is over; connects again when the agent is replaced. `count` is how many.
fn log_in(state: &StateDirectory, count: &AtomicU32, is_over: &AtomicBool) {
    let mut session: Option<Session> = None;
    while !is_over.load(Ordering::SeqCst) {
        let address = Ipv4Addr::from_bits(0x0a01_0000 + count.load(Ordering::SeqCst));
        let call = json!({"stage": "classes", "verb": "add", "arguments": {"address": address, "class": "gold"}});
        let connected = session.take().map_or_else(|| Session::connect(state), Ok);
        let asked = connected.and_then(|mut session| Ok((session.try_ask(&call)?, session)));
        match asked {
            Ok((answer, answered)) if answer["ok"] == true => {
                session = Some(answered);
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok((answer, _)) => assert_eq!(answer["retry"], true, "{answer}"),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Gold would be an unknown client until the next login, each time that somebody runs `tarn up`.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_a_login_handler_loses_no_client_when_the_agent_is_replaced() {
    let scene = Scene::new();
    let program = Server::up(&scene);
    let (state, count, is_over) = (program.state(), AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let handler = scope.spawn(|| log_in(&state, &count, &is_over));
        for _ in 0..3 {
            let before = count.load(Ordering::SeqCst);
            wait_until("clients log in", || {
                count.load(Ordering::SeqCst) > before || handler.is_finished()
            });
            program.up_again();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let listed = program.open().does("list", &json!({}));
    let listed = listed["clients"].as_array().unwrap().len();
    assert_eq!(listed, count.load(Ordering::SeqCst) as usize);
    assert!(listed >= 3);
    program.down();
}
