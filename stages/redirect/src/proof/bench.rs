//! `tarn lab bench redirect`: what the programs cost a packet on this machine, by number of rules.
//!
//! The kernel runs them on packets made for the purpose (`BPF_PROG_RUN`), in network namespaces of their own: nothing is
//! attached and nothing is sent. What they would do with the packet in the end, handing it to a device, is not in the
//! figures; the lab measures that.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

mod chase;
mod measure;
mod programs;
mod report;
mod setting;

tarn_kernel::skeleton!(mod skeleton, "bench");

use self::measure::{Chases, Measured, measure};
use self::report::{Report, thousands};
use self::setting::{MOST_RULES, Tables, TestNetwork, place};
use tarn_base::error::Unsupported;
use tarn_base::output::Output;
use tarn_frame::Tool;
use tarn_kernel::features::require_root;
use tarn_lab::progress::{Progress, Step};

/// Memory whose loads hit the nearest cache, in bytes.
const NEAR_BYTES: usize = 16 << 10;
/// Memory whose loads miss the caches, in bytes: as much as a million rules and their services take.
const FAR_BYTES: usize = 256 << 20;
/// Bytes that a rule takes while all is loaded, in the kernel and here: 1.0 KB and 0.5 KB, rounded up.
const BYTES_A_RULE: u64 = 2048;
/// Bytes that it takes besides: programs, flow tables, the two chains of loads.
const BYTES_BESIDES: u64 = 3 * FAR_BYTES as u64;

const EXAMPLES: &str = "Examples:
  tarn lab bench redirect
  tarn lab bench redirect --rules 1 1000000 --rounds 31 --json

Nothing is attached to any device and nothing is sent: the kernel runs the
programs on packets made for it, in network namespaces of their own.";

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Numbers of rules, ascending.
    rules: Vec<u32>,
    /// Packets of one measurement.
    packets: u32,
    /// Measurements of each case, at most.
    rounds: u32,
    /// How long all may take; one round is measured in any case.
    limit: Duration,
}

/// The benchmark.
pub struct Bench;

impl Tool for Bench {
    fn command(&self) -> Command {
        command()
    }

    fn execute(&self, matches: &ArgMatches, output: &mut Output) -> Result<()> {
        require_root("lab bench redirect")?;
        let options = Options::of(matches);
        check_memory(&options)?;
        let place = place()?;
        let (tables, measured) = place.network.namespace("host")?.enter(|| run(&options, &place))?;
        Report::new(&options, &tables, &measured)?.print(output)
    }
}

fn command() -> Command {
    Command::new("redirect")
        .about("Measure what the programs cost a packet on this machine")
        .after_help(EXAMPLES)
        .arg(
            number("rules", 1..=i64::from(MOST_RULES))
                .num_args(1..=16)
                .action(ArgAction::Append)
                .default_values(["1", "1000", "100000", "1000000"])
                .help("Numbers of rules to measure with"),
        )
        .arg(
            number("packets", 1000..=100_000_000)
                .default_value("200000")
                .help("Packets of one measurement"),
        )
        .arg(
            number("rounds", 1..=1000)
                .default_value("11")
                .help("Measurements of each case at most; the median is shown"),
        )
        .arg(
            number("seconds", 1..=86_400)
                .default_value("100")
                .help("No other round begins after so long"),
        )
}

fn number(name: &'static str, range: RangeInclusive<i64>) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("N")
        .value_parser(value_parser!(u32).range(range))
}

impl Options {
    fn of(matches: &ArgMatches) -> Self {
        let mut rules: Vec<u32> = matches.get_many("rules").into_iter().flatten().copied().collect();
        rules.sort_unstable();
        rules.dedup();
        let number = |name: &str| matches.get_one(name).copied().unwrap_or(1);
        Self {
            rules,
            packets: number("packets"),
            rounds: number("rounds"),
            limit: Duration::from_secs(number("seconds").into()),
        }
    }

    /// The command line that asks for the same.
    fn command(&self) -> String {
        let rules: Vec<String> = self.rules.iter().map(u32::to_string).collect();
        let rules = rules.join(" ");
        format!(
            "tarn lab bench redirect --rules {rules} --packets {} --rounds {} --seconds {}",
            self.packets,
            self.rounds,
            self.limit.as_secs()
        )
    }
}

/// Everything that happens inside the namespace, on one thread.
fn run(options: &Options, place: &TestNetwork) -> Result<(Vec<Tables>, Measured)> {
    let progress = Progress::default();
    let show = |doing: &str, fraction: f64| {
        progress.show(&Step {
            task: "bench redirect",
            doing,
            fraction,
            detail: "",
        });
    };
    let end = Instant::now() + options.limit;
    stay_on_this_cpu()?;
    let mut tables = Vec::new();
    for &rules in &options.rules {
        show(&format!("loading {} rules", thousands(rules)), 0.0);
        tables.push(Tables::load(place, rules).with_context(|| format!("load {rules} rules"))?);
    }
    show("linking memory for cache misses", 0.0);
    let mut chases = Chases::new(FAR_BYTES)?;
    let measured = measure(options, place, &tables, &mut chases, |done| {
        show("measuring", done);
        Instant::now() < end
    })?;
    progress.end("bench redirect");
    Ok((tables, measured))
}

/// A thread that moves to another CPU leaves its caches behind.
fn stay_on_this_cpu() -> Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).context("ask which CPUs may be used")?;
    let cpu = (0..CpuSet::count())
        .rev()
        .find(|&cpu| allowed.is_set(cpu).unwrap_or(false))
        .unwrap_or(0);
    let mut only = CpuSet::new();
    only.set(cpu).context("choose a CPU")?;
    sched_setaffinity(this, &only).context("stay on one CPU")
}

/// Refuses what would not fit into half of the memory that is free.
fn check_memory(options: &Options) -> Result<(), Unsupported> {
    let needed = needed_bytes(&options.rules);
    let Some(available) = available_bytes() else {
        return Ok(());
    };
    if needed <= available / 2 {
        return Ok(());
    }
    Err(Unsupported(format!(
        "this takes about {} MiB of memory, and {} MiB are available, of which it would take half at most: ask for \
         fewer rules with --rules",
        needed >> 20,
        available >> 20
    )))
}

fn needed_bytes(rules: &[u32]) -> u64 {
    rules.iter().map(|&rules| u64::from(rules) * BYTES_A_RULE).sum::<u64>() + BYTES_BESIDES
}

fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::of(
            &command()
                .try_get_matches_from([&["bench"], arguments].concat())
                .unwrap(),
        )
    }

    #[test]
    fn the_command_that_is_told_asks_for_the_same_again() {
        let asked = options(&[
            "--rules",
            "1000",
            "1",
            "--packets",
            "5000",
            "--rounds",
            "3",
            "--seconds",
            "7",
        ]);
        assert_eq!(asked.rules, [1, 1000]);
        let told = asked.command();
        let words: Vec<&str> = told.split(' ').skip(4).collect();
        assert_eq!(options(&words), asked);
    }

    #[test]
    fn a_million_rules_are_refused_where_they_would_press_others_out_of_memory() {
        let asked = options(&["--rules", "8000000"]);
        let error = check_memory(&asked);
        let available = available_bytes().unwrap();
        assert_eq!(error.is_err(), needed_bytes(&asked.rules) > available / 2);
    }

    #[test]
    #[ignore = "needs the lab"]
    fn lab_the_bench_measures_what_it_says_on_every_kernel() {
        let asked = options(&["--rules", "1", "100", "--packets", "1000", "--rounds", "1"]);
        let place = place().unwrap();
        let (tables, measured) = place
            .network
            .namespace("host")
            .unwrap()
            .enter(|| run(&asked, &place))
            .unwrap();
        // The runs themselves check that packets went as each case says.
        let report = Report::new(&asked, &tables, &measured).unwrap();
        assert!(serde_json::to_value(&report).unwrap()["rows"].as_array().unwrap().len() >= 11);
    }
}
