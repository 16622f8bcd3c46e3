//! What the page shows, as JSON.
//!
//! | key | meaning |
//! |---|---|
//! | `host`, `at`, `agent` | the host's name, when the figures were read (UTC), what the agent says of itself; `null` before the first reading |
//! | `silent_s` | for how many seconds no figures have come, where that is long; or `null` |
//! | `troubles` | what does not work, the most general first |
//! | `stages[]` | `name`, `state`, `now` and `is_bad` (below its target), `alarm`, `history` (a value a second, `null` where unknown) |
//! | `events[]` | `at`, `stage`, `text`, newest first |
//! | `opened` | the stage asked for: `name`, `state`, `error`, `tables[]`, `figures[]` (name, value, meaning); or `null` |
//! | `opened.tables[]` | `about`, `columns[]` (`title`, `about`, `is_number`), `rows[]`, `left_out`, `plot` |
//! | `opened.tables[].plot` | `null`, or `title`, `columns`, `rows[]` (`key`, `numbers`, `is_bad`, `history`) |

use serde_json::{Value, json};
use tarn_base::figures::{FigureTable, Figures};
use tarn_base::output::{Align, Table};
use tarn_base::runtime::timestamp;
use tarn_watch::history::{History, Track};
use tarn_watch::numbers::short_or_dash;
use tarn_watch::plot::{Plotted, PlottedRow, rows_that_matter};
use tarn_watch::sample::Event;
use tarn_watch::summary::{State, alarm, now};
use tarn_watch::{Record, Sample, StageView};

/// Rows of a table at most.
pub const ROWS_MOST: usize = 50;
/// Values of a figure over time at most.
const HISTORY_MOST: usize = 120;
/// Events at most.
const EVENTS_MOST: usize = 50;

/// All that the page shows, with the stage at this place opened.
pub fn document(record: &Record, opened: Option<usize>, silent_s: Option<u64>) -> Value {
    let sample = record.sample.as_ref();
    let stages = sample.map_or(&[][..], |sample| &sample.stages);
    let events = record.events();
    json!({
        "host": nix::unistd::gethostname().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()),
        "at": sample.map(|sample| timestamp(sample.at)),
        "agent": sample.map(|sample| &sample.agent),
        "silent_s": silent_s,
        "troubles": record.troubles(),
        "stages": stages.iter().map(|view| stage(record, view)).collect::<Vec<_>>(),
        "events": events.into_iter().take(EVENTS_MOST).map(event).collect::<Vec<_>>(),
        "opened": sample.zip(opened).and_then(|(sample, place)| self::opened(record, sample, place)),
    })
}

fn stage(record: &Record, view: &StageView) -> Value {
    let history = record.history(view.name);
    let (now, is_bad) = now(view, history).unzip();
    json!({
        "name": view.name,
        "state": State::of(view).name(),
        "now": now,
        "is_bad": is_bad.unwrap_or(false),
        "alarm": alarm(history),
        "history": values(history.map(History::headline)),
    })
}

fn event(event: &Event) -> Value {
    json!({"at": timestamp(event.at), "stage": event.stage, "text": event.text})
}

fn values(track: Option<&Track>) -> Vec<Option<f64>> {
    track.map_or_else(Vec::new, |track| track.latest(HISTORY_MOST).collect())
}

fn opened(record: &Record, sample: &Sample, place: usize) -> Option<Value> {
    let view = sample.stages.get(place)?;
    let none = History::default();
    let history = record.history(view.name).unwrap_or(&none);
    let figures = view.figures.as_ref().ok().and_then(Option::as_ref);
    let tables = figures.map_or_else(Vec::new, |figures| tables(figures, sample.detail_of(place)));
    let errors = [
        view.figures.as_ref().err().map(String::as_str),
        view.trouble.as_deref(),
        sample.detail_error(place),
    ];
    Some(json!({
        "name": view.name,
        "state": State::of(view).name(),
        "error": errors.into_iter().flatten().next(),
        "tables": tables.into_iter().map(|table| self::table(table, history)).collect::<Vec<_>>(),
        "figures": figures.map_or_else(Vec::new, |figures| figures.table().rows().to_vec()),
    }))
}

/// The table that says most, what is read only for who looks, and the other tables.
fn tables<'a>(figures: &'a Figures, detail: &'a [FigureTable]) -> Vec<&'a FigureTable> {
    let (first, others) = figures.tables.split_at(figures.tables.len().min(1));
    first.iter().chain(detail).chain(others).collect()
}

fn table(table: &FigureTable, history: &History) -> Value {
    let rows = rows_that_matter(table, history, ROWS_MOST);
    let left_out = table.rows.len() - rows.len();
    let shown = FigureTable {
        rows: rows.iter().copied().cloned().collect(),
        ..table.clone()
    };
    let text = shown.table();
    json!({
        "about": table.about,
        "columns": columns(&text, &table.meanings()),
        "rows": text.rows(),
        "left_out": left_out,
        "plot": Plotted::of(table, &rows, history).map(|plot| plotted(&plot)),
    })
}

fn columns(table: &Table, meanings: &Table) -> Vec<Value> {
    let about = |title: &String| {
        let meaning = meanings.rows().iter().find(|row| row.first() == Some(title));
        meaning.and_then(|row| row.get(1))
    };
    let column = |(title, align): &(String, Align)| json!({"title": title, "about": about(title), "is_number": *align == Align::Right});
    table.columns().iter().map(column).collect()
}

fn plotted(plot: &Plotted<'_>) -> Value {
    let row = |row: &PlottedRow<'_>| {
        json!({
            "key": row.key,
            "numbers": row.numbers.map(short_or_dash),
            "is_bad": row.is_bad,
            "history": values(row.track),
        })
    };
    json!({"title": plot.title, "columns": plot.columns, "rows": plot.rows.iter().map(row).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_watch::testing::{Host, record, session};

    #[test]
    fn before_the_first_reading_nothing_is_claimed() {
        let shown = document(&Record::default(), Some(0), None);
        assert!(shown["at"].is_null() && shown["opened"].is_null(), "{shown}");
        assert_eq!(
            (shown["stages"].as_array().map(Vec::len), &shown["troubles"]),
            (Some(0), &json!([]))
        );
    }

    /// What `tarn top` shows in a recorded session, too.
    #[test]
    fn stages_are_shown_with_what_they_do_and_how_it_was() {
        let shown = document(&record(session()), Some(0), Some(7));
        assert_eq!(shown["silent_s"], 7);
        let names: Vec<&str> = shown["stages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["poll", "classes", "paths"]);
        let poll = &shown["stages"][0];
        assert!(poll["now"].as_str().unwrap().ends_with(" packets/s"), "{poll}");
        assert!(poll["history"].as_array().unwrap().len() > 3, "{poll}");
        let opened = &shown["opened"];
        assert_eq!(opened["name"], "poll");
        let table = &opened["tables"][0];
        assert_eq!(
            table["columns"][0],
            json!({"title": "DEVICE", "about": "The queue's device", "is_number": false})
        );
        assert_eq!(
            table["rows"][0].as_array().unwrap().len(),
            table["columns"].as_array().unwrap().len()
        );
        assert_eq!(table["plot"]["columns"], json!(["NOW", "P95", "MAX"]));
        assert_eq!(opened["figures"][0][0], "devices");
        assert!(!shown["events"].as_array().unwrap().is_empty());
    }

    /// Ten thousand rules are not sent once a second.
    #[test]
    fn long_tables_and_histories_are_cut() {
        let queues = |count: u64| (0..1000).map(|_| ("eth0", "none", count)).collect();
        let host = |second: u64| Host {
            second: second as f64,
            poll: (queues(second), 0),
            ..Host::default()
        };
        let record = record((0..200).map(|second| Ok(host(second))));
        let shown = document(&record, Some(0), None);
        let table = &shown["opened"]["tables"][0];
        assert_eq!(
            (table["rows"].as_array().unwrap().len(), &table["left_out"]),
            (ROWS_MOST, &json!(950))
        );
        assert_eq!(shown["stages"][0]["history"].as_array().unwrap().len(), HISTORY_MOST);
        assert!(shown.to_string().len() < 100_000);
    }
}
