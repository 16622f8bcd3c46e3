//! `tarn status` and `tarn metrics`.

use anyhow::{Result, anyhow};
use tarn_base::output::Output;
use tarn_frame::agent;

use tarn_watch::Frame;
use tarn_watch::Report;

/// `tarn status`.
///
/// # Errors
/// When something could not be read, or not all works as configured; what could be read is printed.
pub fn status(frame: &Frame, output: &mut Output) -> Result<()> {
    let report = show(frame, "status", output, Report::print)?;
    match &report.troubles()[..] {
        [] => Ok(()),
        troubles => Err(anyhow!("{}", troubles.join("; "))),
    }
}

/// `tarn metrics`.
///
/// # Errors
/// When something could not be read; what could be is printed.
pub fn metrics(frame: &Frame, output: &mut Output) -> Result<()> {
    let print = |report: &Report, output: &mut Output| output.line(report.metrics().trim_end());
    show(frame, "metrics", output, print)?.errors().map_or(Ok(()), Err)
}

/// Reads all figures, and prints them: as JSON, or by `print`.
fn show(frame: &Frame, verb: &str, output: &mut Output, print: impl Fn(&Report, &mut Output)) -> Result<Report> {
    let Frame { stages, state, .. } = frame;
    let was_changing = state.is_coming_up();
    let agent = match state.exists() {
        true => {
            (frame.rights)(verb)?;
            agent::information(state)
        }
        false => None,
    };
    let report = Report::gather(stages, state, agent, was_changing)?;
    match output.json {
        true => output.json(&report.json())?,
        false => print(&report, output),
    }
    Ok(report)
}
