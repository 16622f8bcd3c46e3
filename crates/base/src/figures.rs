//! Self-describing figures: the human status, `--json` and the Prometheus text all come from the same values, and
//! what a figure means stands once, at its field.

use anyhow::Result;
use serde_json::Map;

use crate::output::{Align, Output, Table};

mod prometheus;
mod screen;

pub use prometheus::Exposition;
pub use screen::{Combine, Headline, Plot};

/// One figure's value: a name or a choice, a whole number, or a measure. `null` is not known, or there is none: `-` for people,
/// left out in Prometheus. So is a measure that is not finite.
pub use serde_json::Value;

/// What sort of figure a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Says which thing a row is about, or what was chosen: text, not measured.
    Label,
    /// Text for people that is another one each time, such as a reason. Metrics leave it out: every text would be a series of its own.
    Note,
    /// A measure that goes up and down.
    Gauge,
    /// A count since the stage came up: it only grows.
    Counter,
}

/// One figure's description.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The key in JSON and the stem of the Prometheus name: lower case, words joined by `_`.
    pub name: &'static str,
    /// `packets`, `bytes`, `ns`, ...; empty when it has none.
    pub unit: &'static str,
    /// What sort of figure it is.
    pub kind: Kind,
    /// What it means, as one sentence without a full stop.
    pub about: &'static str,
    /// The title of its column in a table for people, where name and unit would be too wide. Empty: people do not see the column,
    /// only programs do.
    pub title: Option<&'static str>,
}

/// Declares figures that belong together as a structure, a figure a line: `name: Kind "unit" "what it means",`, with
/// `=> "TITLE"` before the comma for a title of its own. Its fields are [`Value`]s, `FIELDS` describes them, and `values` has them
/// in the same order.
#[macro_export]
macro_rules! described {
    ($(#[doc = $doc:literal])* struct $row:ident {
        $($name:ident: $kind:ident $unit:literal $about:literal $(=> $title:literal)?,)*
    }) => {
        $(#[doc = $doc])*
        struct $row {
            $($name: $crate::figures::Value,)*
        }

        impl $row {
            const FIELDS: &'static [$crate::figures::Field] = &[$($crate::figures::Field {
                name: stringify!($name),
                unit: $unit,
                kind: $crate::figures::Kind::$kind,
                about: $about,
                title: $crate::figures::title(&[$($title)?]),
            },)*];

            fn values(self) -> Vec<$crate::figures::Value> {
                vec![$(self.$name,)*]
            }
        }
    };
}

/// A title that is given or not, as [`described!`] has it.
pub const fn title(given: &[&'static str]) -> Option<&'static str> {
    match given {
        [title, ..] => Some(title),
        [] => None,
    }
}

/// A value with so many decimals.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

/// A figure's value as people read it, without its unit; `-` when it is not known.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_string(),
        // JSON has a measure of 2 as 2.0.
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

/// Figures of many like things: one row each.
#[derive(Debug, Clone, Default)]
pub struct FigureTable {
    /// The key in JSON: lower case, plural.
    pub name: &'static str,
    /// What its rows are.
    pub about: &'static str,
    /// How many of the leading fields identify a row: what it is about. Labels that follow may change while it stays the same row.
    pub key: usize,
    /// The figure to show over time.
    pub plot: Option<Plot>,
    /// One a column.
    pub fields: &'static [Field],
    /// As many values a row as there are fields.
    pub rows: Vec<Vec<Value>>,
}

/// The field by which a stage that is up says that it does not do what it was configured for, and what to do about it. While all is
/// well its value is `null`.
pub const TROUBLE: &str = "trouble";

/// Everything a stage tells about itself.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// The descriptions of `values`.
    pub fields: &'static [Field],
    /// One a field.
    pub values: Vec<Value>,
    /// Figures of the things the stage handles.
    pub tables: Vec<FigureTable>,
    /// The one that says most.
    pub headline: Option<Headline>,
    /// Figures that are worth a look while they are above 0, such as the rate of drops.
    pub alarms: &'static [Headline],
}

impl Figures {
    /// What keeps the stage from doing what it was configured for, by its field `trouble`.
    pub fn trouble(&self) -> Option<&str> {
        let at = self.fields.iter().position(|field| field.name == TROUBLE)?;
        self.values.get(at)?.as_str().filter(|trouble| !trouble.is_empty())
    }

    /// As JSON: one key a field, and one key a table with a list of objects.
    pub fn json(&self) -> Value {
        let mut object = object(self.fields, &self.values);
        for table in &self.tables {
            let rows = table
                .rows
                .iter()
                .map(|row| Value::Object(self::object(table.fields, row)));
            object.insert(table.name.to_string(), rows.collect());
        }
        Value::Object(object)
    }

    /// Prints all of them, as a verb's answer.
    ///
    /// # Errors
    /// As [`Output::json`].
    pub fn answer(&self, output: &mut Output) -> Result<()> {
        if output.json {
            return output.json(&self.json());
        }
        output.table(&self.table());
        for table in &self.tables {
            output.line(format_args!("\n{}", table.about));
            output.table(&table.table());
        }
        Ok(())
    }

    /// The figures that stand alone, as people read them: name, value with its unit, what it means.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("FIGURE", Align::Left),
            ("VALUE", Align::Right),
            ("MEANING", Align::Left),
        ]);
        for (name, value, meaning) in self.lines() {
            table.row([name, value, meaning.to_owned()]);
        }
        table
    }

    /// The same without what they mean.
    pub fn short_table(&self) -> Table {
        let mut table = Table::new(&[("FIGURE", Align::Left), ("VALUE", Align::Left)]);
        for (name, value, _) in self.lines() {
            table.row([name, value]);
        }
        table
    }

    fn lines(&self) -> impl Iterator<Item = (String, String, &'static str)> {
        self.fields.iter().zip(&self.values).map(|(field, value)| {
            let text = match (value, field.unit) {
                (Value::Null, _) | (_, "") => self::text(value),
                _ => format!("{} {}", self::text(value), field.unit),
            };
            (field.name.replace('_', " "), text, field.about)
        })
    }
}

impl FigureTable {
    /// What identifies a row, in one text; empty when it has fewer values than the key.
    pub fn key_of(&self, row: &[Value]) -> String {
        let key: Vec<String> = row.get(..self.key).unwrap_or_default().iter().map(text).collect();
        key.join(" ")
    }

    /// Where a field is among the values of a row.
    pub fn position(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|known| known.name == field)
    }

    /// The titles of the columns that people see, and what they mean.
    pub fn meanings(&self) -> Table {
        let mut table = Table::new(&[("COLUMN", Align::Left), ("MEANING", Align::Left)]);
        for field in self.fields.iter().filter(|field| field.title != Some("")) {
            table.row([field.column().0, field.about.to_owned()]);
        }
        table
    }

    /// The rows as people read them. Without a title of its own, a column bears its figure's name and unit. A column that is
    /// empty in every row is left out.
    pub fn table(&self) -> Table {
        let empty = Value::from("");
        let says = |index: &usize| self.rows.is_empty() || self.rows.iter().any(|row| row.get(*index) != Some(&empty));
        let is_hidden = |index: &usize| self.fields[*index].title == Some("");
        let shown: Vec<usize> = (0..self.fields.len())
            .filter(|index| says(index) && !is_hidden(index))
            .collect();
        let titles: Vec<(String, Align)> = shown.iter().map(|index| self.fields[*index].column()).collect();
        let columns: Vec<(&str, Align)> = titles.iter().map(|(title, align)| (title.as_str(), *align)).collect();
        let key = shown.iter().filter(|index| **index < self.key).count();
        let mut table = Table::new(&columns).keyed(key);
        for row in &self.rows {
            table.row(shown.iter().filter_map(|index| row.get(*index)).map(text));
        }
        table
    }
}

impl Field {
    /// The title of its column, as people see it.
    pub fn heading(&self) -> String {
        self.column().0
    }

    fn column(&self) -> (String, Align) {
        let align = match self.kind {
            Kind::Label | Kind::Note => Align::Left,
            Kind::Gauge | Kind::Counter => Align::Right,
        };
        let title = self.title.map_or_else(|| self.name_and_unit(), str::to_owned);
        (title, align)
    }

    /// The unit stands once: `rate_mbit_s` is `RATE (Mbit/s)`.
    fn name_and_unit(&self) -> String {
        let in_names = self.unit.to_lowercase().replace('/', "_").replace('%', "percent");
        let stem = self.name.strip_suffix(&format!("_{in_names}"));
        let title = stem.unwrap_or(self.name).replace('_', " ").to_uppercase();
        let is_said = self.unit.is_empty() || self.name.split('_').any(|word| word == self.unit);
        match stem.is_none() && is_said {
            true => title,
            false => format!("{title} ({})", self.unit),
        }
    }
}

fn object(fields: &[Field], values: &[Value]) -> Map<String, Value> {
    let entries = fields.iter().zip(values);
    entries
        .map(|(field, value)| (field.name.to_string(), value.clone()))
        .collect()
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
