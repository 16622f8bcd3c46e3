//! A host on which tarn is killed at every step of what it does, with the agent and whatever else it has started.
//!
//! In the lab, time is a count of instructions: what happens so long after a verb was started is the same step each time. Kills
//! are spread evenly over the time in which anything changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};

use super::pins::marked;
use super::scene::{Scene, TARGETS};
use tarn_frame::testing::wait_until;
use tarn_lab::load::{Arrivals, Ping};
use tarn_lab::testing::Program;

/// Between two looks at what a verb has done.
const MOMENT: Duration = Duration::from_micros(500);
/// What a verb has asked the agent for is done so long after it at the latest.
const QUIET: Duration = Duration::from_millis(200);

/// A host that tarn comes to and leaves again and again.
pub struct Trial<'a> {
    scene: &'a Scene,
    pub program: Program<'a>,
    /// The file that grows or shrinks with each change.
    told_by: PathBuf,
    before: BTreeMap<&'static str, String>,
    /// Who answered before tarn came, and has to answer ever after.
    reached: Vec<&'static str>,
    /// The host's network namespace.
    namespace: PathBuf,
    /// What was found after kills: how much was told, the nexthops in the kernel, and the rules of nftables.
    met: BTreeSet<(Option<u64>, String, String)>,
}

impl<'a> Trial<'a> {
    /// `told_by` is a file in the state directory that grows or shrinks with each change.
    pub fn new(scene: &'a Scene, configuration: &str, told_by: &str) -> Self {
        // When the moment to kill has come, this thread has the processor, and everybody else waits.
        let this_thread = gettid().to_string();
        let first = ["--fifo", "--reset-on-fork", "--pid", "1", &this_thread];
        scene.host().run("chrt", &first).unwrap();
        let namespace = || Ok(fs::read_link("/proc/thread-self/ns/net")?);
        let program = Program::new(scene.host(), configuration);
        Self {
            scene,
            told_by: program.state().path().join(told_by),
            program,
            before: look(scene),
            reached: TARGETS.into_iter().filter(|target| answers(scene, target)).collect(),
            namespace: scene.host().enter(namespace).unwrap(),
            met: BTreeSet::new(),
        }
    }

    /// When a verb, after it was started, makes its first change and its last one.
    pub fn span(&self, verb: &str) -> Range<Duration> {
        let (begin, mut last) = (Instant::now(), self.told());
        let mut running = self.program.start(verb);
        let (mut changes, mut ran) = (Vec::new(), begin);
        while ran.elapsed() < QUIET {
            if std::mem::replace(&mut last, self.told()) != last {
                changes.push(begin.elapsed());
            }
            if running.try_wait().unwrap().is_none() {
                ran = Instant::now();
            }
            std::thread::sleep(MOMENT);
        }
        running.wait().unwrap();
        changes[0]..changes[changes.len() - 1]
    }

    /// How much is told of what was changed.
    fn told(&self) -> Option<u64> {
        fs::metadata(&self.told_by).map(|found| found.len()).ok()
    }

    /// Starts a verb, and kills everything on the host so long after that.
    pub fn kill(&mut self, verb: &str, after: Duration) {
        self.reaches(&self.reached); // its connections are under way then
        let mut running = self.program.start(verb);
        std::thread::sleep(after);
        for process in self.processes() {
            // It may have ended.
            let _ = kill(process, Signal::SIGKILL);
        }
        running.wait().unwrap();
        wait_until("all are dead", || self.processes().is_empty());
        let nexthops = self.scene.host().ip("nexthop").unwrap();
        self.met.insert((self.told(), nexthops, rules(self.scene)));
        self.reaches(&self.reached);
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
    pub fn finish(&self, how: Finish) {
        if how == Finish::UpAgain {
            self.program.run("up");
            self.reaches(&TARGETS);
        }
        self.program.run("down");
        assert_eq!(look(self.scene), self.before);
        assert!(!self.program.state().exists());
    }

    /// All of them answer the host.
    pub fn reaches(&self, targets: &[&str]) {
        for target in targets {
            assert!(answers(self.scene, target), "{target} does not answer");
        }
    }

    /// Fewer different states would mean that the kills were not at every step.
    pub fn assert_met(&self, states: usize) {
        let count = self.met.len();
        assert!(count >= states, "only {count} different states were met");
    }
}

/// All that tarn has to leave as it was: what an administrator sees, and the marks of connections.
fn look(scene: &Scene) -> BTreeMap<&'static str, String> {
    let mut look = scene.dump();
    look.insert("nft list ruleset", rules(scene));
    look.insert("marked connections", marked(scene).to_string());
    look
}

fn rules(scene: &Scene) -> String {
    scene.host().run("nft", &["--stateless", "list", "ruleset"]).unwrap()
}

fn answers(scene: &Scene, target: &str) -> bool {
    let ping = Ping {
        count: 1,
        arrivals: Arrivals::WhenAnswered,
        ..Ping::new(target.parse().unwrap())
    };
    scene.host().enter(|| ping.run()).unwrap().answered_count() == 1
}

/// What is done after a kill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finish {
    Down,
    UpAgain,
}

/// So many moments spread evenly over a span, with what is to be done after each in turns.
pub fn moments(span: Range<Duration>, kills: u32) -> impl Iterator<Item = (Duration, Finish)> {
    let finish = |number| if number % 2 == 0 { Finish::Down } else { Finish::UpAgain };
    let moment = move |number| span.start + (span.end - span.start) * number / kills;
    (0..kills).map(move |number| (moment(number), finish(number)))
}
