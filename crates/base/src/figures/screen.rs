//! What `tarn top` shows of figures in one line, and over time.

/// How a headline sums up the rows of a table. Rows whose value is not known are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// All of them together.
    Sum,
    /// The least of them.
    Least,
    /// Their mean, weighted by this field of the same row: rows in which it is 0 or not known do not count.
    Mean(&'static str),
}

/// The figure that says most about what a stage does now: what `tarn top` shows of it in a line. A counter is shown as its rate.
#[derive(Debug, Clone, Copy)]
pub struct Headline {
    /// The table it is in; empty for one that stands alone.
    pub table: &'static str,
    /// Its name.
    pub field: &'static str,
    /// A field of the same row that is subtracted from it, such as the target of a share.
    pub less: Option<&'static str>,
    /// What follows the number: `requests/s`.
    pub what: &'static str,
    /// How its rows are summed up.
    pub combine: Combine,
}

/// The figure of a table's rows that `tarn top` shows over time. A counter is shown as its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plot {
    /// Its name.
    pub field: &'static str,
    /// A field of the same row that it should reach, in the same unit.
    pub target: Option<&'static str>,
}

impl Plot {
    /// A figure without a target.
    pub const fn of(field: &'static str) -> Option<Self> {
        Some(Self { field, target: None })
    }
}
