//! What was measured, as a table and as JSON.

use anyhow::Result;
use serde::Serialize;

use super::measure::{CASES, Measured, Samples};
use super::programs::Hook;
use super::setting::Tables;
use super::{FAR_BYTES, NEAR_BYTES, Options};
use tarn_base::output::{Align, Output, Table};
use tarn_kernel::features::Host;
use tarn_lab::stats::Sample;

/// A median of rounds and the quartiles around it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Figure {
    /// The middle round, in ns.
    median: f64,
    /// A quarter of the rounds were at most this, in ns.
    lower_quartile: f64,
    /// A quarter of the rounds were more than this, in ns.
    upper_quartile: f64,
}

impl Figure {
    fn of(values: &[f64]) -> Result<Self> {
        let sample = Sample::new(values.iter().copied())?;
        let (lower_quartile, upper_quartile) = (sample.percentile(25.0), sample.percentile(75.0));
        Ok(Self {
            median: sample.summary().median,
            lower_quartile,
            upper_quartile,
        })
    }

    /// The median and half of what lies between the quartiles.
    fn text(self) -> String {
        format!(
            "{:.1} ±{:.1}",
            self.median,
            (self.upper_quartile - self.lower_quartile) / 2.0
        )
    }
}

/// One case at one hook.
#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    title: &'static str,
    hook: &'static str,
    /// By number of rules.
    rules: Vec<Cell>,
    /// From the fewest rules to the most, ns a packet.
    growth: f64,
}

#[derive(Debug, Serialize)]
struct Cell {
    rules: u32,
    /// ns a packet of the program less what makes its packets.
    cost: Figure,
    /// ns a packet of the whole.
    with_packet_making: Figure,
}

/// Everything, in JSON's order.
#[derive(Debug, Serialize)]
pub struct Report {
    kernel: String,
    cpu: String,
    command: String,
    packets: u32,
    rounds: u32,
    unit: &'static str,
    note: &'static str,
    loading_seconds: Vec<(u32, f64)>,
    empty_xdp: Figure,
    empty_tc: Figure,
    rows: Vec<Row>,
    /// A load that the nearest cache has.
    near_load: Figure,
    /// A load that misses the caches, in huge pages: only the line is missing.
    far_load: Figure,
    /// The same in pages of 4 KiB, as the kernel's larger tables are: the address's translation is missing, too.
    far_load_small_pages: Figure,
    near_bytes: usize,
    far_bytes: usize,
    /// `far_load` less `near_load`.
    cache_miss: f64,
    goal: Goal,
}

/// The lookup of a rule may grow by one cache miss.
#[derive(Debug, Serialize)]
struct Goal {
    text: &'static str,
    known_flow_growth: f64,
    lookup_growth: f64,
    cache_miss: f64,
    cache_miss_small_pages: f64,
}

const NOTE: &str = "This machine's figures, on the load it had: medians of the rounds, ± half of what lies between their \
quartiles. They tell costs beside each other in one run, not what another machine would show.";
const GOAL: &str = "the cost a packet grows by no more than one cache miss from the fewest rules to the most";

impl Report {
    /// Sums the samples up.
    pub fn new(options: &Options, tables: &[Tables], measured: &Measured) -> Result<Self> {
        let near_load = Figure::of(&measured.near)?;
        let (far_load, far_load_small_pages) = (Figure::of(&measured.far[0])?, Figure::of(&measured.far[1])?);
        let rows = rows(measured)?;
        let growth = |case: &str| {
            let of_case = rows.iter().filter(|row| row.case == case).map(|row| row.growth);
            of_case.fold(f64::NEG_INFINITY, f64::max)
        };
        let goal = Goal {
            text: GOAL,
            known_flow_growth: growth("known_flow"),
            lookup_growth: growth("lookup"),
            cache_miss: far_load.median - near_load.median,
            cache_miss_small_pages: far_load_small_pages.median - near_load.median,
        };
        Ok(Self {
            kernel: Host::this().release_text(),
            cpu: cpu(),
            command: options.command(),
            packets: options.packets,
            rounds: u32::try_from(measured.near.len()).unwrap_or(u32::MAX),
            unit: "ns",
            note: NOTE,
            loading_seconds: tables
                .iter()
                .map(|tables| (tables.rules, tables.loading.as_secs_f64()))
                .collect(),
            empty_xdp: Figure::of(&measured.empty[0])?,
            empty_tc: Figure::of(&measured.empty[1])?,
            cache_miss: goal.cache_miss,
            rows,
            near_load,
            far_load,
            far_load_small_pages,
            near_bytes: NEAR_BYTES,
            far_bytes: FAR_BYTES,
            goal,
        })
    }

    /// Prints it.
    pub fn print(&self, output: &mut Output) -> Result<()> {
        if output.json {
            return output.json(self);
        }
        output.line(format_args!("{}, Linux {}", self.cpu, self.kernel));
        output.line(format_args!("{}: ns a packet of 64 bytes, UDP over IPv4", self.command));
        output.line("");
        output.table(&self.table());
        output.line("");
        output.line("The other rows are what the work adds to a program that does nothing.");
        output.line(format_args!(
            "one load after another: {} from {} KiB, {} from {} MiB in huge pages, {} in small ones",
            self.near_load.text(),
            self.near_bytes >> 10,
            self.far_load.text(),
            self.far_bytes >> 20,
            self.far_load_small_pages.text()
        ));
        for (rules, seconds) in &self.loading_seconds {
            output.line(format_args!("{} rules loaded in {seconds:.2} s", thousands(*rules)));
        }
        output.line("");
        self.goal.print(output);
        output.line(self.note);
        Ok(())
    }

    fn table(&self) -> Table {
        let numbers = self
            .rows
            .first()
            .map(|row| row.rules.iter().map(|cell| thousands(cell.rules)).collect());
        let numbers: Vec<String> = numbers.unwrap_or_default();
        let mut columns = vec![("", Align::Left), ("packets", Align::Left)];
        columns.extend(numbers.iter().map(|number| (number.as_str(), Align::Right)));
        columns.push(("growth", Align::Right));
        let mut table = Table::new(&columns);
        for (hook, empty) in [(Hook::Xdp, self.empty_xdp), (Hook::Tc, self.empty_tc)] {
            let mut cells = vec![hook.name().to_owned(), "any, to a program that does nothing".to_owned()];
            cells.extend(numbers.iter().map(|_| empty.text()));
            table.row(cells);
        }
        for row in &self.rows {
            let mut cells = vec![row.hook.to_owned(), row.title.to_owned()];
            cells.extend(row.rules.iter().map(|cell| cell.cost.text()));
            cells.push(format!("{:+.1}", row.growth));
            table.row(cells);
        }
        table
    }
}

impl Goal {
    fn print(&self, output: &mut Output) {
        output.line(format_args!("goal: {}", self.text));
        let miss = format!(
            "a miss is {:.1} ns, {:.1} where the address's translation is missing, too",
            self.cache_miss, self.cache_miss_small_pages
        );
        for (what, growth) in [
            ("a known flow", self.known_flow_growth),
            ("the rule's lookup", self.lookup_growth),
        ] {
            let verdict = if growth <= self.cache_miss {
                "met"
            } else if growth <= self.cache_miss_small_pages {
                "met only by the second measure"
            } else {
                "missed"
            };
            output.line(format_args!("  {what}: {growth:+.1} ns, {verdict}; {miss}"));
        }
    }
}

fn rows(measured: &Measured) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for hook in [Hook::Xdp, Hook::Tc] {
        for case in CASES {
            let samples: Vec<&Samples> = measured
                .cases
                .iter()
                .filter(|samples| samples.case.name == case.name && samples.hook == hook)
                .collect();
            if samples.is_empty() {
                continue;
            }
            let rules: Vec<Cell> = samples.iter().map(|samples| cell(samples)).collect::<Result<_>>()?;
            let ends = rules.first().zip(rules.last());
            let growth = ends.map_or(0.0, |(first, last)| last.cost.median - first.cost.median);
            rows.push(Row {
                case: case.name,
                title: case.title,
                hook: hook.name(),
                rules,
                growth,
            });
        }
    }
    Ok(rows)
}

fn cell(samples: &Samples) -> Result<Cell> {
    let (cost, with_packet_making) = (Figure::of(&samples.cost)?, Figure::of(&samples.program)?);
    Ok(Cell {
        rules: samples.rules,
        cost,
        with_packet_making,
    })
}

/// 1000000 as 1,000,000.
pub fn thousands(number: u32) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

/// The model of the first CPU, as /proc/cpuinfo has it.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.trim_start().strip_prefix(':'));
    model.map_or_else(|| "unknown CPU".into(), |model| model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_can_be_read() {
        assert_eq!(
            [1, 999, 1000, 1_000_000].map(thousands),
            ["1", "999", "1,000", "1,000,000"]
        );
    }

    #[test]
    fn the_spread_is_told_beside_the_median() {
        let figure = Figure::of(&[10.0, 12.0, 11.0, 30.0]).unwrap();
        assert_eq!(figure.text(), "11.5 ±1.0");
    }
}
