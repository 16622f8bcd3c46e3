//! A journal that was lost while something is up is not taken for one of a host where nothing is: what is up would stay for good.

use std::fs;

use super::*;

/// A journal's file of a host where an `up` has completed, with the file of a stage beside it.
fn up() -> (Fixture, String) {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    journal.begin().unwrap();
    journal.record("redirect", table("a")).unwrap();
    keep_file(&fixture);
    journal.complete().unwrap();
    let text = fs::read_to_string(fixture.file()).unwrap();
    (fixture, text)
}

fn keep_file(fixture: &Fixture) {
    fs::write(fixture.state.path().join("redirect.json"), "{}").unwrap();
}

/// The first lines of a journal.
fn first(text: &str, lines: usize) -> String {
    text.split_inclusive('\n').take(lines).collect()
}

#[test]
fn a_journal_without_changes_is_an_error_where_something_is_up() {
    let (fixture, text) = up();
    let is_refused = |what: &str| {
        let error = format!("{:#}", fixture.try_open().expect_err(what));
        let is_told = error.contains("empty, damaged or gone") && error.contains("redirect.json");
        assert!(is_told, "{what}: {error}");
    };
    for (what, left) in [
        ("empty", Vec::new()),
        ("a line break", b"\n".to_vec()),
        ("a brace", b"{".to_vec()),
        ("zeros", vec![0; 300]),
        ("half a header", text.as_bytes()[..40].to_vec()),
        (
            "half a header and a line break",
            [&text.as_bytes()[..40], b"\n"].concat(),
        ),
        ("no header", text.split_inclusive('\n').nth(1).unwrap().into()),
        ("a header", first(&text, 1).into()),
        ("a header and half a line", (first(&text, 1) + "{\"beg").into()),
        ("a header and a beginning", first(&text, 2).into()),
    ] {
        fs::write(fixture.file(), left).unwrap();
        is_refused(what);
    }
    fs::remove_file(fixture.file()).unwrap();
    is_refused("gone");
    fs::write(fixture.file(), text).unwrap();
    assert_eq!(fixture.open().changes("redirect").count(), 1);
}

#[test]
fn without_a_stage_s_file_a_journal_without_changes_is_none() {
    let fixture = Fixture::new();
    fixture.state.create().unwrap();
    for file in ["lock", "agent", "control.sock", "log", "journal.completed"] {
        fs::write(fixture.state.path().join(file), "").unwrap();
    }
    for left in ["", "{", "\n"] {
        fs::write(fixture.file(), left).unwrap();
        assert!(fixture.open().is_empty(), "a crash before the first line was written");
    }
}

/// `redirect` keeps its rules before its first change where the host forwards already; `poll` may change nothing at all.
#[test]
fn a_first_up_that_was_killed_before_its_first_change_is_finished() {
    let fixture = Fixture::new();
    fixture.open().begin().unwrap();
    keep_file(&fixture);
    let mut journal = fixture.open();
    assert!(journal.is_unfinished());
    journal.undo_unfinished().unwrap();
    // Killed again in the next one, and in one after one that has changed nothing.
    for _ in 0..2 {
        journal.begin().unwrap();
        journal = fixture.open();
        assert!(journal.is_unfinished());
        journal.complete().unwrap();
    }
    assert!(fixture.open().is_empty());
}

/// Its files are removed after the last change was undone.
#[test]
fn a_down_that_was_killed_before_it_removed_the_files_is_finished() {
    let (fixture, _) = up();
    fixture.open().undo(None).unwrap();
    assert!(fixture.open().is_empty());
    fixture.open().begin().unwrap();
    assert!(fixture.open().is_unfinished());
}

/// Neither a full disk nor a long life makes a journal of which all was undone look like one that was lost.
#[test]
fn a_journal_that_was_shortened_says_that_nothing_stands() {
    let (fixture, _) = up();
    let mut journal = fixture.open();
    journal.file = Some(File::open(fixture.file()).unwrap());
    journal.undo(None).unwrap();
    let text = fs::read_to_string(fixture.file()).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    let mut journal = fixture.open();
    assert!(journal.is_empty() && !journal.is_unfinished());
    journal.begin().unwrap();
    for _ in 0..DEAD_LINES_LIMIT {
        let id = journal.record("redirect", table("comes and goes")).unwrap();
        journal.forget(id).unwrap();
    }
    journal.compact().unwrap();
    assert!(fixture.open().is_unfinished());
    // Nothing but beginnings and ends, as of a stage that changes nothing.
    let mut journal = fixture.open();
    journal.file = Some(File::open(fixture.file()).unwrap());
    journal.undo_unfinished().unwrap();
    assert!(!fixture.open().is_unfinished());
}

#[test]
fn what_an_earlier_boot_has_left_beside_a_journal_that_begins_is_no_sign_of_damage() {
    let (fixture, _) = up();
    let mut journal = Journal::open_in_boot(STAGES, &fixture.state, "the next boot".into()).unwrap();
    journal.begin().unwrap();
    let journal = Journal::open_in_boot(STAGES, &fixture.state, "the next boot".into()).unwrap();
    assert!(journal.is_unfinished());
}
