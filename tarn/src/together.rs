//! The experiment `together`: what each stage does alone, and with all the others up, under the same traffic.

use anyhow::{Context, Result};
use tarn_lab::Proof;
use tarn_lab::builder::Source;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Better, Case, Check, Experiment, Guest, Measurement, Metric};

use self::scene::{STAGES, Scene};

pub mod scene;
mod traffic;

/// What proves the program as a whole.
pub static PROOF: Proof = Proof {
    stage: "together",
    modules: &MODULES,
    experiments: &[&TOGETHER],
    bench: None,
};

/// Those that the stages load.
static MODULES: [Source; 3] = [
    tarn_poll::PROOF.modules[0],
    tarn_reassembly::PROOF.modules[0],
    tarn_classes::PROOF.modules[0],
];

static TOGETHER: Experiment = Experiment {
    stage: "together",
    name: "together",
    title: "all stages at once",
    method: METHOD,
    cpus: 1,
    cards: Cards::Storm { lap_us: 300 },
    software: false,
    metrics: METRICS,
    plots: &[],
    references: &[],
    highlights: &[],
    parts: |_| RUNS.len(),
    headline: &[],
    run,
    conclude: Some(conclude),
};

const METHOD: &str = "\
One host serves, forwards and sends, and everything happens in each case; only the stages that are up differ. By the card, \
for 12 s: five clients, one of each class, ask 140 % of what a service can answer, which works on one request at a time for 5 ms; others \
ask a redirected port, and the host with datagrams of 4,000 bytes, which come in fragments; and a hostile host sends 1,000 first \
fragments a second, whose rest never comes. Where the stage redirect is not up, the host itself answers at that port. By two uplinks \
(10 Mbit/s; 20 and 40 ms there and back): the host sends by TCP, and a client of its plays a game. In the middle of the time the \
better uplink loses half of its rate; at the end the one that the game goes by is dead for 3 s. Then, on the stock kernel and \
with the stage poll, a flood comes in, 1.5 times what the CPU can receive, and a client asks the flooded host 12 times.

What a stage is judged by is what it shows alone: with all six up, it should be within 10 % of that, or better.";

static METRICS: &[Metric] = &[
    Metric::more("flood_served_per_s", "flood served", "/s", 0),
    Metric::less("flood_p50_us", "beside it, p50", "us", 0),
    Metric::less("flood_lost_share", "lost", "%", 0),
    Metric::less("redirected_p50_us", "redirected port, p50", "us", 1),
    Metric::more("redirected_share", "answered", "%", 2),
    Metric::neutral("by_server", "by the server", "", 0),
    Metric::more("large_share", "large datagrams answered", "%", 2),
    Metric::more("in_time_0", "class 0 in time", "%", 1),
    Metric::more("in_time_1", "class 1", "%", 1),
    Metric::more("in_time_2", "class 2", "%", 1),
    Metric::more("in_time_3", "class 3", "%", 1),
    Metric::more("in_time_4", "class 4", "%", 1),
    Metric::less("uplink_p95_ms", "first uplink, p95", "ms", 1),
    Metric::more("bulk_mbit_s", "TCP", "Mbit/s", 2),
    Metric::less("game_lost", "game, lost as its uplink dies", "", 0),
    Metric::less("left_after_ms", "left dead uplink after", "ms", 0),
];

/// Which stages are up in a case, by their places.
#[derive(Debug, Clone, Copy)]
struct Run {
    name: &'static str,
    title: &'static str,
    up: &'static [usize],
}

const fn alone(place: usize, up: &'static [usize]) -> Run {
    Run {
        name: STAGES[place].0,
        title: STAGES[place].0,
        up,
    }
}

/// One a guest, so that each finds the host as it was.
const RUNS: [Run; 9] = [
    Run {
        name: "stock",
        title: "stock kernel",
        up: &[],
    },
    Run {
        name: "together",
        title: "all stages",
        up: &[0, 1, 2, 3, 4, 5],
    },
    alone(0, &[0]),
    alone(1, &[1]),
    alone(2, &[2]),
    alone(3, &[3]),
    alone(4, &[4]),
    alone(5, &[5]),
    // What the rules of paths cost a flooded host.
    Run {
        name: "poll-paths",
        title: "poll and paths",
        up: &[0, 5],
    },
];

fn run(guest: &mut Guest) -> Result<Measurement> {
    let seed = guest.seed;
    let run = *RUNS.get(guest.part).context("there is no such part")?;
    let describe = |run: &Run| Case::new(run.name, run.title);
    guest.measure(&[run], describe, |run, case, _| {
        let scene = Scene::new(run.up)?;
        case.metrics = traffic::run(&scene, run.up, seed)?;
        scene.end(run.up)
    })
}

/// What a stage is judged by.
struct Headline {
    stage: &'static str,
    metric: &'static str,
    /// For people.
    what: &'static str,
    better: Better,
    /// A difference that is none, in the metric's unit: one request of those that were sent, or two.
    slack: f64,
}

const fn more(stage: &'static str, metric: &'static str, what: &'static str, slack: f64) -> Headline {
    Headline {
        stage,
        metric,
        what,
        better: Better::More,
        slack,
    }
}

const fn less(stage: &'static str, metric: &'static str, what: &'static str, slack: f64) -> Headline {
    Headline {
        better: Better::Less,
        ..more(stage, metric, what, slack)
    }
}

const HEADLINES: [Headline; 12] = [
    more(
        "poll",
        "flood_served_per_s",
        "packets of a flood that are served a second",
        0.0,
    ),
    less("poll", "flood_p50_us", "the median answer beside a flood, us", 0.0),
    less("poll", "flood_lost_share", "requests lost beside a flood, %", 9.0),
    less(
        "redirect",
        "redirected_p50_us",
        "the median answer at a redirected port, us",
        0.0,
    ),
    more("reassembly", "large_share", "datagrams in fragments answered, %", 0.5),
    more("classes", "in_time_0", "class 0 in time, %", 0.0),
    more("classes", "in_time_1", "class 1 in time, %", 0.0),
    more("classes", "in_time_2", "class 2 in time, %", 0.0),
    more("classes", "in_time_3", "class 3 in time, %", 0.0),
    more("classes", "in_time_4", "class 4 in time, %", 0.0),
    less("pace", "uplink_p95_ms", "a ping's p95 by the first uplink, ms", 0.0),
    more("pace", "bulk_mbit_s", "sent by TCP, Mbit/s", 0.0),
];

/// How much less may be had of a figure beside the other stages.
const PART: f64 = 0.1;

impl Headline {
    /// Whether the stage is as good beside the others; `None` where one of the cases was not run.
    fn goal(&self, all: &Measurement) -> Option<Check> {
        let alone = all.figure(self.stage, self.metric)?;
        let together = all.figure("together", self.metric)?;
        let worse = match self.better {
            Better::More => alone - together,
            _ => together - alone,
        };
        let metric = METRICS.iter().find(|metric| metric.name == self.metric)?;
        let digits = usize::from(metric.decimals);
        Some(Check {
            name: format!("{}: {}", self.stage, self.what),
            passed: worse <= (alone * PART).max(self.slack),
            detail: format!("{together:.digits$}, alone {alone:.digits$}"),
        })
    }
}

/// What shows that a stage works at all, and by how much it betters the stock kernel at least: alone, and beside the others.
const WORKS: [(&str, &str, f64); 5] = [
    ("poll", "flood_served_per_s", 20.0),
    ("reassembly", "large_share", 4.0),
    ("classes", "in_time_0", 20.0),
    ("pace", "uplink_p95_ms", 3.0),
    ("paths", "game_lost", 3.0),
];

fn works(all: &Measurement, case: &str, metric: &str, factor: f64) -> Option<Check> {
    let (stock, figure) = (all.figure("stock", metric)?, all.figure(case, metric)?);
    let is_less = METRICS
        .iter()
        .any(|known| known.name == metric && known.better == Better::Less);
    Some(Check {
        name: format!("{case}: {metric} betters the stock kernel {factor}-fold"),
        // Of a share, the stock kernel may have none; where less is better, a stock kernel without any has not been put to the test.
        passed: if is_less {
            stock > 0.0 && figure * factor <= stock
        } else {
            figure >= factor * stock.max(1.0)
        },
        detail: format!("{figure:.1}, stock {stock:.1}"),
    })
}

/// How soon `paths` promises to leave a dead uplink where traffic is steady.
const LEFT_MS: f64 = 200.0;

fn conclude(all: &mut Measurement) {
    let goals: Vec<Check> = HEADLINES.iter().filter_map(|headline| headline.goal(all)).collect();
    all.goals.extend(goals);
    if let Some(figure) = all.figure("together", "left_after_ms") {
        all.goals.push(Check {
            name: format!("paths: a game leaves a dead uplink within {LEFT_MS} ms"),
            passed: figure <= LEFT_MS,
            detail: format!("{figure:.0} ms"),
        });
    }
    let cases = WORKS
        .iter()
        .flat_map(|(stage, metric, factor)| [(*stage, *metric, *factor), ("together", *metric, *factor)]);
    let checks: Vec<Check> = cases
        .filter_map(|(case, metric, factor)| works(all, case, metric, factor))
        .collect();
    all.checks.extend(checks);
    // All that asked the redirected port: one every 10 ms, for 12 s.
    for case in ["redirect", "together"] {
        for (metric, least) in [("redirected_share", 99.0), ("by_server", 1188.0)] {
            if let Some(figure) = all.figure(case, metric) {
                all.checks.push(Check {
                    name: format!("{case}: {metric} is at least {least}"),
                    passed: figure >= least,
                    detail: format!("{figure:.2}"),
                });
            }
        }
    }
}
