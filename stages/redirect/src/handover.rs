//! What becomes of the carrier `bpf` when IPsec policies appear while it runs: nftables takes over where the choice was
//! tarn's, and where it was not, nothing is redirected any more. Packets in clear would be worse.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::STAGE;
use super::bpf;
use super::choice::Choice;
use super::ipsec;
use super::rule::Rule;
use super::store::Store;
use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::Stop;
use tarn_frame::Running;
use tarn_frame::journal::Journal;
use tarn_frame::state::{Lock, StateDirectory};

/// While somebody else holds the lock, it is tried this often.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Who carries the rules out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Bpf,
    Nftables,
    Nobody,
}

/// Runs the carrier's own loop, and acts on policies.
pub struct Handover {
    state: StateDirectory,
    /// Of the carrier. That of `bpf` holds the maps, which verbs look for also when no device has the programs any more.
    running: Box<dyn Running>,
    /// What takes over.
    successor: Option<Choice>,
    carried: By,
}

impl Handover {
    /// Over `bpf`, which runs now.
    pub fn new(state: StateDirectory, running: Box<dyn Running>, successor: Option<Choice>) -> Self {
        Self {
            state,
            running,
            successor,
            carried: By::Bpf,
        }
    }

    /// Runs the loop of `bpf` until it is time to stop, or policies appear; says whether they have.
    fn run_bpf(&mut self, stop: &Stop) -> Result<bool> {
        let end = Arc::new(Stop::new()?);
        std::thread::scope(|scope| {
            let (running, its_end) = (&mut self.running, Arc::clone(&end));
            let thread = scope.spawn(move || running.run(its_end));
            let appeared = ipsec::wait(stop, || thread.is_finished());
            end.fire();
            thread.join().map_err(|_| anyhow!("the loop of bpf has panicked"))??;
            appeared
        })
    }

    /// Acts on policies that have appeared.
    fn leave(&mut self, stop: &Stop) -> Result<()> {
        let Some(_lock) = self.lock(stop)? else { return Ok(()) };
        let mut journal = Journal::open(&self.state)?;
        let taken_over = match &self.successor {
            Some(successor) => self.hand_over(successor, &mut journal).map(Some),
            None => Ok(None),
        };
        match taken_over {
            Ok(Some(running)) => {
                let text = format!("{}: nftables carries the rules out from now on", ipsec::REASON);
                log_at(Priority::Warning, STAGE, text);
                self.running = running;
                self.carried = By::Nftables;
                Ok(())
            }
            Ok(None) => self.end(&mut journal, ""),
            Err(error) => self.end(&mut journal, &format!(" (nftables cannot take over: {error:#})")),
        }
    }

    fn hand_over(&self, successor: &Choice, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let rules: Vec<Rule> = Store::open(self.state.path())?.rules().cloned().collect();
        successor.take_over(&self.state, journal, &rules, &[])
    }

    fn end(&mut self, journal: &mut Journal, why: &str) -> Result<()> {
        bpf::devices::detach_all(journal)?;
        let text = format!(
            "{}: nothing is redirected any more{why}; {}, and `tarn up` again",
            ipsec::REASON,
            ipsec::REMEDY
        );
        log_at(Priority::Error, STAGE, text);
        self.carried = By::Nobody;
        Ok(())
    }

    /// The lock, or `None` when it is time to stop: who holds it may be waiting for this very agent to end.
    fn lock(&self, stop: &Stop) -> Result<Option<Lock>> {
        while !stop.fired() {
            if let Some(lock) = self.state.try_lock("act on IPsec policies")? {
                return Ok(Some(lock));
            }
            stop.wait(LOCK_INTERVAL);
        }
        Ok(None)
    }
}

impl Running for Handover {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        if self.carried == By::Bpf && self.run_bpf(&stop)? {
            self.leave(&stop)?;
        }
        match self.carried {
            By::Bpf => Ok(()),
            By::Nftables => self.running.run(stop),
            By::Nobody => {
                while !stop.wait(Duration::MAX) {}
                Ok(())
            }
        }
    }
}
