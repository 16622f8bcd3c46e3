//! Where the CPU time of the guests went, for `--times`.

use std::collections::BTreeMap;
use std::time::Duration;

use tarn_base::output::{Align, Output, Table};

/// QEMU's CPU time, user and system, by what it was used for. It is the host's time, and not the same twice: it goes
/// into no result.
#[derive(Debug, Default)]
pub struct Times {
    spent: BTreeMap<String, Duration>,
    boots: usize,
    /// Up to the job's first step, and from its last one to the end.
    around: Duration,
    replayed: usize,
}

impl Times {
    /// Counts a guest that used `total`, and `jobs` of it for what it was booted for.
    pub fn guest(&mut self, total: Duration, jobs: Duration) {
        self.boots += 1;
        self.around += total.saturating_sub(jobs);
    }

    /// Counts a guest that need not run.
    pub fn replay(&mut self) {
        self.replayed += 1;
    }

    /// Adds to what this test or experiment used.
    pub fn add(&mut self, name: String, time: Duration) {
        *self.spent.entry(name).or_default() += time;
    }

    /// Prints everything, the greatest first, with the total at the end.
    pub fn print(&self, output: &mut Output) {
        output.line("");
        output.table(&self.table());
        if self.replayed > 0 {
            output.line(format!(
                "{} guests need not run and are not in it; --fresh runs them",
                self.replayed
            ));
        }
    }

    fn table(&self) -> Table {
        let around = format!("boot and end of {} guests", self.boots);
        let mut rows: Vec<_> = self.spent.iter().map(|(name, time)| (*time, name.as_str())).collect();
        rows.push((self.around, &around));
        rows.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
        let total = rows.iter().map(|(time, _)| *time).sum();
        rows.push((total, "total"));
        let mut table = Table::new(&[("CPU s", Align::Right), ("%", Align::Right), ("", Align::Left)]);
        for (time, name) in rows {
            let share = 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
            table.row([&format!("{:.2}", time.as_secs_f64()), &format!("{share:.1}"), name]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What costs most has to be seen first, and nothing may be missing from the sum.
    #[test]
    fn the_most_expensive_comes_first_and_all_is_counted() {
        let mut times = Times::default();
        for (name, seconds) in [("a", 1), ("b", 3), ("a", 1)] {
            times.add(name.into(), Duration::from_secs(seconds));
        }
        times.guest(Duration::from_secs(8), Duration::from_secs(5));
        let text = times.table().render(None);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        let lines: Vec<_> = text.lines().skip(1).map(words).collect();
        assert_eq!(
            lines,
            [
                "3.00 37.5 b",
                "3.00 37.5 boot and end of 1 guests",
                "2.00 25.0 a",
                "8.00 100.0 total"
            ]
        );
    }
}
