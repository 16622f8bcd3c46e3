//! `tarn status` and `tarn metrics`.

use anyhow::Result;
use tarn_base::output::Output;
use tarn_frame::agent;

use super::Frame;
use crate::report::Report;

fn gather(frame: &Frame, verb: &str) -> Result<Report> {
    let Frame { stages, state, .. } = frame;
    if !state.exists() {
        return Report::gather(stages, state, None);
    }
    (frame.rights)(verb)?;
    Report::gather(stages, state, agent::information(state))
}

/// `tarn status`.
///
/// # Errors
/// When something could not be read; what could be is printed.
pub fn status(frame: &Frame, output: &mut Output) -> Result<()> {
    let report = gather(frame, "status")?;
    if output.json {
        output.json(&report.json())?;
    } else {
        report.print(output);
    }
    report.errors().map_or(Ok(()), Err)
}

/// `tarn metrics`.
///
/// # Errors
/// When something could not be read; what could be is printed.
pub fn metrics(frame: &Frame, output: &mut Output) -> Result<()> {
    let report = gather(frame, "metrics")?;
    if output.json {
        output.json(&report.json())?;
    } else {
        output.line(report.metrics().trim_end());
    }
    report.errors().map_or(Ok(()), Err)
}
