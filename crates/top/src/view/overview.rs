//! A line for each stage, and the last events below.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Cell, HighlightSpacing, Row, Table, TableState};
use tarn_watch::StageView;
use tarn_watch::summary::{self, State};

use super::events;
use crate::model::Model;
use crate::styles::{FAINT, Styles, TITLE};
use crate::text::{Scale, bars};

/// What the selected stage is marked by.
const MARK: &str = "> ";
/// A terminal that is far away is to have little to draw.
const HISTORY_MOST: usize = 60;
/// The least height of the screen's body that has room for events.
const EVENTS_FROM: u16 = 17;
/// Events that are shown at most, their title included.
const EVENTS_MOST: u16 = 12;

/// Draws it.
pub fn draw(model: &mut Model, styles: &Styles, frame: &mut Frame<'_>, area: Rect) {
    let stages = model.record().sample.as_ref().map_or(&[][..], |sample| &sample.stages);
    let needed = stages.len() as u16 + 1;
    let strip = match area.height {
        EVENTS_FROM.. => area.height.saturating_sub(needed + 1).min(EVENTS_MOST),
        _ => 0,
    };
    let lines = events::strip(model, area.width.into(), strip.into());
    let gap = u16::from(!lines.is_empty());
    let parts = [
        Constraint::Length(needed.min(area.height - gap * (strip + gap))),
        Constraint::Length(gap),
        Constraint::Length(lines.len() as u16),
    ];
    let [upper, _, lower] = Layout::vertical(parts).areas(area);
    frame.render_stateful_widget(
        table(model, stages, styles, area.width.into()),
        upper,
        &mut TableState::new().with_selected(model.selected),
    );
    frame.render_widget(ratatui::text::Text::from(lines), lower);
    model.page = usize::from(upper.height).saturating_sub(2);
}

/// The widths of the columns without the history.
struct Widths {
    columns: [usize; 4],
}

impl Widths {
    /// There is no column of alarms while there are none.
    fn of(alarms: &[String]) -> Self {
        let alarm = alarms.iter().map(String::len).max().unwrap_or(0);
        Self {
            columns: [11, 7, 20, alarm],
        }
    }

    /// What they leave of a line.
    fn history(&self, width: usize) -> usize {
        let taken: usize = self.columns.iter().map(|column| column + 1).sum();
        width.saturating_sub(MARK.len() + taken).min(HISTORY_MOST)
    }
}

fn table(model: &Model, stages: &[StageView], styles: &Styles, width: usize) -> Table<'static> {
    let alarms: Vec<String> = stages.iter().map(|stage| alarm(model, stage)).collect();
    let widths = Widths::of(&alarms);
    let room = widths.history(width);
    let columns = longest(model, stages).min(room);
    let rows = stages.iter().zip(&alarms).map(|(stage, alarm)| {
        let (state, style) = state(stage, styles);
        Row::new([
            Cell::new(stage.name),
            Cell::new(state),
            now(model, stage, styles),
            Cell::new(alarm.clone()).style(styles.bad),
            Cell::new(history(model, stage, styles, room, columns)),
        ])
        .style(style)
    });
    let constraints = widths.columns.into_iter().chain([room]);
    let constraints = constraints.map(|columns| Constraint::Length(columns as u16));
    Table::new(rows, constraints)
        .header(Row::new(["STAGE", "STATE", "NOW", "", "HISTORY"]).style(TITLE))
        .highlight_symbol(MARK)
        .highlight_spacing(HighlightSpacing::Always)
        .row_highlight_style(TITLE)
}

fn state(stage: &StageView, styles: &Styles) -> (&'static str, Style) {
    let state = State::of(stage);
    let style = match state {
        State::Trouble => styles.bad,
        State::Up => Style::new(),
        State::Down => FAINT,
    };
    (state.name(), style)
}

/// What the stage does now; `-` while it is not known. What is below its target is bad.
fn now(model: &Model, stage: &StageView, styles: &Styles) -> Cell<'static> {
    match summary::now(stage, model.record().history(stage.name)) {
        Some((text, true)) => Cell::new(text).style(styles.bad),
        Some((text, false)) => Cell::new(text),
        None if matches!(stage.figures, Ok(Some(_))) => Cell::new("-"),
        None => Cell::default(),
    }
}

fn alarm(model: &Model, stage: &StageView) -> String {
    summary::alarm(model.record().history(stage.name)).unwrap_or_default()
}

/// Columns that the longest history takes.
fn longest(model: &Model, stages: &[StageView]) -> usize {
    let histories = stages.iter().filter_map(|stage| model.record().history(stage.name));
    histories.map(|history| history.headline().len()).max().unwrap_or(0)
}

fn history(model: &Model, stage: &StageView, styles: &Styles, room: usize, columns: usize) -> String {
    let Some(history) = model.record().history(stage.name) else {
        return String::new();
    };
    let track = history.headline();
    let scale = Scale::of(track.latest(room).flatten());
    bars(track.latest(room), columns, scale, &styles.glyphs)
}
