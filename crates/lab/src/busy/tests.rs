//! Every cost that tarn publishes rests on the meter. These tests hold it against work whose length is known because it
//! was counted out in assembly.

use super::*;
use crate::topology::Namespace;

const BURSTS: u64 = 10;
const BURST: u64 = 20_000_000;

/// A meter of a machine that has forgotten the tests before.
fn settled() -> Meter {
    let meter = Meter::new().unwrap();
    meter.settle(Duration::from_secs(60)).unwrap();
    meter
}

/// Runs bursts of `instructions`, each after as long a sleep; what the meter says in all.
fn bursts(meter: &Meter, instructions: u64) -> Busy {
    let work = || {
        (0..BURSTS).try_for_each(|_| {
            sleep_until(monotonic_ns() + BURST)?;
            spin(instructions);
            Ok(())
        })
    };
    meter.measure(work).unwrap().1
}

#[test]
#[ignore = "needs the lab"]
fn lab_busy_finds_work_of_known_length_between_sleeps() {
    let meter = settled();
    // Without sleep the clock alone says how long the work takes, timer ticks included.
    let start = monotonic_ns();
    (0..BURSTS).for_each(|_| spin(BURST));
    let by_clock = monotonic_ns() - start;
    let (empty, full) = (bursts(&meter, 0), bursts(&meter, BURST));
    println!("own {}, empty {empty:?}, full {full:?}", meter.own_cost());
    let found = full.busy_ns - empty.busy_ns;
    println!("{} instructions, {by_clock} with ticks, found {found}", BURSTS * BURST);
    // Not less than the work, and not more than the work with every tick that it could meet.
    assert!(found as f64 >= (BURSTS * BURST) as f64 * 0.999 && found as f64 <= by_clock as f64 * 1.001);
    assert!(
        (by_clock as f64) < (BURSTS * BURST) as f64 * 1.005,
        "something else ran"
    );
    assert!(full.sleeps >= BURSTS);
}

#[test]
#[ignore = "needs the lab"]
fn lab_busy_finds_work_of_known_length_on_every_cpu_at_once() {
    let meter = settled();
    let run = |instructions| {
        let mut cpus = 0;
        let mut threads = Vec::new();
        on_every_cpu(|cpu| {
            cpus += 1;
            threads.push(move || {
                move_to(cpu).unwrap();
                for _ in 0..100 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    spin(instructions);
                }
            });
            Ok(())
        })
        .unwrap();
        let work = || {
            std::thread::scope(|scope| threads.into_iter().for_each(|work| drop(scope.spawn(work))));
            Ok(())
        };
        (meter.measure(work).unwrap().1, cpus)
    };
    run(1000);
    let (empty, _) = run(0);
    let (full, cpus) = run(3_000_000);
    println!("{cpus} CPUs, own {}, empty {empty:?}, full {full:?}", meter.own_cost());
    let (work, found) = (cpus * 100 * 3_000_000, full.busy_ns - empty.busy_ns);
    assert!(
        found as f64 >= work as f64 * 0.999 && found as f64 <= work as f64 * 1.005,
        "{found} of {work}"
    );
}

#[test]
#[ignore = "needs the lab"]
fn lab_busy_finds_work_of_known_length_without_sleep() {
    let meter = Meter::new().unwrap();
    for instructions in [1_000, 10_000, 100_000] {
        // The least of some: the others met a tick.
        let least = (0..20)
            .map(|_| {
                let running = meter.start();
                spin(instructions);
                running.stop()
            })
            .min_by_key(|busy| busy.busy_ns);
        let least = least.unwrap();
        println!("own {}, {instructions} instructions: {least:?}", meter.own_cost());
        assert!(least.busy_ns.abs_diff(instructions) <= 60, "{least:?}");
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_busy_does_not_count_sleep() {
    let meter = settled();
    let sleep = |seconds: u64| {
        let until = monotonic_ns() + seconds * 1_000_000_000;
        meter.measure(|| sleep_until(until)).unwrap().1
    };
    let (short, long) = (sleep(1), sleep(2));
    println!("own {}, short {short:?}, long {long:?}", meter.own_cost());
    assert!(long.elapsed_ns > 2_000_000_000);
    // What a kernel does by itself in two seconds of sleep is little.
    assert!(long.busy_ns < 5_000_000, "{long:?}");
}

/// Without the wait, what frees one case's network would be charged to the next case.
#[test]
#[ignore = "needs the lab"]
fn lab_what_was_set_going_before_is_over_after_settling() {
    let meter = Meter::new().unwrap();
    let second = |meter: &Meter| {
        let until = monotonic_ns() + 1_000_000_000;
        meter.measure(|| sleep_until(until)).unwrap().1
    };
    let make = || (0..20).map(|_| Namespace::new("given up").unwrap()).collect::<Vec<_>>();
    drop(make());
    let before = second(&meter);
    drop(make());
    meter.settle(Duration::from_secs(60)).unwrap();
    let after = second(&meter);
    println!("without settling {before:?}, with {after:?}");
    assert!(before.busy_ns > 10 * after.busy_ns, "nothing was set going");
    assert!(after.busy_ns <= 2 * BY_ITSELF, "{after:?}");
    assert!(meter.settle(Duration::ZERO).is_ok());
}
