//! A stage in one line.

use crate::history::History;
use crate::numbers::short;
use crate::report::StageView;

/// How a stage fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does what it was configured for.
    Up,
    /// It is not configured, or was taken down.
    Down,
    /// It does not do what it was configured for, or cannot be read.
    Trouble,
}

impl State {
    /// Of a stage.
    pub fn of(stage: &StageView) -> Self {
        match (&stage.figures, &stage.trouble) {
            (Err(_), _) | (_, Some(_)) => Self::Trouble,
            (Ok(Some(_)), None) => Self::Up,
            (Ok(None), None) => Self::Down,
        }
    }

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Trouble => "trouble",
        }
    }
}

/// What a stage does now, such as `12.3k requests/s`, and whether that is below its target; `None` while it is not known.
pub fn now(stage: &StageView, history: Option<&History>) -> Option<(String, bool)> {
    let headline = stage.figures.as_ref().ok()?.as_ref()?.headline?;
    let value = history?.headline().now()?;
    let is_bad = headline.less.is_some() && value < 0.0;
    Some((format!("{} {}", short(value), headline.what), is_bad))
}

/// The first figure of a stage that is worth a look.
pub fn alarm(history: Option<&History>) -> Option<String> {
    let (value, what) = history?.alarms().first()?;
    Some(format!("{} {what}", short(*value)))
}
