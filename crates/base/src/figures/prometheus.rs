//! Figures as Prometheus reads them: the text exposition format, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Field, Figures, Kind, Value, text};

/// Collects samples and renders them metric by metric: a metric's HELP and TYPE stand once, its samples follow
/// together, whatever order they were added in.
#[derive(Debug, Default)]
pub struct Exposition {
    metrics: BTreeMap<String, Metric>,
}

#[derive(Debug)]
struct Metric {
    kind: Kind,
    about: String,
    samples: Vec<String>,
}

impl Exposition {
    /// Adds one sample. `name` is the full metric name, with `_total` at a counter's end.
    pub fn add(&mut self, name: &str, kind: Kind, about: &str, labels: &[(&str, String)], value: f64) {
        let metric = self.metrics.entry(name.to_string()).or_insert_with(|| Metric {
            kind,
            about: about.to_string(),
            samples: Vec::new(),
        });
        metric.samples.push(format!("{name}{} {value}", render_labels(labels)));
    }

    /// Adds every figure of a stage: `tarn_STAGE_FIELD`, and `tarn_STAGE_TABLE_FIELD` for a table's rows, whose
    /// labels are the row's label fields. Labels that stand alone become those of `tarn_STAGE_info`.
    pub fn add_figures(&mut self, stage: &str, figures: &Figures) {
        let prefix = format!("tarn_{stage}");
        self.add_row(&prefix, figures.fields, &figures.values, &[]);
        let chosen = labels_of(figures.fields, &figures.values);
        if !chosen.is_empty() {
            let about = format!("What the stage {stage} chose");
            self.add(&format!("{prefix}_info"), Kind::Gauge, &about, &chosen, 1.0);
        }
        for table in &figures.tables {
            let prefix = format!("{prefix}_{}", table.name);
            for row in &table.rows {
                self.add_row(&prefix, table.fields, row, &labels_of(table.fields, row));
            }
        }
    }

    fn add_row(&mut self, prefix: &str, fields: &[Field], values: &[Value], labels: &[(&str, String)]) {
        let is_number = |(field, _): &(&Field, &Value)| !matches!(field.kind, Kind::Label | Kind::Note);
        for (field, value) in fields.iter().zip(values).filter(is_number) {
            let Some(number) = value.as_f64() else { continue };
            let (name, divisor) = name_and_divisor(prefix, field);
            self.add(&name, field.kind, field.about, labels, number / divisor);
        }
    }

    /// The whole text, metrics in alphabetical order.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, metric) in &self.metrics {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                _ => "gauge",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {}", escape_help(&metric.about));
            let _ = writeln!(text, "# TYPE {name} {kind}");
            for sample in &metric.samples {
                let _ = writeln!(text, "{sample}");
            }
        }
        text
    }
}

/// The metric's name in base units, and by what the field's value is divided to be in them: Prometheus wants
/// seconds, whatever the kernel counts in.
fn name_and_divisor(prefix: &str, field: &Field) -> (String, f64) {
    let (unit, divisor) = match field.unit {
        "ns" => ("seconds", 1e9),
        "us" => ("seconds", 1e6),
        "ms" => ("seconds", 1e3),
        "s" => ("seconds", 1.0),
        "bytes" => ("bytes", 1.0),
        _ => ("", 1.0),
    };
    let stem = field
        .name
        .strip_suffix(&format!("_{}", field.unit))
        .unwrap_or(field.name);
    let mut name = format!("{prefix}_{stem}");
    if !unit.is_empty() && stem != unit && !stem.ends_with(&format!("_{unit}")) {
        name = format!("{name}_{unit}");
    }
    if field.kind == Kind::Counter {
        name.push_str("_total");
    }
    (sanitise(&name), divisor)
}

/// Only letters, digits and `_` make a metric's or a label's name.
fn sanitise(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

fn labels_of(fields: &[Field], values: &[Value]) -> Vec<(&'static str, String)> {
    let labels = fields.iter().zip(values).filter(|(field, _)| field.kind == Kind::Label);
    let known = labels.filter(|(_, value)| !value.is_null());
    known.map(|(field, value)| (field.name, text(value))).collect()
}

fn render_labels(labels: &[(&str, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let rendered = labels
        .iter()
        .map(|(name, value)| format!("{}=\"{}\"", sanitise(name), escape_label(value)));
    format!("{{{}}}", rendered.collect::<Vec<_>>().join(","))
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn escape_help(about: &str) -> String {
    about.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::figures::testing::figures;

    fn exposition(note: &str) -> String {
        let mut exposition = Exposition::default();
        exposition.add_figures("redirect", &figures(note));
        exposition.render()
    }

    #[test]
    fn a_scraper_gets_names_units_and_kinds_by_prometheus_s_own_rules() {
        let text = exposition("web");
        for line in [
            "# TYPE tarn_redirect_rules gauge",
            "tarn_redirect_rules 2",
            "# HELP tarn_redirect_packets_total Packets steered",
            "# TYPE tarn_redirect_packets_total counter",
            "tarn_redirect_packets_total 30",
            "tarn_redirect_uptime_seconds 1.5",
            "tarn_redirect_info{carrier=\"bpf\"} 1",
            "tarn_redirect_rules_in_use_bytes_total{id=\"1\"} 10",
            "tarn_redirect_rules_in_use_bytes_total{id=\"2\",note=\"web\"} 20",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in:\n{text}");
        }
    }

    #[test]
    fn help_and_type_stand_once_and_a_metric_s_samples_stand_together() {
        let mut seen = HashSet::new();
        let mut current = String::new();
        for line in exposition("x").lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                current = rest.split(' ').next().unwrap().to_string();
                assert!(seen.insert(current.clone()), "{current} comes twice");
            } else if !line.starts_with("# TYPE ") {
                assert!(line.starts_with(&current), "{line} is not of {current}");
            }
        }
    }

    /// Each text would be a series of its own, which whoever scrapes would keep for ever.
    #[test]
    fn a_reason_makes_no_series() {
        static FIELDS: &[Field] = &[Field {
            name: "why",
            unit: "",
            kind: Kind::Note,
            about: "Why that was made",
            title: None,
        }];
        let mut exposition = Exposition::default();
        exposition.add_figures(
            "paths",
            &Figures {
                fields: FIELDS,
                values: vec![Value::from("wan2 is calmer: 12.3 ms")],
                ..Figures::default()
            },
        );
        assert_eq!(exposition.render(), "");
    }

    /// Reads `name{label="value"} number` as the format's grammar says; independent of the writer.
    fn label_values(line: &str) -> Option<Vec<String>> {
        let (_, rest) = line.split_once('{')?;
        let mut characters = rest.chars();
        let mut values = Vec::new();
        loop {
            if characters.by_ref().find(|c| *c == '=' || *c == '}')? == '}' {
                return (characters.next()? == ' ').then_some(values);
            }
            assert_eq!(characters.next()?, '"');
            let mut value = String::new();
            loop {
                match characters.next()? {
                    '"' => break,
                    '\\' => value.push(match characters.next()? {
                        'n' => '\n',
                        other => other,
                    }),
                    other => value.push(other),
                }
            }
            values.push(value);
        }
    }

    proptest! {
        #[test]
        fn any_note_comes_back_whole_and_breaks_no_line(note in "[\\PC\n\\\\\"{}=,#]{1,30}") {
            let text = exposition(&note);
            let line = text.split('\n').find(|line| line.contains("id=\"2\"")).unwrap();
            prop_assert_eq!(label_values(line), Some(vec!["2".to_string(), note]));
            let start = |line: &str| line.is_empty() || line.starts_with("# ") || line.starts_with("tarn_");
            prop_assert!(text.split('\n').all(start));
        }
    }
}
