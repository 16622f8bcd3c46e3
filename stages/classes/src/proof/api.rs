//! The experiment `classes-api`: how long a program's calls take, with few clients and with a million.

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;

use self::session::Session;
use super::scene::up;
use crate::module::{MODULE, Module};
use tarn_frame::state::StateDirectory;
use tarn_kernel::modules;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Metric, Plot};
use tarn_lab::topology::{Namespace, Node, Topology};

mod session;

/// The experiment.
pub static API: Experiment = Experiment {
    stage: crate::STAGE,
    name: "classes-api",
    title: "calls of a program, by the number of clients",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: &METRICS,
    plots: PLOTS,
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: None,
};

const METHOD: &str = "\
Networks of clients stand in a file that the configuration names. tarn is brought up, and again as it is. Then a program opens a \
session on the control socket, and calls the verbs one after the other, a hundred times each: it gives addresses a class for half \
an hour, gives each the same class again, asks for the status, and takes the classes away. The figure is the longest of the hundred, \
from the request's first byte to the answer's last; of the command line, from the start of its process to its end.

The peak of memory is the greatest that any process of `tarn up` had.

Finally, a table of as many other customers is imported with `--replace`, by command. The peak of memory is then the \
greatest of any process so far, `tarn up` included.

Times are instruction counts of an emulated CPU, one instruction a nanosecond.";

/// The goals: of every call but the commands, of `tarn up`, of its memory.
const CALL_MOST: f64 = 2.0;
const UP_MOST: f64 = 5.0;
const PEAK_MOST: f64 = 150.0;

/// Calls of each verb.
const CALLS: usize = 100;

const UP: &str = "up_s";
const AGAIN: &str = "again_s";
const PEAK: &str = "peak_mib";
const ADD: &str = "add_ms";
const RENEW: &str = "renew_ms";
const STATUS: &str = "status_ms";
const DELETE: &str = "delete_ms";
const COMMAND: &str = "command_ms";
const IMPORT: &str = "import_s";
const IMPORT_PEAK: &str = "import_peak_mib";

const METRICS: [Metric; 10] = [
    Metric::less(UP, "tarn up", "s", 2),
    Metric::less(AGAIN, "again", "s", 2),
    Metric::less(PEAK, "its memory", "MiB", 0),
    Metric::less(ADD, "add", "ms", 2),
    Metric::less(RENEW, "renew", "ms", 2),
    Metric::less(STATUS, "status", "ms", 2),
    Metric::less(DELETE, "delete", "ms", 2),
    Metric::less(COMMAND, "tarn classes add", "ms", 2),
    Metric::less(IMPORT, "import", "s", 2),
    Metric::less(IMPORT_PEAK, "peak so far", "MiB", 0),
];

static PLOTS: &[Plot] = &[];

/// So many networks of clients. The most is last: the peak of memory is that of all that ran so far.
const CASES: [(&str, u32); 3] = [("4", 4), ("10,000", 10_000), ("1,000,000", 1_000_000)];

const CONFIGURATION: &str = r#"[classes]
ports = ["tcp/80"]
deadline = "40ms"

[[classes.class]]
name = "gold"
target = 90

[[classes.class]]
name = "silver"
target = 80
networks_file = "silver.txt"

[[classes.class]]
name = "rest"
target = 50

[classes.import]
by = "months"
thresholds = [36, 12]
"#;
/// Beside the configuration.
const FILE: &str = "/tmp/silver.txt";
const TABLE: &str = "/tmp/customers.csv";

fn run(guest: &mut Guest) -> Result<Measurement> {
    let network = Topology::new().node(Node::new("server")).build()?;
    let server = network.namespace("server")?;
    let describe = |(name, _): &_| Case::new(*name, format!("{name} networks of clients"));
    let mut measurement = guest.measure(&CASES, describe, |(_, count), case, _| {
        let silver: String = networks(20, *count).map(|network| network + "\n").collect();
        fs::write(FILE, silver).with_context(|| format!("cannot write {FILE}"))?;
        measure(server, *count, case)?;
        server.tarn(&["down"])?;
        modules::unload(MODULE.name).map(drop)
    })?;
    measurement.goals = measurement.cases.iter().flat_map(goals).collect();
    Ok(measurement)
}

/// So many, of 16 addresses each, none beside another, from `begin`.0.0.0 on.
fn networks(begin: u8, count: u32) -> impl Iterator<Item = String> {
    let first = Ipv4Addr::new(begin, 0, 0, 0).to_bits();
    (0..count).map(move |number| format!("{}/28", Ipv4Addr::from_bits(first + number * 32)))
}

fn measure(server: &Namespace, count: u32, case: &mut Case) -> Result<()> {
    let mut set = |name: &str, value: f64| case.metrics.insert(name.to_owned(), value);
    let brought_up = || timed(|| up(server, CONFIGURATION));
    set(UP, brought_up()?.as_secs_f64());
    set(AGAIN, brought_up()?.as_secs_f64());
    let peak = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    set(PEAK, peak as f64 / 1024.0);
    let state = server.enter(StateDirectory::of_this_namespace)?;
    let mut session = Session::open(&state)?;
    let add = |address: String| json!({ "address": address, "class": "gold", "for": "30m" });
    set(
        ADD,
        longest(|number| session.call("add", &add(address(number))).map(drop))?,
    );
    set(
        RENEW,
        longest(|number| session.call("add", &add(address(number))).map(drop))?,
    );
    set(STATUS, longest(|_| session.call("status", &json!({})).map(drop))?);
    let known = server.enter(|| Module::loaded()?.clients())?.len();
    ensure!(known == count as usize + CALLS, "the module knows {known} clients");
    let delete = |address: String| json!({ "address": address });
    set(
        DELETE,
        longest(|number| session.call("delete", &delete(address(number))).map(drop))?,
    );
    set(
        COMMAND,
        longest(|number| server.tarn(&["classes", "add", &address(number), "gold"]).map(drop))?,
    );
    let customers: String = networks(60, count).map(|network| network + ",40\n").collect();
    fs::write(TABLE, format!("address,months\n{customers}")).with_context(|| format!("cannot write {TABLE}"))?;
    let import = || server.tarn(&["classes", "import", TABLE, "--replace"]).map(drop);
    set(IMPORT, timed(import)?.as_secs_f64());
    let peak = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    set(IMPORT_PEAK, peak as f64 / 1024.0);
    // The addresses that were added by command are replaced; what the file names stays.
    let known = server.enter(|| Module::loaded()?.clients())?.len();
    ensure!(known == 2 * count as usize, "the module knows {known} clients");
    Ok(())
}

/// Of a client who logs in.
fn address(number: usize) -> String {
    format!("10.5.{}.{}", number / 100, number % 100)
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

/// The longest of all calls, in milliseconds.
fn longest(mut call: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let mut longest = Duration::ZERO;
    for number in 0..CALLS {
        longest = longest.max(timed(|| call(number))?);
    }
    Ok(longest.as_secs_f64() * 1e3)
}

fn goals(case: &Case) -> Vec<Check> {
    let goals = [(UP, UP_MOST), (AGAIN, UP_MOST), (PEAK, PEAK_MOST)]
        .into_iter()
        .chain([ADD, RENEW, STATUS, DELETE].map(|name| (name, CALL_MOST)));
    let check = |(name, most): (&str, f64)| {
        let metric = METRICS.iter().find(|metric| metric.name == name)?;
        let value = *case.metrics.get(name)?;
        Some(Check {
            name: format!(
                "{} networks: {}: at most {most} {}",
                case.name, metric.title, metric.unit
            ),
            passed: value <= most,
            detail: format!("{value:.2} {}", metric.unit),
        })
    };
    goals.filter_map(check).collect()
}
