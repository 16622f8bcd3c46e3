//! `tarn up` and `tarn down` killed at every step, with the agent and whatever else they have started.
//!
//! In the lab, time is a count of instructions: what happens so long after a verb was started is the same step each time. Kills
//! are spread evenly over the time in which a verb changes anything.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};

use super::scene::{BOTH, Scene, TARGETS};
use crate::lab::load::{Arrivals, Ping};
use crate::testing::program::Program;
use crate::testing::wait_until;

/// How many kills are spread over a verb.
const KILLS: u32 = 32;
/// So many different states have to have been met, or the kills were not at every step.
const STATES: usize = 6;
/// Between two looks at what a verb has done.
const MOMENT: Duration = Duration::from_micros(500);

/// A host that tarn comes to and leaves again and again.
struct Trial<'a> {
    scene: &'a Scene,
    program: Program<'a>,
    before: BTreeMap<&'static str, String>,
    /// The host's network namespace.
    namespace: PathBuf,
    /// What was found after kills: the journal, and the nexthops in the kernel.
    met: BTreeSet<(Vec<u8>, String)>,
}

impl<'a> Trial<'a> {
    fn new(scene: &'a Scene) -> Self {
        // When the moment to kill has come, this thread has the processor, and everybody else waits.
        let this_thread = gettid().to_string();
        let first = ["--fifo", "--reset-on-fork", "--pid", "1", &this_thread];
        scene.host().run("chrt", &first).unwrap();
        let namespace = || Ok(fs::read_link("/proc/thread-self/ns/net")?);
        Self {
            scene,
            program: Program::new(scene.host(), BOTH),
            before: scene.dump(),
            namespace: scene.host().enter(namespace).unwrap(),
            met: BTreeSet::new(),
        }
    }

    /// When a verb, after it was started, makes its first change and its last one.
    fn span(&self, verb: &str) -> Range<Duration> {
        let journal = self.program.state().path().join("journal");
        let length = || fs::metadata(&journal).map(|found| found.len()).ok();
        let (begin, mut last) = (Instant::now(), length());
        let mut running = self.program.start(verb);
        let mut changes = Vec::new();
        while running.try_wait().unwrap().is_none() {
            if std::mem::replace(&mut last, length()) != last {
                changes.push(begin.elapsed());
            }
            std::thread::sleep(MOMENT);
        }
        // Without anybody who looks on, it is faster.
        let first = changes[0].mul_f64(0.8);
        first..changes[changes.len() - 1]
    }

    /// Starts a verb, and kills everything on the host so long after that.
    fn kill(&mut self, verb: &str, after: Duration) {
        let mut running = self.program.start(verb);
        std::thread::sleep(after);
        for process in self.processes() {
            // It may have ended.
            let _ = kill(process, Signal::SIGKILL);
        }
        running.wait().unwrap();
        wait_until("all are dead", || self.processes().is_empty());
        let journal = fs::read(self.program.state().path().join("journal"));
        let nexthops = self.scene.host().ip("nexthop").unwrap();
        self.met.insert((journal.unwrap_or_default(), nexthops));
    }

    /// The processes that run on the host.
    fn processes(&self) -> Vec<Pid> {
        let names = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
        let numbers = names.filter_map(|name| name.to_str().and_then(|name| name.parse::<i32>().ok()));
        let is_here = |number: &i32| {
            let namespace = fs::read_link(format!("/proc/{number}/ns/net"));
            namespace.is_ok_and(|namespace| namespace == self.namespace)
        };
        numbers.filter(is_here).map(Pid::from_raw).collect()
    }

    /// Puts the host back, at once or after another `tarn up`.
    fn finish(&self, how: Finish) {
        if how == Finish::UpAgain {
            self.program.run("up");
            TARGETS.iter().for_each(|target| self.reaches(target));
        }
        self.program.run("down");
        assert_eq!(self.scene.dump(), self.before);
        assert!(!self.program.state().exists());
    }

    fn reaches(&self, target: &str) {
        let ping = Ping {
            count: 1,
            arrivals: Arrivals::WhenAnswered,
            ..Ping::new(target.parse().unwrap())
        };
        let exchanges = self.scene.host().enter(|| ping.run()).unwrap();
        assert_eq!(exchanges.answered_count(), 1, "{target}");
    }

    fn assert_every_step_was_met(&self) {
        let count = self.met.len();
        assert!(count >= STATES, "only {count} different states were met");
    }
}

/// What is done after a kill.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Finish {
    Down,
    UpAgain,
}

/// Moments spread evenly over a span, with what is to be done after each in turns.
fn moments(span: Range<Duration>) -> impl Iterator<Item = (Duration, Finish)> {
    let finish = |number| if number % 2 == 0 { Finish::Down } else { Finish::UpAgain };
    let moment = move |number| span.start + (span.end - span.start) * number / KILLS;
    (0..KILLS).map(move |number| (moment(number), finish(number)))
}

/// Half of tarn's routes would stay on a host whose memory was short when tarn came up.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_up_that_is_killed_at_any_step() {
    let scene = Scene::new([0, 0]);
    let mut trial = Trial::new(&scene);
    let span = trial.span("up");
    trial.finish(Finish::Down);
    for (moment, finish) in moments(span) {
        trial.kill("up", moment);
        trial.finish(finish);
    }
    trial.assert_every_step_was_met();
}

/// The same on a host that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_a_down_that_is_killed_at_any_step() {
    let scene = Scene::new([0, 0]);
    let mut trial = Trial::new(&scene);
    trial.program.run("up");
    let span = trial.span("down");
    for (moment, finish) in moments(span) {
        trial.program.run("up");
        trial.kill("down", moment);
        trial.finish(finish);
    }
    trial.assert_every_step_was_met();
}
