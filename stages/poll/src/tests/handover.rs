//! Where even dropping takes all of the CPU.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//! ```

use std::time::Duration;

use tarn_kernel::busy_poll::{Ring, Socket};
use tarn_kernel::scheduling::run_time_ns;
use tarn_lab::testing::Program;

use super::{card, flood, is_left_alone, wait_until};
use crate::proof::rig::Rig;

/// Frames that come by twice in 100 us: ten times what one CPU receives.
const FRAMES: u16 = 143;
const PATIENCE: Duration = Duration::from_secs(5);

fn is_said(program: &Program<'_>, what: &str) -> bool {
    program.command_line("tarn events poll").1.contains(what)
}

/// Without that, the softirq goes on, and the guard has nothing to guard.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_threads_take_over_from_softirqs_that_drop_on_and_on() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let program = Program::new(host, "[poll]\n");
    program.run("up");
    flood(&rig, || rig.begin(FRAMES, 9).unwrap());
    wait_until("threads take over", PATIENCE, || {
        is_said(&program, "its threads have taken over")
    });
    let ran = || card(host).2.and_then(run_time_ns).unwrap_or_default();
    let before = ran();
    std::thread::sleep(Duration::from_millis(500));
    assert!(ran() - before > 100_000_000, "the thread takes a part of the CPU");
    let (device, ..) = card(host);
    let free = host.enter(|| Socket::of_queue(device, 0));
    assert!(free.is_ok(), "no receive queue stays occupied: {:?}", free.err());
    program.run("down");
    rig.flood(false).unwrap();
}

/// Who has a receive queue for a program of their own keeps it.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_a_queue_that_somebody_has_is_said_where_it_is_needed() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let (device, napi, _) = card(host);
    let theirs = host.enter(|| Socket::of_queue(device, 0)).unwrap();
    let program = Program::new(host, "[poll]\n");
    program.run("up");
    flood(&rig, || rig.begin(FRAMES, 9).unwrap());
    let said = match Ring::of_napis(&[napi]) {
        Ok(_) => "its threads have taken over",
        Err(_) => "warning: eth0: softirqs poll on, and its threads cannot take over",
    };
    wait_until(said, PATIENCE, || is_said(&program, said));
    drop(theirs);
    program.run("down");
    rig.flood(false).unwrap();
}
