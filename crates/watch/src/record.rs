//! What was seen so far.

use std::collections::HashMap;

use crate::changes::Events;
use crate::history::{History, REMEMBERED};
use crate::sample::{Event, Sample};

/// The last sample, and how everything was before it.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// What the stages said last.
    pub sample: Option<Sample>,
    /// Why they could not be asked since.
    pub failure: Option<String>,
    /// How often in a row that was.
    failures: usize,
    histories: HashMap<&'static str, History>,
    events: Events,
}

impl Record {
    /// Adds a sample, or why there is none. Then the last one stays.
    pub fn add(&mut self, sample: Result<Sample, String>) {
        match sample {
            Ok(sample) => self.add_sample(sample),
            Err(failure) => {
                self.failure = Some(failure);
                self.failures += 1;
            }
        }
    }

    fn add_sample(&mut self, sample: Sample) {
        self.events.add_logged(&sample.logged);
        if let Some(before) = &self.sample {
            self.events.add(before, &sample);
        }
        // Gaps, which nothing shows as long as the last sample stays.
        let gaps = std::mem::take(&mut self.failures).min(REMEMBERED);
        for history in self.histories.values_mut() {
            (0..gaps).for_each(|_| history.miss());
        }
        for (place, stage) in sample.stages.iter().enumerate() {
            match &stage.figures {
                Ok(Some(figures)) => {
                    let history = self.histories.entry(stage.name).or_default();
                    history.add(figures, sample.detail_of(place), sample.at_ns);
                }
                // It is down, and begins anew.
                Ok(None) => _ = self.histories.remove(stage.name),
                Err(_) => self.histories.entry(stage.name).or_default().miss(),
            }
        }
        (self.sample, self.failure) = (Some(sample), None);
    }

    /// How a stage's figures were.
    pub fn history(&self, stage: &str) -> Option<&History> {
        self.histories.get(stage)
    }

    /// What happened, newest first.
    pub fn events(&self) -> Vec<&Event> {
        self.events.newest_first()
    }

    /// What does not work, the most general first.
    pub fn troubles(&self) -> Vec<String> {
        let failure = self.failure.iter().map(|why| format!("cannot read the figures: {why}"));
        let known = self.sample.iter().flat_map(|sample| &sample.troubles).cloned();
        failure.chain(known).collect()
    }
}
