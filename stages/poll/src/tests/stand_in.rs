//! Threads that go first, while the agent does something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use tarn_kernel::scheduling::{Policy, policy, set_policy};
use tarn_lab::busy::spin;

use crate::programs::Programs;
use crate::stand_in::StandIn;
use crate::threads::GUARD;

/// Runs `work` as the agent would, beside a thread on the same CPU that goes first and runs for this part of each 10 ms. What that thread's
/// policy is then, whether it has been changed, and how long `work` took.
fn beside_a_thread(runs: Duration, work: Duration) -> (Option<Policy>, bool, Duration) {
    let programs = Programs::load().unwrap();
    let stand_in = StandIn::new(Arc::clone(&programs.maps));
    let is_over = AtomicBool::new(false);
    let mut first = CpuSet::new();
    first.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &first).unwrap();
    set_policy(0, Policy::Fifo(GUARD)).unwrap();
    thread::scope(|scope| {
        let (tell, told) = channel();
        let is_over = &is_over;
        let flood = move || {
            let me = gettid().as_raw();
            set_policy(0, Policy::Ordinary).unwrap();
            tell.send(me).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                spin(runs.as_nanos() as u64);
                thread::sleep(Duration::from_millis(10) - runs);
            }
        };
        // A name that the kernel gives such threads.
        let builder = thread::Builder::new().name("napi/flood".to_owned());
        builder.spawn_scoped(scope, flood).unwrap();
        let thread = told.recv().unwrap();
        assert!(programs.maps.goes_first(thread, Some(1)));
        set_policy(thread, Policy::Fifo(1)).unwrap();
        let began = Instant::now();
        stand_in.while_ordinary(|| spin(work.as_nanos() as u64));
        let took = began.elapsed();
        let found = policy(thread);
        is_over.store(true, Ordering::Relaxed);
        set_policy(0, Policy::Ordinary).unwrap();
        (found, stand_in.take_demoted() == [thread], took)
    })
}

/// Else everything ordinary on that CPU waits for half a second when a flood grows while the agent lists devices.
#[test]
#[ignore = "needs the lab"]
fn lab_threads_that_take_all_of_a_cpu_go_last_while_the_agent_lists_devices() {
    let (found, has_demoted, took) = beside_a_thread(Duration::from_millis(10), Duration::from_millis(5));
    assert!(took < Duration::from_millis(50), "{took:?}");
    assert_eq!((found, has_demoted), (Some(Policy::Ordinary), true));
}

/// In an ordinary storm they go on.
#[test]
#[ignore = "needs the lab"]
fn lab_threads_that_leave_enough_go_first_while_the_agent_lists_devices() {
    let (found, has_demoted, took) = beside_a_thread(Duration::from_millis(5), Duration::from_millis(40));
    assert!(took > Duration::from_millis(60), "{took:?}");
    assert_eq!((found, has_demoted), (Some(Policy::Fifo(1)), false));
}
