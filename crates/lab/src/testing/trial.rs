//! A host on which tarn is killed at every step of what it does, with the agent and whatever else it has started.
//!
//! A change is reported in a file before it is made. The kernel reports each write of that file to the test, which has the
//! processor at once: so a kill comes between the report and the change, or a moment later, whatever this machine's speed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::fcntl::AT_FDCWD;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};

use tarn_frame::testing::wait_until;

use super::{Program, is_thorough, seed};
use crate::topology::Namespace;

/// The file that reports every change that a verb makes.
const JOURNAL: &str = "journal";
/// So long after its report a change is under way or just made.
const LATER: Duration = Duration::from_micros(60);
/// What a verb has asked the agent for is done so long after it at the latest.
const QUIET: Duration = Duration::from_millis(200);

/// A host of a stage, as a trial sees it.
pub trait Subject {
    /// The host.
    fn host(&self) -> &Namespace;
    /// All that tarn has to leave as it was.
    fn look(&self) -> BTreeMap<&'static str, String>;
    /// What of the kernel's tells one step from another.
    fn step(&self) -> String;
    /// Panics when traffic does not pass; `up`: tarn has come up, and was not killed since.
    fn works(&self, up: bool);
}

/// A host that tarn comes to and leaves again and again.
pub struct Trial<'a, S> {
    subject: &'a S,
    /// Tarn there.
    pub program: Program<'a>,
    /// The file that grows or shrinks with each change.
    told_by: PathBuf,
    before: BTreeMap<&'static str, String>,
    /// The host's network namespace.
    namespace: PathBuf,
    /// What was found after kills: how much was told, and the kernel's step.
    met: BTreeSet<(Option<u64>, String)>,
}

impl<'a, S: Subject> Trial<'a, S> {
    /// `told_by` is a file in the state directory that grows or shrinks with each change.
    pub fn new(subject: &'a S, configuration: &str, told_by: &str) -> Self {
        // When the moment to kill has come, this thread has the processor, and everybody else waits.
        let this_thread = gettid().to_string();
        let first = ["--fifo", "--reset-on-fork", "--pid", "1", &this_thread];
        subject.host().run("chrt", &first).unwrap();
        let namespace = || Ok(fs::read_link("/proc/thread-self/ns/net")?);
        let program = Program::new(subject.host(), configuration);
        Self {
            subject,
            told_by: program.state().path().join(told_by),
            program,
            before: subject.look(),
            namespace: subject.host().enter(namespace).unwrap(),
            met: BTreeSet::new(),
        }
    }

    /// How many changes a verb reports when nobody kills it.
    pub fn changes(&self, verb: &str) -> u32 {
        let mut looker = Looker::new(&self.told_by);
        let mut running = self.program.start(verb);
        let changes = looker.follow(&mut running, u32::MAX);
        assert!(running.wait().unwrap().success(), "tarn {verb}");
        changes
    }

    /// Starts a verb, and kills everything on the host at that moment.
    pub fn kill(&mut self, verb: &str, moment: Moment) {
        self.subject.works(false); // its connections are under way then
        let told_by = self.told_by.clone();
        let mut looker = Looker::new(&told_by);
        let mut running = self.program.start(verb);
        looker.follow(&mut running, moment.changes);
        std::thread::sleep(moment.delay);
        for process in self.processes() {
            // It may have ended.
            let _ = kill(process, Signal::SIGKILL);
        }
        // Not before: the kernel ends a watch by waiting, while the verb would go on.
        drop(looker);
        running.wait().unwrap();
        wait_until("all are dead", || self.processes().is_empty());
        self.met.insert((told(&self.told_by), self.subject.step()));
        self.subject.works(false);
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
            self.subject.works(true);
        }
        self.program.run("down");
        assert_eq!(self.subject.look(), self.before);
        assert!(!self.program.state().exists());
    }

    /// Fewer different states would mean that the kills were not at every step.
    pub fn assert_met(&self, states: usize) {
        let count = self.met.len();
        let states = if is_thorough() { states } else { states.div_ceil(2) };
        assert!(
            count >= states,
            "only {count} different states were met: {:#?}",
            self.met
        );
    }
}

/// Has `tarn up` killed at every step, and the host put back each time.
pub fn kill_up(subject: &impl Subject, configuration: &str, states: usize) {
    let mut trial = Trial::new(subject, configuration, JOURNAL);
    let changes = trial.changes("up");
    trial.finish(Finish::Down);
    for (moment, finish) in moments(changes) {
        trial.kill("up", moment);
        trial.finish(finish);
    }
    trial.assert_met(states);
}

/// The same of `tarn down`.
pub fn kill_down(subject: &impl Subject, configuration: &str, states: usize) {
    let mut trial = Trial::new(subject, configuration, JOURNAL);
    trial.program.run("up");
    let changes = trial.changes("down");
    for (moment, finish) in moments(changes) {
        trial.program.run("up");
        trial.kill("down", moment);
        trial.finish(finish);
    }
    trial.assert_met(states);
}

/// What is done after a kill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finish {
    /// `tarn down` at once.
    Down,
    /// After another `tarn up`.
    UpAgain,
}

/// When everything is killed: when so many changes were reported, and a little later.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    changes: u32,
    delay: Duration,
}

/// The moments at each of so many changes, with what is to be done after each, in turns. Every third, beginning with one that
/// the seed chooses, unless all are wanted.
pub fn moments(changes: u32) -> impl Iterator<Item = (Moment, Finish)> {
    let (first, step) = if is_thorough() { (0, 1) } else { (seed() % 3, 3) };
    let finish = |number| if number % 2 == 0 { Finish::Down } else { Finish::UpAgain };
    let moment = |number| Moment {
        changes: number / 2,
        delay: if number % 2 == 0 { Duration::ZERO } else { LATER },
    };
    let numbers = (first..=2 * changes + 1).step_by(step);
    numbers
        .enumerate()
        .map(move |(turn, number)| (moment(number), finish(turn)))
}

/// How much is reported of what was changed.
fn told(path: &Path) -> Option<u64> {
    fs::metadata(path).map(|found| found.len()).ok()
}

/// Looks at the file in which changes are reported, whenever something is written below `/run`.
struct Looker<'a> {
    writes: Fanotify,
    path: &'a Path,
    last: Option<u64>,
}

impl<'a> Looker<'a> {
    fn new(path: &'a Path) -> Self {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_NONBLOCK | InitFlags::FAN_CLOEXEC;
        let writes = Fanotify::init(flags, EventFFlags::O_RDONLY).unwrap();
        let mark = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        writes
            .mark(mark, MaskFlags::FAN_MODIFY, AT_FDCWD, Some("/run"))
            .unwrap();
        Self {
            writes,
            path,
            last: told(path),
        }
    }

    /// Returns when so many changes were reported, or nothing happens any more. Returns how many were.
    fn follow(&mut self, running: &mut Child, most: u32) -> u32 {
        let (mut changes, mut since) = (0, Instant::now());
        while changes < most && since.elapsed() < QUIET {
            let mut fds = [PollFd::new(self.writes.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, 10_u8);
            while self.writes.read_events().is_ok_and(|events| !events.is_empty()) {}
            if std::mem::replace(&mut self.last, told(self.path)) != self.last {
                changes += 1;
            }
            if running.try_wait().unwrap().is_none() {
                since = Instant::now();
            }
        }
        changes
    }
}
