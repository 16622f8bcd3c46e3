//! The stages' loops, each on a thread of its own. One that fails is logged and started again, ever more seldom;
//! it never takes the others down.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::Stop;
use tarn_frame::Running;
use tarn_frame::agent::{LoopInformation, LoopState};

/// The wait before a loop is first started again. It doubles with every failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A loop that has run for so long before it failed is waited for as if it had never failed before.
const SOUND: Duration = Duration::from_secs(300);

/// How the loops fare, for whoever wants to know.
#[derive(Debug, Clone, Default)]
pub struct Loops(Arc<Mutex<Vec<LoopInformation>>>);

impl Loops {
    /// A copy of how the loops fare now.
    pub fn now(&self) -> Vec<LoopInformation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, stage: &str, change: impl FnOnce(&mut LoopInformation)) {
        let mut loops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = loops.iter_mut().find(|entry| entry.stage == stage) {
            change(entry);
        }
    }

    fn add(&self, stage: &str) {
        let entry = LoopInformation {
            stage: stage.to_string(),
            state: LoopState::Running,
            restarts: 0,
            error: None,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }
}

/// Runs the loops.
#[derive(Debug)]
pub struct Supervisor {
    stop: Arc<Stop>,
    loops: Loops,
    threads: Vec<(&'static str, JoinHandle<()>)>,
}

impl Supervisor {
    /// A supervisor without loops. `stop` ends them.
    pub fn new(stop: Arc<Stop>) -> Self {
        Self {
            stop,
            loops: Loops::default(),
            threads: Vec::new(),
        }
    }

    /// How the loops fare, from now on.
    pub fn loops(&self) -> Loops {
        self.loops.clone()
    }

    /// Starts the loops.
    ///
    /// # Errors
    /// When the process may have no more threads.
    pub fn start(mut self, running: Vec<(&'static str, Box<dyn Running>)>) -> Result<Self> {
        for (stage, running) in running {
            self.loops.add(stage);
            let (stop, loops) = (self.stop.clone(), self.loops.clone());
            let thread = std::thread::Builder::new().name(stage.to_string());
            let started = thread.spawn(move || keep_running(stage, running, &stop, &loops, FIRST_WAIT));
            self.threads.push((
                stage,
                started.with_context(|| format!("cannot start the loop of {stage}"))?,
            ));
        }
        Ok(self)
    }

    /// Waits for the loops to end, after the stop has fired, until `patience` ends. A loop that has not ended by
    /// then ends with the process.
    pub fn end(self, patience: Instant) {
        for (stage, thread) in self.threads {
            while !thread.is_finished() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !thread.is_finished() {
                log_at(Priority::Warning, stage, "its loop does not end: ending without it");
            }
        }
    }
}

/// Runs one loop until it ends or is told to, again and again when it fails.
fn keep_running(stage: &str, mut running: Box<dyn Running>, stop: &Arc<Stop>, loops: &Loops, first_wait: Duration) {
    let mut wait = first_wait;
    loop {
        let start = Instant::now();
        loops.update(stage, |entry| entry.state = LoopState::Running);
        let Err(error) = running.run(stop.clone()) else { break };
        if stop.fired() {
            break;
        }
        if start.elapsed() >= SOUND {
            wait = first_wait;
        }
        let message = tarn_base::error::paragraph(&error);
        log_at(
            Priority::Error,
            stage,
            format!("{message}: starting its loop again in {} s", wait.as_secs()),
        );
        loops.update(stage, |entry| {
            entry.state = LoopState::Waiting;
            entry.restarts += 1;
            entry.error = Some(message);
        });
        if stop.wait(wait) {
            break;
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
    loops.update(stage, |entry| entry.state = LoopState::Ended);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use anyhow::bail;

    use super::*;

    /// Fails so many times, then waits for the stop.
    struct Failing(usize, Sender<Instant>);

    impl Running for Failing {
        fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
            self.1.send(Instant::now()).unwrap();
            if self.0 > 0 {
                self.0 -= 1;
                bail!("the device went away");
            }
            stop.wait(Duration::from_secs(60));
            Ok(())
        }
    }

    #[test]
    fn a_loop_that_fails_is_started_again_ever_later_and_its_error_is_told() {
        let stop = Arc::new(Stop::new().unwrap());
        let loops = Loops::default();
        loops.add("pace");
        let (sender, starts) = channel();
        let thread = std::thread::spawn({
            let (stop, loops) = (stop.clone(), loops.clone());
            move || {
                keep_running(
                    "pace",
                    Box::new(Failing(3, sender)),
                    &stop,
                    &loops,
                    Duration::from_millis(20),
                )
            }
        });
        let times: Vec<Instant> = starts.iter().take(4).collect();
        let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (wait, least) in waits.iter().zip([20, 40, 80]) {
            assert!(*wait >= Duration::from_millis(least), "{waits:?}");
        }
        let entry = loops.now().remove(0);
        assert_eq!(
            (entry.restarts, entry.error.as_deref()),
            (3, Some("the device went away"))
        );
        stop.fire();
        thread.join().unwrap();
        assert_eq!(loops.now()[0].state, LoopState::Ended);
    }

    #[test]
    fn one_failing_loop_leaves_the_others_alone_and_all_end_when_told() {
        let stop = Arc::new(Stop::new().unwrap());
        let (sender, _starts) = channel();
        let loops: Vec<(&'static str, Box<dyn Running>)> = vec![
            ("poll", Box::new(Failing(usize::MAX, sender.clone()))),
            ("pace", Box::new(Failing(0, sender))),
        ];
        let supervisor = Supervisor::new(stop.clone()).start(loops).unwrap();
        let loops = supervisor.loops();
        while loops.now()[0].state != LoopState::Waiting {
            std::thread::yield_now();
        }
        assert_eq!(loops.now()[1].state, LoopState::Running);
        stop.fire();
        let start = Instant::now();
        supervisor.end(start + Duration::from_secs(30));
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "a waiting loop ends at once too"
        );
    }
}
