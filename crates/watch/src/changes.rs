//! What happened: what the agent has logged, and what differs between a sample and the one before it.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use crate::report::StageView;
use tarn_base::figures::{FigureTable, Figures, Kind, TROUBLE, Value, text};

use crate::sample::{Event, Sample};

/// Events that are remembered.
const MOST: usize = 256;
/// Changes of one stage that are told one by one, from one sample to the next.
const AT_ONCE: usize = 16;

/// The last events that samples have shown.
#[derive(Debug, Clone, Default)]
pub struct Events(VecDeque<Event>);

impl Events {
    /// Adds what was logged since the sample before.
    pub fn add_logged(&mut self, events: &[Event]) {
        let skipped = events.len().saturating_sub(MOST);
        events.iter().skip(skipped).for_each(|event| self.push(event.clone()));
    }

    /// Adds what has happened between two samples.
    pub fn add(&mut self, before: &Sample, now: &Sample) {
        let came = now.troubles.iter().filter(|text| !before.troubles.contains(text));
        let gone = before.troubles.iter().filter(|text| !now.troubles.contains(text));
        let texts = came
            .map(|text| format!("trouble: {text}"))
            .chain(gone.map(|text| format!("trouble is over: {text}")));
        texts.for_each(|text| self.push(event(now.at, "", text)));
        for (before, stage) in before.stages.iter().zip(&now.stages) {
            let mut changes = changes(before, stage);
            let surplus = changes.len().saturating_sub(AT_ONCE);
            changes.truncate(AT_ONCE);
            changes.extend((surplus > 0).then(|| format!("and {surplus} more changes")));
            changes
                .into_iter()
                .for_each(|text| self.push(event(now.at, stage.name, text)));
        }
    }

    fn push(&mut self, event: Event) {
        self.0.push_back(event);
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// All of them, newest first.
    pub fn newest_first(&self) -> Vec<&Event> {
        let mut all: Vec<&Event> = self.0.iter().rev().collect();
        all.sort_by_key(|event| Reverse(event.at));
        all
    }
}

fn event(at: u64, stage: &str, text: String) -> Event {
    Event {
        at,
        stage: stage.to_owned(),
        text,
    }
}

fn changes(before: &StageView, now: &StageView) -> Vec<String> {
    match (&before.figures, &now.figures) {
        (Ok(None), Ok(Some(_))) => vec!["up".to_owned()],
        (Ok(Some(_)), Ok(None)) => vec!["down".to_owned()],
        (Ok(Some(before)), Ok(Some(now))) => labels(before, now),
        _ => Vec::new(),
    }
}

/// Labels that are others than before: what was chosen, and the state of things.
fn labels(before: &Figures, now: &Figures) -> Vec<String> {
    let alone = now.fields.iter().zip(before.values.iter().zip(&now.values));
    let mut found: Vec<String> = alone
        // A trouble is an event of its own.
        .filter(|(field, (was, is))| field.kind == Kind::Label && field.name != TROUBLE && was != is)
        .map(|(field, (was, is))| change(field.name, was, is))
        .collect();
    for table in &now.tables {
        let same = before.tables.iter().find(|before| before.name == table.name);
        found.extend(same.into_iter().flat_map(|before| labels_of_rows(before, table)));
    }
    found
}

fn labels_of_rows(before: &FigureTable, now: &FigureTable) -> Vec<String> {
    let may_change: Vec<usize> = (now.key..now.fields.len())
        .filter(|index| now.fields[*index].kind == Kind::Label)
        .collect();
    if may_change.is_empty() {
        return Vec::new();
    }
    let known: HashMap<String, &Vec<Value>> = before.rows.iter().map(|row| (before.key_of(row), row)).collect();
    let mut found = Vec::new();
    for row in &now.rows {
        let key = now.key_of(row);
        let Some(was) = known.get(&key) else { continue };
        let pairs = may_change
            .iter()
            .filter_map(|index| Some((*index, was.get(*index)?, row.get(*index)?)));
        let others = pairs.filter(|(_, was, is)| was != is);
        found.extend(others.map(|(index, was, is)| format!("{key}: {}", change(now.fields[index].name, was, is))));
    }
    found
}

fn change(name: &str, was: &Value, is: &Value) -> String {
    format!("{}: {} -> {}", name.replace('_', " "), text(was), text(is))
}

#[cfg(test)]
mod tests;
