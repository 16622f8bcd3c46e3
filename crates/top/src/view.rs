//! Draws the screen.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;
use tarn_base::output::printable;

use crate::model::{Model, Screen};
use crate::styles::{FAINT, Styles, TITLE};

mod events;
mod overview;
mod plot;
mod stage;
#[cfg(test)]
mod tests;
mod trouble;

/// Draws it, and corrects how far the model is scrolled to what there is.
pub fn draw(model: &mut Model, styles: &Styles, frame: &mut Frame<'_>) {
    let area = frame.area();
    let troubles = trouble::lines(
        &model.record().troubles(),
        area.width.into(),
        trouble::room(area.height),
    );
    let parts = [
        Constraint::Length(1),
        Constraint::Length(troubles.len() as u16),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [head, trouble, body, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(heading(model, styles), head);
    frame.render_widget(
        Text::from_iter(troubles.into_iter().map(|line| Line::styled(line, styles.bad))),
        trouble,
    );
    match model.screen {
        Screen::Overview => overview::draw(model, styles, frame, body),
        Screen::Stage => scroll(stage::lines(model, styles, body), model, frame, body),
        Screen::Events => scroll(events::lines(model, body.width.into()), model, frame, body),
    }
    frame.render_widget(Line::styled(keys(model.screen), FAINT), foot);
    disarm(frame.buffer_mut());
}

/// Names and messages are somebody else's text: none of it is for the terminal to obey.
fn disarm(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().chars().any(char::is_control) {
            cell.set_symbol(&printable(cell.symbol()));
        }
    }
}

fn heading(model: &Model, styles: &Styles) -> Line<'static> {
    let agent = match &model.record().sample {
        Some(sample) => sample.agent.clone(),
        None => "reading the figures".to_owned(),
    };
    let mut spans = vec![Span::styled("tarn", TITLE), Span::raw(format!("  {agent}"))];
    let silent = model.silent_s.map(|seconds| format!("  no figures for {seconds} s"));
    let paused = model.is_paused().then(|| "  (paused)".to_owned());
    let notes = paused.into_iter().chain(silent);
    spans.extend(notes.map(|note| Span::styled(note, styles.bad)));
    Line::from(spans)
}

/// What keys do, in at most 80 columns.
fn keys(screen: Screen) -> &'static str {
    match screen {
        Screen::Overview => "Up/Down select  Enter open  d decisions and events  Space pause  q quit",
        Screen::Stage => "Up/Down PgUp/PgDn scroll  ? meaning  d events  Esc back  Space pause  q quit",
        Screen::Events => "Up/Down PgUp/PgDn scroll  Esc back  Space pause  q quit",
    }
}

/// Draws as many lines as there is room for, from where the model is scrolled to.
fn scroll(lines: Vec<Line<'static>>, model: &mut Model, frame: &mut Frame<'_>, area: Rect) {
    let height = usize::from(area.height);
    model.page = height.saturating_sub(1);
    model.scrolled = model.scrolled.min(lines.len().saturating_sub(height));
    let shown: Vec<Line<'_>> = lines.into_iter().skip(model.scrolled).take(height).collect();
    frame.render_widget(Paragraph::new(shown), area);
}
