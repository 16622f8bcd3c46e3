//! What an import has done, or would do.

use anyhow::Result;
use serde::Serialize;

use crate::import::{Changed, Counts, Effect, Plan, Removed};
use crate::known::Known;
use crate::network::Network;
use tarn_base::output::{Align, Output, Table};

/// Changes, and wrong lines, that are listed: an import of millions must fit into a document, and its reader's memory.
const CHANGES_MOST: usize = 10_000;

#[derive(Serialize)]
struct Document<'a> {
    classes: Vec<ClassDocument>,
    changes: Vec<ChangeDocument>,
    changes_left_out: usize,
    removed: Vec<RemovedDocument>,
    removed_left_out: usize,
    wrong: Vec<WrongLine<'a>>,
    wrong_left_out: usize,
    refused: Option<&'a str>,
    carried_out: bool,
}

#[derive(Serialize)]
struct ClassDocument {
    class: String,
    clients: usize,
    new: usize,
    same: usize,
    changed: usize,
}

impl ClassDocument {
    fn of((class, counts): (String, Counts)) -> Self {
        Self {
            class,
            clients: counts.all(),
            new: counts.new,
            same: counts.same,
            changed: counts.changed,
        }
    }
}

#[derive(Serialize)]
struct ChangeDocument {
    line: usize,
    network: Network,
    from: String,
    left_s: Option<u64>,
    to: String,
}

impl ChangeDocument {
    fn of(change: &Changed, known: &Known) -> Self {
        Self {
            line: change.line,
            network: change.network,
            from: known.name(change.from),
            left_s: change.left.map(|left| left.as_secs()),
            to: known.name(change.to),
        }
    }
}

#[derive(Serialize)]
struct RemovedDocument {
    network: Network,
    from: String,
}

impl RemovedDocument {
    fn of(removed: &Removed, known: &Known) -> Self {
        Self {
            network: removed.network,
            from: known.name(removed.from),
        }
    }
}

#[derive(Serialize)]
struct WrongLine<'a> {
    line: usize,
    reason: &'a str,
}

/// What is reported of an import.
pub struct Report {
    /// The lines.
    pub plan: Plan,
    /// What becomes of clients.
    pub effect: Effect,
    /// Whether nothing was to change.
    pub is_dry: bool,
    /// Whether customers have their classes now.
    pub is_carried_out: bool,
    /// Why it is refused; of a dry run, why it would be.
    pub refused: Option<String>,
}

impl Report {
    /// Prints it.
    pub fn print(&self, known: &Known, output: &mut Output) -> Result<()> {
        match output.json {
            true => output.json(&self.document(known)),
            false => {
                self.print_text(known, output);
                Ok(())
            }
        }
    }

    /// How many customers each class gets.
    fn classes<'a>(&'a self, known: &'a Known) -> impl Iterator<Item = (String, Counts)> + 'a {
        let counts = |class| self.effect.classes.get(&class).copied().unwrap_or_default();
        (0..known.config.classes.len()).map(move |class| (known.name(class), counts(class)))
    }

    /// The document for programs.
    pub fn document<'a>(&'a self, known: &'a Known) -> impl Serialize + 'a {
        let changes = self.effect.changes.iter().take(CHANGES_MOST);
        let removed = self.effect.removed.iter().take(CHANGES_MOST);
        let wrong = self.plan.wrong.iter().take(CHANGES_MOST);
        Document {
            classes: self.classes(known).map(ClassDocument::of).collect(),
            changes: changes.map(|change| ChangeDocument::of(change, known)).collect(),
            changes_left_out: self.effect.changes.len().saturating_sub(CHANGES_MOST),
            removed: removed.map(|removed| RemovedDocument::of(removed, known)).collect(),
            removed_left_out: self.effect.removed.len().saturating_sub(CHANGES_MOST),
            wrong: wrong.map(|(line, reason)| WrongLine { line: *line, reason }).collect(),
            wrong_left_out: self.plan.wrong.len().saturating_sub(CHANGES_MOST),
            refused: self.refused.as_deref(),
            carried_out: self.is_carried_out,
        }
    }

    fn print_text(&self, known: &Known, output: &mut Output) {
        let right = ["CLIENTS", "NEW", "SAME", "CHANGED"].map(|name| (name, Align::Right));
        let mut table = Table::new(&[&[("CLASS", Align::Left)], &right[..]].concat());
        for (class, counts) in self.classes(known) {
            let numbers = [counts.all(), counts.new, counts.same, counts.changed];
            table.row([vec![class], numbers.map(|number| number.to_string()).to_vec()].concat());
        }
        output.table(&table);
        let changes = if self.is_carried_out { "changed" } else { "would change" };
        for change in self.effect.changes.iter().take(CHANGES_MOST) {
            output.line(format_args!(
                "line {}: {} {changes} from {}{} to {}",
                change.line,
                change.network,
                known.name(change.from),
                left(change),
                known.name(change.to)
            ));
        }
        if !self.effect.removed.is_empty() {
            let loses = if self.is_carried_out { "have lost" } else { "would lose" };
            let count = self.effect.removed.len();
            output.line(format_args!("without a line of their own, {count} {loses} their class"));
        }
        let loses = if self.is_carried_out {
            "is no longer"
        } else {
            "would no longer be"
        };
        for removed in self.effect.removed.iter().take(CHANGES_MOST) {
            let class = known.name(removed.from);
            output.line(format_args!(
                "no line of its own: {} {loses} of class {class}",
                removed.network
            ));
        }
        for (line, reason) in self.plan.wrong.iter().take(CHANGES_MOST) {
            output.line(format_args!("line {line}: {reason}"));
        }
        for (count, what) in [
            (self.effect.changes.len(), "changes"),
            (self.effect.removed.len(), "clients without a line"),
            (self.plan.wrong.len(), "wrong lines"),
        ] {
            if let Some(more) = count.checked_sub(CHANGES_MOST + 1) {
                output.line(format_args!("and {} more {what}", more + 1));
            }
        }
        // Otherwise it is the error.
        if let Some(reason) = self.refused.as_ref().filter(|_| self.is_dry) {
            output.line(format_args!("the import would be refused: {reason}"));
        }
    }
}

/// The time that a client had its class for.
fn left(change: &Changed) -> String {
    let left = change.left.map(|left| format!(" (for {} s more)", left.as_secs()));
    left.unwrap_or_default()
}
