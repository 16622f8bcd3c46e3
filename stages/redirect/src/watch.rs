//! What others can take from under the rules while they are carried out: forwarding, for either carrier.

use std::time::Duration;

use anyhow::Result;

use super::STAGE;
use super::forwarding::{self, FAMILIES};
use super::rule::{Family, Rule};
use super::store::Store;
use tarn_base::output::{Priority, log_at};
use tarn_frame::state::StateDirectory;

/// How often somebody looks.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// Whether packets can pass, as it was when somebody looked last.
pub struct Watch {
    state: StateDirectory,
    forwards: [bool; 2],
    /// What was complained of.
    stopped: Vec<Family>,
}

impl Watch {
    /// Of the rules that are up here. That forwarding is off at the start is worth a word only where a rule needs it, and
    /// then it has just been turned on.
    pub fn new(state: StateDirectory) -> Self {
        Self {
            state,
            forwards: [true; 2],
            stopped: Vec::new(),
        }
    }

    /// Says once when nothing passes any more because somebody has turned forwarding off, and once when it does again.
    ///
    /// # Errors
    /// Parameters or rules that cannot be read.
    pub fn look(&mut self) -> Result<()> {
        let mut forwards = [true; 2];
        for (is_on, family) in forwards.iter_mut().zip(FAMILIES) {
            *is_on = forwarding::is_on(family)?;
        }
        if forwards == self.forwards {
            return Ok(());
        }
        self.forwards = forwards;
        let rules: Vec<Rule> = Store::open(self.state.path())?.rules().cloned().collect();
        let stopped = forwarding::missing(&rules)?;
        for family in FAMILIES {
            match (self.stopped.contains(&family), stopped.contains(&family)) {
                (false, true) => log_at(Priority::Warning, STAGE, nothing_passes(family)),
                (true, false) => log_at(Priority::Notice, STAGE, format!("this host forwards {family} again")),
                _ => {}
            }
        }
        self.stopped = stopped;
        Ok(())
    }
}

/// What is amiss with the rules, in a line; `None` when they can be carried out.
///
/// # Errors
/// Parameters or addresses that cannot be read.
pub fn trouble(rules: &[Rule]) -> Result<Option<String>> {
    Ok(forwarding::missing(rules)?.first().copied().map(nothing_passes))
}

fn nothing_passes(family: Family) -> String {
    let parameter = forwarding::parameter(family);
    format!(
        "somebody has set {parameter} to 0: no {family} packet passes to targets beyond this host; \
         `sysctl -w {parameter}=1`, or `tarn up` again"
    )
}
