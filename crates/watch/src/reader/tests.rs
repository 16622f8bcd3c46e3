//! What somebody notices of a host that is slow to read.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::{ArgMatches, Command};
use tarn_base::config::{ConfigError, Section};
use tarn_base::figures::{FigureTable, Figures};
use tarn_base::output::Output;
use tarn_frame::state::{EVENTS, StateDirectory};
use tarn_frame::survey::{Proposal, Survey};
use tarn_frame::{Ability, Configured};

use super::*;

/// How much of a CPU it takes to read the stage.
const SLOW: Duration = Duration::from_millis(300);

static READINGS: AtomicU32 = AtomicU32::new(0);

/// A stage with so many counters that it takes long to read them.
struct Slow;

impl Stage for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn about(&self) -> &'static str {
        "takes its time"
    }

    fn command(&self) -> Command {
        Command::new("slow")
    }

    fn execute(&self, _: &ArgMatches, _: &mut Output) -> Result<()> {
        bail!("it has no verbs")
    }

    fn probe(&self) -> Vec<Ability> {
        Vec::new()
    }

    fn propose(&self, _: &Survey) -> Proposal {
        unreachable!("nobody asks")
    }

    fn configure(&self, _: Section<'_>) -> Result<Box<dyn Configured>, Vec<ConfigError>> {
        Err(Vec::new())
    }

    fn status(&self, _: &StateDirectory) -> Result<Option<Figures>> {
        let began = cpu_time();
        while cpu_time() < began + SLOW {}
        READINGS.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Figures::default()))
    }

    fn detail(&self, _: &StateDirectory, rows: usize) -> Result<Vec<FigureTable>> {
        let name = if rows == 20 { "rows" } else { "other" };
        Ok(vec![FigureTable {
            name,
            ..FigureTable::default()
        }])
    }
}

/// The next sample, at most so much later.
fn next(reader: &mut Reader, limit: Duration) -> Option<Sample> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(sample) = reader.take().unwrap() {
            return Some(sample.unwrap());
        }
        thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Keys are answered while the figures are read; a slow host is not kept busy by being watched; and who opens a stage does not
/// wait for the next update.
#[test]
fn reading_slowly_holds_up_nobody() {
    static STAGES: &[&dyn Stage] = &[&Slow];
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(directory.path(), "netns-test");
    state.create().unwrap();
    let logged = r#"{"at":"1970-01-01T00:00:07Z","stage":"slow","priority":"warning","message":"it was slow"}"#;
    fs::write(state.path().join(EVENTS), format!("{logged}\n")).unwrap();
    let frame = Frame {
        stages: STAGES,
        state,
        rights: |_| Ok(()),
    };
    let began = Instant::now();
    let mut reader = Reader::start(frame, Duration::from_secs(3600)).unwrap();
    assert!(reader.take().unwrap().is_none() && began.elapsed() < SLOW);
    let first = next(&mut reader, Duration::from_secs(30)).unwrap();
    let slow = Event {
        at: 7,
        stage: "slow".to_owned(),
        text: "warning: it was slow".to_owned(),
    };
    assert_eq!((&first.logged[..], first.detail_of(0).len()), (&[slow][..], 0));
    let request = Request {
        opened: vec![0],
        rows: 20,
    };
    let asked = Instant::now();
    reader.ask(request.clone());
    reader.ask(request);
    let second = next(&mut reader, Duration::from_secs(30)).unwrap();
    assert_eq!((second.detail_of(0)[0].name, second.logged.len()), ("rows", 0));
    // Whoever asks for one stage after another does not keep a CPU busy.
    assert!(asked.elapsed() > SLOW * IDLE_FACTOR, "{:?}", asked.elapsed());
    assert!(next(&mut reader, SLOW * 2).is_none());
    assert_eq!(READINGS.load(Ordering::Relaxed), 2);
    assert_eq!(reader.silent_s(), None);
}
