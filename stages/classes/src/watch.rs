//! What the agent does while the kernel schedules: it logs when somebody else has ended that.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::known::Known;
use super::module::{MODULE, Module};
use super::{STAGE, service};
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::Stop;
use tarn_frame::Running;
use tarn_frame::state::StateDirectory;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// The stage, as the agent runs it. The kernel does all of the work.
pub struct Watch {
    state: StateDirectory,
    /// Why nothing is scheduled, as it was logged.
    trouble: Option<String>,
}

impl Watch {
    /// That has not looked yet.
    pub fn new(state: &StateDirectory) -> Self {
        let state = state.clone();
        Self { state, trouble: None }
    }

    /// Looks once. Returns why nothing is scheduled, unless somebody has asked tarn for that.
    ///
    /// # Errors
    /// The kernel's, or a file that is damaged.
    pub fn look(&self) -> Result<Option<String>> {
        // Nothing is up any more in the middle of a `tarn down`.
        let Some(known) = Known::load(&self.state)?.filter(|known| !known.stopped) else {
            return Ok(None);
        };
        let how = match Module::find()? {
            None => format!("the module {} was taken out", MODULE.name),
            Some(mut module) => match service::first_stopped(&mut module, &known.config)? {
                None => return Ok(None),
                Some(service) => format!("{} was stopped for {}", MODULE.name, service.name),
            },
        };
        Ok(Some(format!(
            "{how} by someone else: its requests pass; `tarn classes start` begins again"
        )))
    }

    /// Logs a trouble once, and that it is over.
    fn tell(&mut self, trouble: Option<String>) {
        if trouble == self.trouble {
            return;
        }
        match &trouble {
            Some(text) => log_at(Priority::Warning, STAGE, text),
            None => log(STAGE, "requests are scheduled again"),
        }
        self.trouble = trouble;
    }
}

impl Running for Watch {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        while !stop.wait(INTERVAL) {
            let trouble = self.look();
            self.tell(trouble.unwrap_or_else(|error| Some(format!("nobody sees whether requests wait: {error:#}"))));
        }
        Ok(())
    }
}
