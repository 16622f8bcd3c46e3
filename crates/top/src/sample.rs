//! What all stages say at one moment.

use tarn_base::figures::FigureTable;
use tarn_base::runtime::seconds_of;
use tarn_program::StageView;

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
    /// What the open stage shows beside its figures.
    pub detail: Option<Detail>,
}

impl Sample {
    /// The tables beside the figures of the stage at this place, if they were read.
    pub fn detail_of(&self, stage: usize) -> &[FigureTable] {
        let detail = self.detail.as_ref().filter(|detail| detail.stage == stage);
        detail
            .and_then(|detail| detail.tables.as_ref().ok())
            .map_or(&[], Vec::as_slice)
    }
}
