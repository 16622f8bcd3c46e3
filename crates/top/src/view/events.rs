//! What happened: a strip on the overview, and a list.

use ratatui::text::Line;
use tarn_base::error::wrap_line;
use tarn_base::runtime::timestamp;

use crate::model::Model;
use crate::styles::TITLE;
use crate::text::fit;
use tarn_watch::sample::Event;

/// Columns of the time in the strip, and of the stage.
const TIME: usize = 11;
const STAGE: usize = 10;

/// The last events in so many lines, title included, one line each; nothing when there are none, or no room.
pub fn strip(model: &Model, width: usize, room: usize) -> Vec<Line<'static>> {
    let events = model.record().events();
    let (Some(sample), false) = (&model.record().sample, events.is_empty() || room < 2) else {
        return Vec::new();
    };
    let title = Line::styled("DECISIONS AND EVENTS (UTC)", TITLE);
    let line = |event: &&Event| {
        let when = fit(&short_time(event.at, sample.at), TIME);
        Line::from(fit(
            &format!("{when} {} {}", fit(&event.stage, STAGE), event.text),
            width,
        ))
    };
    [title]
        .into_iter()
        .chain(events.iter().take(room - 1).map(line))
        .collect()
}

/// All events, newest first.
pub fn lines(model: &Model, width: usize) -> Vec<Line<'static>> {
    let events = model.record().events();
    let mut lines = vec![Line::styled("Decisions and events, newest first (UTC)", TITLE)];
    if events.is_empty() {
        lines.push(Line::from("Nothing has happened since this screen was opened."));
    }
    for event in events {
        let text = format!("{} {} {}", timestamp(event.at), fit(&event.stage, STAGE), event.text);
        lines.extend(wrap_line(&text, width).lines().map(|line| Line::from(line.to_owned())));
    }
    lines
}

/// The time of today's events, and the date and time of others. Both are seconds since 1970.
fn short_time(at: u64, now: u64) -> String {
    let (at, now) = (timestamp(at), timestamp(now));
    let part = |text: &str, range: std::ops::Range<usize>| text.get(range).unwrap_or_default().to_owned();
    match part(&at, 0..10) == part(&now, 0..10) {
        true => part(&at, 11..19),
        false => format!("{} {}", part(&at, 5..10), part(&at, 11..16)),
    }
}
