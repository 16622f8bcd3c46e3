//! What a command of the administrator's is run for, and what it may do.

use std::fs;

use super::*;

fn event(stage: &str, priority: Priority) -> Event {
    Event {
        at: "2026-11-20T14:56:18Z".to_owned(),
        stage: stage.to_owned(),
        priority,
        message: "wan0 \"$(touch /tmp/never)\"; is gone".to_owned(),
    }
}

/// A device's name in a message is no command.
#[test]
fn the_command_finds_the_event_in_its_environment() {
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told");
    let command = format!(
        "echo \"$TARN_AT|$TARN_STAGE|$TARN_PRIORITY|$TARN_MESSAGE\" >{}",
        told.display()
    );
    run(&command, &event("paths", Priority::Warning)).unwrap();
    assert_eq!(
        fs::read_to_string(told).unwrap(),
        "2026-11-20T14:56:18Z|paths|warning|wan0 \"$(touch /tmp/never)\"; is gone\n"
    );
}

/// Nor may one that hangs hold up the next event, or leave processes behind.
#[test]
fn a_command_that_fails_or_hangs_is_reported() {
    let error = run("exit 3", &event("paths", Priority::Error)).unwrap_err();
    assert!(format!("{error:#}").contains("exit status: 3"), "{error:#}");
    let directory = tempfile::tempdir().unwrap();
    let process = directory.path().join("process");
    let command = format!("sleep 300 & echo $! >{}; wait", process.display());
    let error = run(&command, &event("paths", Priority::Error)).unwrap_err();
    assert!(format!("{error:#}").contains("was killed"), "{error:#}");
    let sleeping = format!("/proc/{}/stat", fs::read_to_string(process).unwrap().trim());
    let is_gone = || fs::read_to_string(&sleeping).map_or(true, |stat| stat.contains(") Z "));
    let end = Instant::now() + Duration::from_secs(5);
    while !is_gone() {
        assert!(Instant::now() < end, "what it started lives");
        std::thread::sleep(INTERVAL);
    }
}

#[test]
fn it_is_run_for_what_is_grave_enough_and_not_for_itself() {
    let hook = Hook {
        command: "true".to_owned(),
        least: Priority::Warning,
    };
    let (sender, receiver) = sync_channel(2);
    let lost = AtomicU64::new(0);
    let pass = |stage: &str, priority| pass_on(&hook, &event(stage, priority), &sender, &lost);
    pass("paths", Priority::Notice);
    pass(SELF, Priority::Error);
    for _ in 0..3 {
        pass("paths", Priority::Warning);
    }
    assert_eq!((receiver.try_iter().count(), lost.load(Ordering::Relaxed)), (2, 1));
}
