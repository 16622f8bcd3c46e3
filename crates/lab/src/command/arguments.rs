//! Arguments that verbs of `tarn lab` share, and what was given for them.

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::debug;
use crate::host;
use crate::image::MEMORY;
use crate::suite::{DEFAULT, SUITES, Suite};

pub fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub fn suite_argument() -> Arg {
    Arg::new("suite")
        .long("suite")
        .value_name("SUITE")
        .value_parser(Suite::parser())
}

pub fn suites_argument() -> Arg {
    suite_argument()
        .action(ArgAction::Append)
        .help(format!("{DEFAULT} when none is named; can be repeated"))
}

pub fn seed_argument() -> Arg {
    Arg::new("seed")
        .long("seed")
        .value_name("N")
        .default_value("1")
        .value_parser(value_parser!(u64))
        .help("The seed of everything random")
}

/// The flag that takes the debug kernel for the suite's own.
const DEBUG_KERNEL: &str = "debug-kernel";

pub fn debug_kernel_flag() -> Arg {
    flag(
        DEBUG_KERNEL,
        "Take a kernel with KASAN, lockdep and kmemleak, compiled first from the suite's source",
    )
}

pub fn fresh_flag() -> Arg {
    flag(
        "fresh",
        "Run it also where the same has run before: the same program, kernel and seed",
    )
}

pub fn times_flag() -> Arg {
    flag("times", "Print the CPU seconds that each took, the greatest first")
}

pub fn mirror_argument() -> Arg {
    Arg::new("mirror")
        .long("mirror")
        .value_name("URL")
        .help("Fetch Debian packages from there, when an image has to be made")
}

pub fn jobs_argument() -> Arg {
    let argument = Arg::new("jobs")
        .long("jobs")
        .short('j')
        .value_name("N")
        .value_parser(value_parser!(u16).range(1..));
    argument.help("Guests at a time [default: the number of CPUs, as far as memory goes]")
}

pub fn part_argument() -> Arg {
    Arg::new("part")
        .long("part")
        .value_name("N")
        .action(ArgAction::Append)
        .value_parser(value_parser!(u16).range(1..))
        .help("Only this part of each experiment, from 1, which the report leaves out; can be repeated")
}

pub fn cpus_argument() -> Arg {
    Arg::new("cpus")
        .long("cpus")
        .value_name("N")
        .value_parser(value_parser!(u8).range(1..=8))
        .help("Virtual CPUs of a guest, which take turns [default: 1; with --debug-kernel, 2]")
}

/// All that were given of an argument that can be repeated.
pub fn values<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, argument: &str) -> Vec<T> {
    matches.get_many(argument).into_iter().flatten().cloned().collect()
}

pub fn suites(matches: &ArgMatches, default: &[&'static Suite]) -> Vec<&'static Suite> {
    let named: Vec<String> = values(matches, "suite");
    if named.is_empty() {
        return default.to_vec();
    }
    let wanted = |suite: &&Suite| named.iter().any(|name| name == suite.name);
    SUITES.iter().filter(wanted).collect()
}

pub fn default_suites() -> Vec<&'static Suite> {
    Suite::named(DEFAULT).into_iter().collect()
}

pub fn mirror(matches: &ArgMatches) -> Option<&str> {
    matches.get_one::<String>("mirror").map(String::as_str)
}

pub fn seed(matches: &ArgMatches) -> u64 {
    matches.get_one("seed").copied().unwrap_or(1)
}

/// Guests at a time, of so many MiB.
pub fn jobs(matches: &ArgMatches, memory: u32) -> usize {
    matches
        .get_one::<u16>("jobs")
        .map_or_else(|| host::guests(memory), |jobs| usize::from(*jobs))
}

/// What a guest takes, in MiB.
pub fn memory(matches: &ArgMatches) -> u32 {
    match wants_debug_kernel(matches) {
        true => debug::MEMORY,
        false => MEMORY,
    }
}

/// Whether the debug kernel is wanted; verbs that measure have no such flag.
pub fn wants_debug_kernel(matches: &ArgMatches) -> bool {
    matches!(matches.try_get_one(DEBUG_KERNEL), Ok(Some(true)))
}
