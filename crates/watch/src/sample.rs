//! What all stages say at one moment.

use crate::report::StageView;
use tarn_base::figures::FigureTable;
use tarn_base::runtime::seconds_of;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When: seconds since 1970, UTC.
    pub at: u64,
    /// The stage, or what of the frame speaks; empty for what concerns all.
    pub stage: String,
    /// What, in one line.
    pub text: String,
}

impl Event {
    /// What an agent has logged; `None` without a time.
    pub fn logged(event: tarn_base::output::event::Event) -> Option<Self> {
        Some(Self {
            at: seconds_of(&event.at)?,
            text: event.text(),
            stage: event.stage,
        })
    }
}

/// Tables of a stage that somebody looks at.
#[derive(Debug, Clone)]
pub struct Detail {
    /// Which stage, by its place.
    pub stage: usize,
    /// The tables, or why they could not be read.
    pub tables: Result<Vec<FigureTable>, String>,
}

/// What every stage said at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When, on the monotonic clock, in ns.
    pub at_ns: u64,
    /// When: seconds since 1970, UTC.
    pub at: u64,
    /// What does not work as configured.
    pub troubles: Vec<String>,
    /// What the agent says of itself.
    pub agent: String,
    /// The stages, in packet order.
    pub stages: Vec<StageView>,
    /// What the agent has logged since the sample before, oldest first.
    pub logged: Vec<Event>,
    /// What the stages that somebody looks at show beside their figures.
    pub details: Vec<Detail>,
}

impl Sample {
    /// The tables beside the figures of the stage at this place, if they were read.
    pub fn detail_of(&self, stage: usize) -> &[FigureTable] {
        let tables = self.detail(stage).and_then(|tables| tables.ok());
        tables.unwrap_or_default()
    }

    /// Why those tables could not be read.
    pub fn detail_error(&self, stage: usize) -> Option<&str> {
        self.detail(stage)?.err()
    }

    fn detail(&self, stage: usize) -> Option<Result<&[FigureTable], &str>> {
        let detail = self.details.iter().find(|detail| detail.stage == stage)?;
        Some(detail.tables.as_deref().map_err(String::as_str))
    }
}
