//! How putting something back has ended.

/// What undoing one change has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// It was put back.
    PutBack,
    /// There was nothing to put back: never made, undone before, or gone with its interface.
    Gone,
    /// Somebody else has changed it since, so it was left as it is. The text says what was found.
    LeftAlone(String),
}

impl Undone {
    /// Of something that was there, or was not.
    pub fn of(was_there: bool) -> Self {
        if was_there { Self::PutBack } else { Self::Gone }
    }
}
