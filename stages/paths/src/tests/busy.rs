//! A host whose processor is wanted by many.

use std::time::{Duration, Instant};

use tarn_lab::busy::spin;

use super::scene::{BOTH, Scene, await_used, figure};

/// Without it, programs share the processor by sessions, and one that has its own gets half of it.
const BY_SESSION: &str = "/proc/sys/kernel/sched_autogroup_enabled";
/// Threads that never sleep, and go before ordinary ones.
const HOGS: usize = 24;
const BUSY: Duration = Duration::from_secs(3);

/// Burns the processor for a while.
fn burn() -> anyhow::Result<()> {
    // SAFETY: no pointers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    let end = Instant::now() + BUSY;
    while Instant::now() < end {
        spin(1_000);
    }
    Ok(())
}

/// A build or a backup on the router itself would look like two bad uplinks, and send calls to and fro.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_on_a_busy_host_judge_uplinks_and_not_the_host() {
    let scene = Scene::new([10, 30]);
    let program = scene.up_with(BOTH);
    await_used(&program, "wan1");
    let (_, before) = program.command_line("tarn paths history");
    let by_session = std::fs::read_to_string(BY_SESSION);
    let share_by_session = |value: &str| by_session.is_ok().then(|| std::fs::write(BY_SESSION, value).unwrap());
    share_by_session("0");
    let hogs: Vec<_> = (0..HOGS).map(|_| scene.host().spawn("hog", burn).unwrap()).collect();
    hogs.into_iter().for_each(|hog| hog.join().unwrap().unwrap());
    share_by_session(by_session.as_deref().unwrap_or_default());
    std::thread::sleep(Duration::from_secs(2));
    let (_, after) = program.command_line("tarn paths history");
    assert_eq!(after, before);
    for (uplink, most) in [("wan1", 15.0), ("wan2", 35.0)] {
        let row = figure(&program, "round_trips", "default", uplink);
        assert!(row["max"].as_f64().unwrap() < most, "{row}");
    }
    program.run("down");
}
