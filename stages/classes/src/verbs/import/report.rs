//! What an import has done, or would do.

use anyhow::Result;
use serde_json::{Value, json};

use crate::import::{Changed, Counts, Effect, Plan};
use crate::known::Known;
use tarn_base::output::{Align, Output, Table};

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
            true => output.json(&self.json(known)),
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
    pub fn json(&self, known: &Known) -> Value {
        let class = |(class, counts): (String, Counts)| {
            json!({
                "class": class,
                "clients": counts.all(),
                "new": counts.new,
                "same": counts.same,
                "changed": counts.changed,
            })
        };
        let change = |change: &Changed| {
            json!({
                "line": change.line,
                "network": change.network,
                "from": known.name(change.from),
                "left_s": change.left.map(|left| left.as_secs()),
                "to": known.name(change.to),
            })
        };
        let wrong = |(line, reason): &(usize, String)| json!({ "line": line, "reason": reason });
        json!({
            "classes": self.classes(known).map(class).collect::<Vec<_>>(),
            "changes": self.effect.changes.iter().map(change).collect::<Vec<_>>(),
            "wrong": self.plan.wrong.iter().map(wrong).collect::<Vec<_>>(),
            "refused": self.refused,
            "carried_out": self.is_carried_out,
        })
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
        for change in &self.effect.changes {
            output.line(format_args!(
                "line {}: {} {changes} from {}{} to {}",
                change.line,
                change.network,
                known.name(change.from),
                left(change),
                known.name(change.to)
            ));
        }
        for (line, reason) in &self.plan.wrong {
            output.line(format_args!("line {line}: {reason}"));
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
