//! What a user would lose if the journal lost, doubled or invented a change.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::testing::STAGES;
use tarn_kernel::attach::{Direction, XdpMode};

mod damage;

const BOOT: &str = "a-boot";

struct Fixture {
    directory: tempfile::TempDir,
    state: StateDirectory,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(directory.path(), "state");
        Self { directory, state }
    }

    fn open(&self) -> Journal {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Journal> {
        Journal::open_in_boot(STAGES, &self.state, BOOT.to_string())
    }

    fn file(&self) -> PathBuf {
        self.state.path().join("journal")
    }

    /// A value that tarn has changed from `before` to `after`.
    fn value(&self, name: &str, before: u32, after: u32) -> Change {
        let path = self.directory.path().join(name);
        std::fs::write(&path, format!("{after}\n")).unwrap();
        let path = path.display().to_string();
        Change::Sysctl {
            path,
            before: before.to_string(),
            after: after.to_string(),
        }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name))
            .unwrap()
            .trim()
            .to_string()
    }
}

fn table(name: &str) -> Change {
    Change::NftTable {
        family: "inet".into(),
        name: name.into(),
    }
}

#[test]
fn nothing_is_written_until_something_changes() {
    let fixture = Fixture::new();
    assert!(fixture.open().is_empty());
    assert!(!fixture.state.exists());
}

#[test]
fn every_sort_of_change_is_read_back_as_it_was_written() {
    let interface = || "eth0".to_string();
    let all = vec![
        Change::Sysctl {
            path: "/proc/sys/a".into(),
            before: "1 2".into(),
            after: "3".into(),
        },
        table("tarn"),
        Change::Qdisc {
            interface: interface(),
            index: 2,
        },
        Change::TcFilter {
            index: 2,
            interface: interface(),
            direction: Direction::Ingress,
            handle: 1,
            priority: 2,
            program_id: 3,
        },
        Change::Tcx {
            index: 2,
            interface: interface(),
            direction: Direction::Egress,
            program_id: 7,
        },
        Change::Xdp {
            index: 2,
            interface: interface(),
            program_id: 7,
            mode: XdpMode::Native,
        },
        Change::XdpNext {
            index: 2,
            interface: interface(),
            program_id: 8,
        },
        Change::Module {
            name: "tarn_classes".into(),
        },
        Change::ModuleConfiguration {
            family: "tarn_classes".into(),
            version: 1,
            stop: 2,
        },
    ];
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    for change in &all {
        journal.record("redirect", change.clone()).unwrap();
        assert!(!change.subject().is_empty());
    }
    let read: Vec<Change> = fixture
        .open()
        .changes("redirect")
        .map(|(_, change)| change.clone())
        .collect();
    assert_eq!(read, all);
}

#[test]
fn changes_are_undone_from_the_newest_to_the_oldest() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    for (before, after) in [(1, 2), (2, 3), (3, 4)] {
        journal.record("pace", fixture.value("a", before, after)).unwrap();
    }
    let summary = journal.undo(None).unwrap();
    assert_eq!((summary.put_back, fixture.read("a").as_str()), (3, "1"));
    assert!(fixture.open().is_empty());
}

#[test]
fn a_crash_while_undoing_does_no_harm() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    journal.record("pace", fixture.value("b", 5, 6)).unwrap();
    let before = std::fs::read(fixture.file()).unwrap();
    journal.undo(None).unwrap();
    // Everything was undone, and nothing of that has reached the journal.
    std::fs::write(fixture.file(), before).unwrap();
    let summary = fixture.open().undo(None).unwrap();
    assert_eq!((summary.put_back, summary.gone), (0, 2));
    assert_eq!((fixture.read("a").as_str(), fixture.read("b").as_str()), ("1", "5"));
}

#[test]
fn one_stage_is_undone_without_the_others() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    journal.record("poll", fixture.value("b", 1, 2)).unwrap();
    journal.undo(Some("pace")).unwrap();
    assert_eq!((fixture.read("a").as_str(), fixture.read("b").as_str()), ("1", "2"));
    assert_eq!(fixture.open().stages(), ["poll"]);
}

#[test]
fn an_interrupted_up_is_told_from_what_was_up_before() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    journal.begin().unwrap();
    journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    journal.complete().unwrap();
    journal.record("pace", fixture.value("b", 1, 2)).unwrap();
    assert!(
        !fixture.open().is_unfinished(),
        "a change by a running stage is no interrupted up"
    );
    journal.begin().unwrap();
    journal.record("pace", fixture.value("c", 1, 2)).unwrap();
    let mut journal = fixture.open();
    assert!(journal.is_unfinished());
    journal.undo_unfinished().unwrap();
    assert!(!fixture.open().is_unfinished());
    assert_eq!(["a", "b", "c"].map(|name| fixture.read(name)), ["2", "2", "1"]);
}

/// After an `up` that was killed, `tarn redirect add` turns forwarding on. The next `up` put that back and turned it on again:
/// what was sent in between was lost.
#[test]
fn what_a_verb_changes_after_an_interrupted_up_stays() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    journal.begin().unwrap();
    journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    let mut journal = fixture.open();
    journal.record("pace", fixture.value("b", 1, 2)).unwrap();
    let mut journal = fixture.open();
    journal.undo_unfinished().unwrap();
    assert_eq!(["a", "b"].map(|name| fixture.read(name)), ["1", "2"]);
    let mut journal = fixture.open();
    journal.begin().unwrap();
    journal.record("pace", fixture.value("c", 1, 2)).unwrap();
    fixture.open().undo_unfinished().unwrap();
    assert_eq!(["b", "c"].map(|name| fixture.read(name)), ["2", "1"]);
    fixture.open().undo(None).unwrap();
    assert_eq!(fixture.read("b"), "1");
}

#[test]
fn what_cannot_be_put_back_is_kept_and_told_and_the_rest_is_put_back() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    let directory = fixture.directory.path().display().to_string();
    journal
        .record(
            "pace",
            Change::Sysctl {
                path: directory.clone(),
                before: "1".into(),
                after: "2".into(),
            },
        )
        .unwrap();
    let told = journal.undo(None).unwrap_err().to_string();
    assert!(
        told.contains(&directory) && told.contains("run `tarn down` again"),
        "{told}"
    );
    assert_eq!(fixture.read("a"), "1");
    assert_eq!(fixture.open().changes("pace").count(), 1);
}

#[test]
fn a_journal_that_cannot_be_written_keeps_nothing_from_being_put_back() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    for name in ["a", "b", "c"] {
        journal.record("pace", fixture.value(name, 1, 2)).unwrap();
    }
    // As on a full disk: the file cannot grow.
    journal.file = Some(File::open(fixture.file()).unwrap());
    assert_eq!(journal.undo(None).unwrap().put_back, 3);
    assert_eq!(["a", "b", "c"].map(|name| fixture.read(name)), ["1", "1", "1"]);
    assert!(fixture.open().is_empty());
    assert!(journal.record("pace", table("next")).is_ok());
    assert_eq!(fixture.open().changes("pace").count(), 1);
}

#[test]
fn what_a_stage_undid_itself_is_not_undone_again() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    let id = journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    journal.forget(id).unwrap();
    journal.forget(id).unwrap();
    let mut journal = fixture.open();
    journal.undo(None).unwrap();
    assert_eq!(fixture.read("a"), "2");
    let next = journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    assert!(next > id, "a number is never given twice");
}

#[test]
fn what_took_the_place_of_an_older_change_survives_an_up_that_fails() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    let old = journal.record("pace", fixture.value("a", 1, 2)).unwrap();
    journal.begin().unwrap();
    let new = journal.record("pace", fixture.value("a", 1, 3)).unwrap();
    journal.supersede(old, new).unwrap();
    journal.record("pace", fixture.value("b", 1, 2)).unwrap();
    let mut journal = fixture.open();
    journal.undo_unfinished().unwrap();
    assert_eq!((fixture.read("a").as_str(), fixture.read("b").as_str()), ("3", "1"));
    let mut journal = fixture.open();
    assert_eq!(journal.changes("pace").map(|(id, _)| id).collect::<Vec<_>>(), [old]);
    journal.undo(None).unwrap();
    assert_eq!(fixture.read("a"), "1");
}

#[test]
fn a_change_that_cannot_be_recorded_is_not_to_be_made() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    fixture.state.create().unwrap();
    // Opened before the disk is full: reading /dev/full would never end.
    std::os::unix::fs::symlink("/dev/full", fixture.file()).unwrap();
    assert!(journal.record("pace", table("a")).is_err());
    assert!(journal.is_empty());
}

#[test]
fn after_a_reboot_there_is_nothing_to_undo() {
    let fixture = Fixture::new();
    fixture.open().record("pace", fixture.value("a", 1, 2)).unwrap();
    let mut journal = Journal::open_in_boot(&[], &fixture.state, "the next boot".into()).unwrap();
    assert!(journal.is_empty());
    journal.record("pace", table("b")).unwrap();
    let journal = Journal::open_in_boot(&[], &fixture.state, "the next boot".into()).unwrap();
    assert_eq!(journal.changes("pace").count(), 1);
}

#[test]
fn a_newer_version_s_changes_are_refused_and_not_forgotten() {
    let fixture = Fixture::new();
    fixture.open().record("pace", table("a")).unwrap();
    let whole = std::fs::read_to_string(fixture.file()).unwrap();
    for (line, told) in [
        (
            r#"{"change":{"id":2,"stage":"first","change":{"kind":"teleport","to":"mars"}}}"#,
            "teleport",
        ),
        (
            r#"{"change":{"id":2,"stage":"first","change":{"kind":"nft-table","family":"inet","name":"a","depth":2}}}"#,
            "depth",
        ),
        (r#"{"header":{"format":2,"tarn":"9.0.0","boot":"a-boot"}}"#, "format 2"),
    ] {
        std::fs::write(fixture.file(), format!("{whole}{line}\n")).unwrap();
        let error = format!("{:#}", fixture.try_open().unwrap_err());
        assert!(
            error.contains(told) && error.contains("line 3") && error.contains("use that version"),
            "{error}"
        );
        assert!(
            std::fs::read_to_string(fixture.file())
                .unwrap()
                .ends_with(&format!("{line}\n"))
        );
    }
}

#[test]
fn damage_in_the_middle_is_told_with_its_line() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    for name in ["a", "b", "c"] {
        journal.record("pace", table(name)).unwrap();
    }
    let mut lines: Vec<String> = std::fs::read_to_string(fixture.file())
        .unwrap()
        .lines()
        .map(String::from)
        .collect();
    lines[2] = "{\"change\":{\"id\"".to_string();
    std::fs::write(fixture.file(), lines.join("\n") + "\n").unwrap();
    let error = fixture.try_open().unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("damaged"), "{error}");
}

#[test]
fn a_long_life_does_not_fill_the_memory() {
    let fixture = Fixture::new();
    let mut journal = fixture.open();
    journal.record("pace", table("stays")).unwrap();
    journal.begin().unwrap();
    let unfinished = journal.record("pace", table("unfinished")).unwrap();
    for _ in 0..DEAD_LINES_LIMIT + 10 {
        let id = journal.record("pace", table("comes and goes")).unwrap();
        journal.forget(id).unwrap();
    }
    let lines = std::fs::read_to_string(fixture.file()).unwrap().lines().count();
    assert!(lines <= DEAD_LINES_LIMIT + 8, "{lines}");
    let read = fixture.open();
    assert_eq!(read.changes, journal.changes);
    assert_eq!((read.next_id, read.unfinished), (journal.next_id, Some(unfinished)));
}

/// One thing done to a journal.
#[derive(Debug, Clone)]
enum Step {
    Record(String),
    Forget(usize),
    Supersede(usize, usize),
    Begin,
    Complete,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => "[a-z\"\\\\\n é]{0,12}".prop_map(Step::Record),
        2 => (0usize..8).prop_map(Step::Forget),
        2 => (0usize..4, 0usize..8).prop_map(|(old, new)| Step::Supersede(old, new)),
        1 => Just(Step::Begin),
        1 => Just(Step::Complete),
        1 => Just(Step::Reopen),
    ]
}

/// What stands: the changes by number, and the first number of an unfinished `up`.
type Standing = (BTreeMap<u64, String>, Option<u64>);

fn standing(journal: &Journal) -> Standing {
    let name = |change: &Change| match change {
        Change::NftTable { name, .. } => name.clone(),
        other => panic!("{other:?}"),
    };
    let changes = journal.changes("pace").map(|(id, change)| (id, name(change))).collect();
    (changes, journal.unfinished)
}

/// Does the steps, and tells after each how long the file is and what stands.
fn play(fixture: &Fixture, steps: Vec<Step>) -> Vec<(u64, Standing)> {
    let mut journal = fixture.open();
    let mut course = vec![(0, standing(&journal))];
    for step in steps {
        match step {
            Step::Record(name) => drop(journal.record("pace", table(&name)).unwrap()),
            Step::Forget(index) => {
                let id = journal.changes("pace").nth(index).map_or(99, |(id, _)| id);
                journal.forget(id).unwrap();
            }
            Step::Supersede(old, new) => {
                let id = |index| journal.changes("pace").nth(index).map_or(99, |(id, _)| id);
                let (old, new) = (id(old), id(new));
                journal.supersede(old, new).unwrap();
            }
            Step::Begin => journal.begin().unwrap(),
            Step::Complete => journal.complete().unwrap(),
            Step::Reopen => journal = fixture.open(),
        }
        let length = std::fs::metadata(fixture.file()).map_or(0, |metadata| metadata.len());
        course.push((length, standing(&journal)));
    }
    course
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_crash_at_any_byte_loses_only_the_change_that_was_not_made_yet(
        steps in proptest::collection::vec(step(), 1..12),
        cut in 0.0f64..=1.0,
        garbage in prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 0..20), Just(vec![0; 9])],
    ) {
        let fixture = Fixture::new();
        let course = play(&fixture, steps);
        prop_assume!(fixture.file().exists());
        let bytes = std::fs::read(fixture.file()).unwrap();
        let cut = (bytes.len() as f64 * cut) as usize;
        // What is behind the last whole line is what the crash left of the next one.
        let whole = bytes[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut torn = bytes[..cut].to_vec();
        torn.extend(garbage.iter().filter(|byte| **byte != b'\n'));
        std::fs::write(fixture.file(), &torn).unwrap();
        let expected = course.iter().rev().find(|(length, _)| *length <= whole as u64).unwrap();
        let mut journal = fixture.open();
        prop_assert_eq!(standing(&journal).0, expected.1.0.clone());
        prop_assert_eq!(journal.unfinished.is_some(), expected.1.1.is_some());
        // And life goes on: what is recorded next is not spoilt by the torn end.
        let id = journal.record("pace", table("next")).unwrap();
        let read = fixture.open();
        prop_assert_eq!(standing(&read), standing(&journal));
        prop_assert!(read.changes("pace").any(|(other, _)| other == id));
    }

    #[test]
    fn no_file_makes_it_fail_other_than_by_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let fixture = Fixture::new();
        fixture.state.create().unwrap();
        std::fs::write(fixture.file(), bytes).unwrap();
        let _ = fixture.try_open();
    }
}

/// What an `up` no longer needs goes, and nothing else; what it needs again is not put back twice.
#[test]
fn some_changes_of_a_stage_are_put_back_and_a_change_is_recorded_once() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.value("one", 1, 2), fixture.value("two", 1, 2));
    let mut journal = fixture.open();
    for change in [&one, &two, &one] {
        journal.record_once("pace", change.clone()).unwrap();
    }
    journal.record("poll", one.clone()).unwrap();
    assert_eq!(journal.undo_of("pace", |change| *change == two).unwrap().put_back, 1);
    assert_eq!((fixture.read("one"), fixture.read("two")), ("2".into(), "1".into()));
    let left: Vec<Change> = fixture
        .open()
        .changes("pace")
        .map(|(_, change)| change.clone())
        .collect();
    assert_eq!(left, [one]);
}
