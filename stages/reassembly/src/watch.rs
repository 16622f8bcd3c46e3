//! What the agent does while the kernel reassembles: it logs when an attack begins, and when it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::STAGE;
use super::attack::{Event, Judge};
use super::module::{MODULE, Module, Source, State};
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::{self, Stop};
use tarn_frame::Running;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// The stage, as the agent runs it.
pub struct Watch {
    judge: Judge,
    start: Instant,
    /// Why nothing is seen, as it was logged.
    trouble: Option<String>,
}

impl Watch {
    /// That has not looked yet.
    pub fn new() -> Self {
        Self {
            judge: Judge::default(),
            start: Instant::now(),
            trouble: None,
        }
    }

    /// Looks once. Returns why nothing runs, if nothing does.
    fn look(&mut self) -> Result<Option<String>> {
        let gone = |how: &str| format!("{how} by someone else: the stock kernel reassembles; `tarn up` begins again");
        let Some(mut module) = Module::find()? else {
            return Ok(Some(gone(&format!("the module {} was taken out", MODULE.name))));
        };
        let Some(state) = module.state()? else {
            return Ok(Some(gone(&format!("{} was stopped", MODULE.name))));
        };
        match self.judge.see(self.start.elapsed(), state.evicted()) {
            Some(Event::Begins { rate, untold }) => {
                // The line is worth more than the name in it.
                let sources = module.sources().unwrap_or_default();
                log_at(Priority::Warning, STAGE, begins(rate, untold, &state, &sources));
            }
            Some(Event::Ends { lasted, evicted }) => log_at(Priority::Notice, STAGE, ends(lasted, evicted)),
            None => {}
        }
        Ok(None)
    }

    /// Logs a trouble once, and that it is over.
    fn tell(&mut self, trouble: Option<String>) {
        if trouble == self.trouble {
            return;
        }
        match &trouble {
            Some(text) => log_at(Priority::Warning, STAGE, text),
            None => log(STAGE, "fragments are reassembled again"),
        }
        self.trouble = trouble;
    }
}

impl Running for Watch {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        while !stop.wait(INTERVAL) {
            let trouble = self.look();
            self.tell(trouble.unwrap_or_else(|error| Some(format!("attacks are not noticed: {error:#}"))));
        }
        Ok(())
    }
}

/// The line for an attack that begins.
fn begins(rate: u64, untold: u64, state: &State, sources: &[Source]) -> String {
    let settings = &state.settings;
    let largest = sources.iter().max_by_key(|source| source.memory);
    let who = match largest.filter(|source| source.memory > settings.source_share()) {
        Some(source) => {
            let (held, all) = (source.memory / 1024, settings.memory / 1024);
            format!("{} holds {held} KiB of {all} KiB", source.name())
        }
        None => format!("{} sources hold fragments", state.held.sources),
    };
    let more = match untold {
        0 => String::new(),
        1 => ", and there was a shorter one since the last line".to_owned(),
        untold => format!(", and there were {untold} shorter ones since the last line"),
    };
    format!(
        "an attack by fragments has begun, or `memory` is too small: {rate} datagrams were evicted within a second; \
         {who}{more}; `tarn reassembly top` shows the sources"
    )
}

/// The line for one that is over.
fn ends(lasted: Duration, evicted: u64) -> String {
    let lasted = runtime::duration(lasted.as_secs());
    format!("the attack by fragments is over: it lasted {lasted}, and {evicted} datagrams were evicted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::{SETTINGS, source};
    use crate::module::{Counts, Held};

    fn state(sources: u32) -> State {
        State {
            settings: SETTINGS,
            held: Held {
                sources,
                ..Held::default()
            },
            ipv4: Counts::default(),
            ipv6: Counts::default(),
        }
    }

    /// The line has to name whom to block, and must not accuse an ordinary sender among thousands.
    #[test]
    fn the_line_names_the_largest_source_only_when_it_is_over_its_share() {
        let sources = [
            source([192, 0, 2, 1].into(), 1000, 0),
            source([192, 0, 2, 7].into(), 3 << 20, 0),
        ];
        let told = begins(5012, 0, &state(2), &sources);
        assert!(
            told.contains("5012 datagrams") && told.contains("192.0.2.7 holds 3072 KiB of 4096 KiB;"),
            "{told}"
        );
        let sources = [source([192, 0, 2, 1].into(), SETTINGS.source_share(), 0)];
        let told = begins(5012, 3, &state(10_012), &sources);
        assert!(
            told.contains("10012 sources hold fragments") && !told.contains("192.0.2.1"),
            "{told}"
        );
        assert!(told.contains("3 shorter ones"), "{told}");
        assert!(begins(101, 0, &state(0), &[]).contains("0 sources"));
    }

    #[test]
    fn the_last_line_says_what_it_came_to() {
        let told = ends(Duration::from_secs(125), 77);
        assert_eq!(
            told,
            "the attack by fragments is over: it lasted 2 min 5 s, and 77 datagrams were evicted"
        );
    }

    /// A module that somebody has taken out is told of once, and not every second.
    #[test]
    fn a_trouble_is_logged_once() {
        let mut watch = Watch::new();
        watch.tell(None);
        watch.tell(Some("gone".to_owned()));
        watch.tell(Some("gone".to_owned()));
        assert_eq!(watch.trouble.as_deref(), Some("gone"));
        watch.tell(None);
        assert_eq!(watch.trouble, None);
    }
}
