//! The experiment `classes-calm`: services that can answer everybody, or that speak what tarn cannot look into, with the stage and
//! without it.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use self::situations::Seen;
use super::real::scene::{Begun, Scene};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Experiment, Guest, Measurement, Metric, Size};

mod checks;
mod situations;

/// The experiment.
pub static CALM: Experiment = Experiment {
    stage: crate::STAGE,
    name: "classes-calm",
    title: "services that can answer everybody, and what tarn takes for a request",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: true,
    metrics: METRICS,
    plots: &[],
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: Some(checks::conclude),
};

const METHOD: &str = "\
Each case is a situation in which a scheduler of requests can do harm, on the stock kernel and with tarn, which finds the limit (its \
default). Idle TLS: ApacheBench asks nginx for five pages, one after the other, each on a connection of its own, and each takes the \
application 0.3 s. Healthy: a service of so many workers, each of which takes so long, is offered a share of its capacity from the \
moment when tarn is up. Slows: 16 workers take 0.2 s at first, and 0.4 s after 12 s, which makes the load their capacity. Stuck: a name \
server answers nothing, and a web server beside it is asked ten times a second. Then what is counted: 40 requests in 40 streams of one \
connection of HTTP/2, 40 in one packet of HTTP/1.1, and one that asks for an interim answer (100) 0.3 s before its answer.";

/// Situations are not compared with each other.
static METRICS: &[Metric] = &[
    Metric::neutral("answered_share", "answered", "% of those sent", 1),
    Metric::neutral("throughput_per_s", "throughput", "answers/s", 1),
    Metric::neutral("p99_ms", "p99", "ms", 1),
    Metric::neutral("slowest_ms", "slowest", "ms", 1),
    Metric::neutral("counted", "tarn counts", "requests", 0),
    Metric::neutral("said_ms", "tarn says: median", "ms", 1),
];

const DEADLINE: Duration = Duration::from_secs(2);

/// A service that is not overloaded.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Healthy {
    workers: usize,
    time: Duration,
    /// Percent of the capacity.
    percent: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Situation {
    IdleTls,
    Healthy(Healthy),
    Slows,
    Stuck,
    Streams,
    Pipelined,
    Interim,
}

impl Situation {
    fn name(self) -> String {
        match self {
            Self::IdleTls => "idle-tls".into(),
            Self::Healthy(Healthy { workers, time, percent }) => {
                format!("healthy-{workers}x{}ms-{percent}", time.as_millis())
            }
            Self::Slows => "slows".into(),
            Self::Stuck => "stuck".into(),
            Self::Streams => "streams".into(),
            Self::Pipelined => "pipelined".into(),
            Self::Interim => "interim".into(),
        }
    }

    fn title(self) -> String {
        match self {
            Self::IdleTls => "five pages in TLS, one after the other".into(),
            Self::Healthy(Healthy { workers, time, percent }) => {
                let workers = if workers == 1 {
                    "one worker".into()
                } else {
                    format!("{workers} workers")
                };
                format!("{workers}, {} ms a request, {percent} % load", time.as_millis())
            }
            Self::Slows => "16 workers that slow down, at their capacity".into(),
            Self::Stuck => "a web server beside a stuck name server".into(),
            Self::Streams => "40 streams of HTTP/2".into(),
            Self::Pipelined => "40 pipelined requests of HTTP/1.1".into(),
            Self::Interim => "a request with an interim answer".into(),
        }
    }

    /// The services in tarn's configuration.
    fn services(self) -> String {
        let service = |name: &str, port: &str, protocol: &str| {
            format!("[[classes.service]]\nname = \"{name}\"\nports = [\"{port}\"]\nprotocol = \"{protocol}\"\n")
        };
        match self {
            Self::IdleTls | Self::Streams => service("web", "tcp/443", "http"),
            Self::Healthy(_) | Self::Slows => service("web", "udp/80", "datagram"),
            Self::Stuck => service("web", "tcp/80", "http") + &service("names", "udp/53", "dns"),
            Self::Pipelined | Self::Interim => service("web", "tcp/80", "http"),
        }
    }
}

fn situations(size: Size) -> Vec<Situation> {
    let healthy = |workers, millis, percent| {
        Situation::Healthy(Healthy {
            workers,
            time: Duration::from_millis(millis),
            percent,
        })
    };
    let mut all = vec![Situation::IdleTls];
    if size == Size::Full {
        for workers in [1, 4, 16, 64] {
            for millis in [1, 20, 400, 2000] {
                all.extend([16, 50, 80].map(|percent| healthy(workers, millis, percent)));
            }
        }
    } else {
        all.extend([healthy(64, 400, 16), healthy(1, 20, 50), healthy(4, 20, 80)]);
    }
    all.extend([
        Situation::Slows,
        Situation::Stuck,
        Situation::Streams,
        Situation::Pipelined,
        Situation::Interim,
    ]);
    all
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let scene = Scene::new()?;
    let seed = guest.seed;
    let runs: Vec<(bool, Situation)> = situations(guest.size)
        .into_iter()
        .flat_map(|situation| [(false, situation), (true, situation)])
        .collect();
    let describe = |(with, situation): &(bool, Situation)| {
        let (name, title) = if *with {
            ("tarn", "tarn")
        } else {
            ("stock", "stock kernel")
        };
        Case::new(
            format!("{name}-{}", situation.name()),
            format!("{}: {title}", situation.title()),
        )
    };
    guest.measure(&runs, describe, |(with, situation), case, _| {
        let begin = |begun: &mut Begun<'_>| match with {
            true => begun.up(&situation.services(), DEADLINE),
            false => Ok(()),
        };
        let Seen { begun, metrics } = situation.run(&scene, begin, seed)?;
        case.metrics = metrics;
        if *with {
            let status = begun.status()?;
            case.metrics
                .insert("counted".into(), sum(&status["requests"], "requests"));
            if *situation == Situation::Interim {
                let median = status["classes"][0]["response_p50"].as_f64();
                case.metrics
                    .extend(median.map(|median| ("said_ms".into(), median / 1e3)));
            }
        }
        begun.end()
    })
}

fn sum(rows: &Value, figure: &str) -> f64 {
    let rows = rows.as_array().into_iter().flatten();
    rows.filter_map(|row| row[figure].as_f64()).sum()
}
