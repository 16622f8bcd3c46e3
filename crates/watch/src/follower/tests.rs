//! Whoever follows the events gets each once.

use std::fs;

use tarn_base::output::Priority;

use super::*;

/// Lines of the events file.
fn text(numbers: std::ops::Range<usize>) -> String {
    let event = |number| Event {
        at: "2026-11-20T14:56:00Z".to_owned(),
        stage: "paths".to_owned(),
        priority: Priority::Information,
        message: format!("number {number}"),
    };
    numbers.map(|number| event(number).line().unwrap()).collect()
}

/// Nothing is lost and nothing comes twice when the file is begun anew, a line comes in two parts, everything goes down and up again.
#[test]
fn a_follower_goes_on_with_the_next_file() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(directory.path(), "netns-test");
    fs::create_dir_all(state.path()).unwrap();
    let (path, aside) = (state.path().join("events"), state.path().join("events.1"));
    let mut follower = Follower::of(&state);
    let mut more = || -> Vec<String> {
        let events = follower.more().unwrap();
        events.into_iter().map(|event| event.message).collect()
    };
    let append = |path: &std::path::Path, text: &str| {
        let old = fs::read_to_string(path).unwrap_or_default();
        // In place, as an agent appends.
        let file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), old + text);
    };
    assert!(more().is_empty(), "nothing is up");
    append(&path, &text(1..3));
    assert_eq!(more(), ["number 1", "number 2"]);
    let line = text(3..4);
    append(&path, &line[..20]);
    assert!(more().is_empty());
    append(&path, &line[20..]);
    append(&path, &text(4..5));
    fs::rename(&path, &aside).unwrap();
    append(&path, &text(5..6));
    assert_eq!(more(), ["number 3", "number 4", "number 5"]);
    fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert!(more().is_empty());
    append(&path, &text(6..7));
    assert_eq!(more(), ["number 6"]);
    fs::remove_file(&path).unwrap();
    assert!(more().is_empty());
    append(&path, &text(7..8));
    assert_eq!(more(), ["number 7"]);
}
