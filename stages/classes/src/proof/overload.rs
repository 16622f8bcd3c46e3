//! The experiment `classes-overload`: who is answered in time when a service gets more requests than it can serve.

use std::time::Duration;

use anyhow::Result;

use super::load::{self, Offer, Protocol};
use super::scene::{Contender, Scene};
use super::service::{Service, Work};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{
    Case, Experiment, Guest, Highlight, Measurement, Metric, Metrics, Plot, Reference, Series, Size, metrics,
};
use tarn_lab::load::{Exchange, Exchanges};
use tarn_lab::stats::Sample;

mod checks;

/// The experiment.
pub static OVERLOAD: Experiment = Experiment {
    stage: crate::STAGE,
    name: "classes-overload",
    title: "who is answered in time when a service is overloaded",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: None,
};

/// What is shown at the end of a run.
static HIGHLIGHTS: &[Highlight] = &[
    Highlight {
        what: "gold in time at 140 %",
        metric: "in_time_0",
        stock: Some("stock-140"),
        peer: Some(("HAProxy", "haproxy-140")),
        published: Some("published-140"),
        tarn: "tarn-140",
    },
    Highlight {
        what: "gold's p99 there, ms",
        metric: "response_p99_ms_0",
        stock: Some("stock-140"),
        peer: Some(("HAProxy", "haproxy-140")),
        published: Some("published-140"),
        tarn: "tarn-140",
    },
];

const METHOD: &str = "\
Five clients, one of each class, send equal loads to a service that works on one request at a time, at their own times \
(Poisson arrivals), whether answers come or not. The load is a share of the capacity measured before, with clients that \
wait for their answers; the deadline is 20 mean service times, from the time at which a request should have been sent to \
its answer's arrival at the client. An answer of HTTP counts when its status is 200. Targets are 90, 80, 70, 60 and 50 % of \
a class's requests in time: 70 % on average, so that they can be kept up to 143 % of the capacity.

The service sleeps 2 ms for each request, as one that waits for its database; in full size it computes 2 million \
instructions. Over HTTP each request has a connection to itself while it is under way; over UDP each is a datagram.

HAProxy gives each class a priority and the service one connection, and refuses what has waited for as long as the \
deadline: what a user would pick for HTTP today. Through HAProxy, tarn sets the order of the classes, and the \
service gets one more connection. In the other cases tarn has a limit of two requests, one being worked on and one next. \
Where it finds the limit, the case says so; the first four seconds, in full size the first ten, are then left out of all figures.";

/// Percent of the capacity.
const LOADS: [u32; 6] = [50, 90, 110, 130, 140, 200];
/// Where the goal's figures are measured, which takes many requests.
const GOALS: [u32; 2] = [140, 200];
/// Requests a class that could be served, there and elsewhere.
const SERVED: (u32, u32) = (400, 60);
const SERVED_FULL: (u32, u32) = (5000, 2000);
/// Where the limit is found, under the only loads that have one, as many are served before anything is measured.
const LOADS_FINDING: [u32; 3] = [130, 140, 200];
const SERVED_FINDING: u32 = 400;
const SERVED_FINDING_FULL: u32 = 1000;
/// The deadline in mean service times.
const DEADLINE: u32 = 20;
const SLEEP: Duration = Duration::from_millis(2);
const INSTRUCTIONS: u64 = 2_000_000;

/// Who contends over which protocol; the default first among tarn's.
const CONTENDERS: [(Protocol, &[Contender]); 2] = [
    (
        Protocol::Http,
        &[
            Contender::Stock,
            Contender::Published,
            Contender::Haproxy,
            Contender::TarnHaproxy,
            Contender::Tarn,
            Contender::TarnAuto,
        ],
    ),
    (
        Protocol::Udp,
        &[Contender::Stock, Contender::Published, Contender::Tarn],
    ),
];

/// A share of the requests that were sent.
pub const fn share(name: &'static str, title: &'static str) -> Metric {
    Metric::more(name, title, "of those sent", 3)
}

const fn milliseconds(name: &'static str, title: &'static str) -> Metric {
    Metric::less(name, title, "ms", 1)
}

static METRICS: &[Metric] = &[
    share("in_time_0", "class 0 in time"),
    share("in_time_1", "class 1"),
    share("in_time_2", "class 2"),
    share("in_time_3", "class 3"),
    share("in_time_4", "class 4"),
    share("in_time", "all"),
    Metric::more("throughput_per_s", "throughput", "answers/s", 1),
    milliseconds("response_p99_ms_0", "class 0 p99"),
    milliseconds("response_p99_ms_1", "class 1 p99"),
    milliseconds("response_p99_ms_2", "class 2 p99"),
    milliseconds("response_p99_ms_3", "class 3 p99"),
    milliseconds("response_p99_ms_4", "class 4 p99"),
];

const CLASSES: &[&str] = &["class 0", "class 1", "class 2", "class 3", "class 4"];

static PLOTS: &[Plot] = &[
    Plot::Groups {
        title: "Answered in time at 140 % of the capacity, HTTP",
        series: "in_time_140",
        groups: CLASSES,
        promised: &[90.0, 80.0, 70.0, 60.0, 50.0],
        promise: "the class's target",
    },
    // Half of all requests can be served: 95 % of that, shared out as the targets are, whose mean is 70 %.
    Plot::Groups {
        title: "Answered in time at 200 % of the capacity, HTTP",
        series: "in_time_200",
        groups: CLASSES,
        promised: &[61.1, 54.3, 47.5, 40.7, 33.9],
        promise: "95 % of what can be done, in the targets' ratio",
    },
    Plot::Cdf {
        title: "Response times of class 0 at 140 %, HTTP, of those answered",
        series: "response_ms_0",
        logarithmic: true,
    },
    Plot::Cdf {
        title: "Response times of class 4 at 140 %, HTTP, of those answered",
        series: "response_ms_4",
        logarithmic: true,
    },
];

const SIMULATION: &str = "simulation of one server with exponential service times";

const CIRCUMSTANCES: &str =
    "share in time at 140 %; ratio rule, hopeless requests set aside when less than 4 service times are left";

const fn simulated(metric: &'static str, value: f64) -> Reference {
    Reference::new(SIMULATION, metric, value, CIRCUMSTANCES)
}

static REFERENCES: &[Reference] = &[
    simulated("in_time_0", 0.92),
    simulated("in_time_1", 0.82),
    simulated("in_time_2", 0.72),
    simulated("in_time_3", 0.61),
    simulated("in_time_4", 0.51),
];

/// What came of a load.
struct Outcome {
    /// A class each.
    answers: Vec<Exchanges>,
    deadline: Duration,
    /// From when requests are measured, and answers counted: CLOCK_MONOTONIC, ns.
    begin_ns: u64,
    duration: Duration,
}

/// A case: who contends, over which protocol, at which percentage of the capacity.
#[derive(Clone, Copy)]
struct Run {
    contender: Contender,
    protocol: Protocol,
    percent: u32,
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    load::allow_many_connections()?;
    let scene = Scene::new()?;
    let (seed, full) = (guest.seed, guest.size == Size::Full);
    let mut known = None;
    let mut measurement = guest.measure(&runs(guest.size), Run::case, |run, case, all| {
        let service_time = match known {
            Some((protocol, time)) if protocol == run.protocol => time,
            _ => capacity(&scene, run.protocol, full)?,
        };
        known = Some((run.protocol, service_time));
        let offer = Offer {
            protocol: run.protocol,
            service_time,
            percent: run.percent,
            warm_up: run.warm_up(full),
            served: run.served(full),
            seed,
        };
        let outcome = offer_to(&scene, run.contender, &offer, full)?;
        case.metrics = outcome.metrics();
        all.series.extend(outcome.series(run));
        Ok(())
    })?;
    measurement.checks = checks::of(&measurement);
    measurement.goals = checks::goals(&measurement);
    Ok(measurement)
}

fn runs(size: Size) -> Vec<Run> {
    let usual: &[u32] = if size == Size::Headline { &GOALS } else { &LOADS };
    let mut runs = Vec::new();
    for (protocol, contenders) in CONTENDERS {
        for &contender in contenders {
            let loads = if finds(contender) { &LOADS_FINDING } else { usual };
            runs.extend(loads.iter().map(|&percent| Run {
                contender,
                protocol,
                percent,
            }));
        }
    }
    runs
}

impl Run {
    fn name(&self) -> String {
        let Self {
            contender,
            protocol,
            percent,
        } = self;
        match protocol {
            Protocol::Http => format!("{}-{percent}", contender.name()),
            Protocol::Udp => format!("{}-udp-{percent}", contender.name()),
        }
    }

    /// Requests a class that could be served before anything is measured.
    fn warm_up(&self, full: bool) -> u32 {
        match () {
            () if !finds(self.contender) => 0,
            () if full => SERVED_FINDING_FULL,
            () => SERVED_FINDING,
        }
    }

    /// Requests a class that could be served while it is measured.
    fn served(&self, full: bool) -> u32 {
        let (goals, others) = if full { SERVED_FULL } else { SERVED };
        match () {
            () if finds(self.contender) || GOALS.contains(&self.percent) => goals,
            () => others,
        }
    }

    fn case(&self) -> Case {
        let protocol = match self.protocol {
            Protocol::Http => "HTTP",
            Protocol::Udp => "UDP",
        };
        let title = format!("{} %, {protocol}: {}", self.percent, self.contender.title());
        Case::new(self.name(), title)
    }
}

fn finds(contender: Contender) -> bool {
    matches!(contender, Contender::TarnAuto | Contender::TarnHaproxy)
}

fn serve(scene: &Scene, contender: Contender, protocol: Protocol, full: bool) -> Result<Service> {
    let work = if full {
        Work::Compute(INSTRUCTIONS)
    } else {
        Work::Sleep(SLEEP)
    };
    match protocol {
        Protocol::Http => Service::http(scene.server()?, contender.listens()?, work),
        Protocol::Udp => Service::udp(scene.server()?, contender.listens()?, work),
    }
}

/// The service's mean time for one request, with nothing before it.
fn capacity(scene: &Scene, protocol: Protocol, full: bool) -> Result<Duration> {
    let _service = serve(scene, Contender::Stock, protocol, full)?;
    load::service_time(scene, protocol)
}

fn offer_to(scene: &Scene, contender: Contender, offer: &Offer, full: bool) -> Result<Outcome> {
    let deadline = offer.service_time * DEADLINE;
    let service = serve(scene, contender, offer.protocol, full)?;
    let begun = scene.begin(contender, deadline)?;
    let answers = offer.run(scene)?;
    begun.end()?;
    drop(service);
    let due_ns = answers.iter().flat_map(Exchanges::list).map(|exchange| exchange.due_ns);
    let begin_ns = due_ns.min().unwrap_or(0) + offer.warm_up().as_nanos() as u64;
    Ok(Outcome {
        answers,
        deadline,
        begin_ns,
        duration: offer.duration(),
    })
}

impl Outcome {
    fn metrics(&self) -> Metrics {
        let shares = self.shares();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let mut row = metrics([("in_time", mean), ("throughput_per_s", self.throughput())]);
        for (class, share) in shares.into_iter().enumerate() {
            row.insert(format!("in_time_{class}"), share);
            // A class without an answer has no response time.
            if let Ok(sample) = Sample::new(self.responses_ms(class)) {
                row.insert(format!("response_p99_ms_{class}"), sample.percentile(99.0));
            }
        }
        row
    }

    /// The requests of a class that are measured.
    fn measured(&self, class: usize) -> impl Iterator<Item = &Exchange> {
        let requests = self.answers[class].list().iter();
        requests.filter(|exchange| exchange.due_ns >= self.begin_ns)
    }

    /// From when a request should have been sent to its answer.
    fn responses_ms(&self, class: usize) -> impl Iterator<Item = f64> {
        let answered = self
            .measured(class)
            .filter(|exchange| exchange.answer.is_some_and(|answer| answer.intact));
        answered.filter_map(|exchange| Some(exchange.latency_ns()? as f64 / 1e6))
    }

    /// The share of each class's requests that was answered in time.
    fn shares(&self) -> Vec<f64> {
        (0..self.answers.len()).map(|class| self.share_in_time(class)).collect()
    }

    fn share_in_time(&self, class: usize) -> f64 {
        let deadline = self.deadline.as_secs_f64() * 1e3;
        let in_time = self.responses_ms(class).filter(|time| *time <= deadline).count();
        let sent = self.measured(class).filter(|exchange| exchange.refused == 0).count();
        in_time as f64 / sent.max(1) as f64
    }

    /// Answers a second while requests came.
    fn throughput(&self) -> f64 {
        let while_measured = self.begin_ns..=self.begin_ns + self.duration.as_nanos() as u64;
        let answered = self.answers.iter().flat_map(Exchanges::list).filter(|exchange| {
            exchange
                .answer
                .is_some_and(|answer| answer.intact && while_measured.contains(&answer.received_ns))
        });
        answered.count() as f64 / self.duration.as_secs_f64()
    }

    /// What the plots show: HTTP where the goals are.
    fn series(&self, run: &Run) -> Vec<Series> {
        let series = |name: &str, unit: &str, values: Vec<f64>| Series {
            case: run.name(),
            name: name.into(),
            unit: unit.into(),
            values,
        };
        let shares = self.shares().into_iter().map(|share| 100.0 * share).collect();
        match (run.protocol, run.percent) {
            (Protocol::Http, 140) => vec![
                series("in_time_140", "%", shares),
                series("response_ms_0", "ms", self.responses_ms(0).collect()),
                series("response_ms_4", "ms", self.responses_ms(4).collect()),
            ],
            (Protocol::Http, 200) => vec![series("in_time_200", "%", shares)],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name that the checks and plots rely on is a case's, in every size.
    #[test]
    fn the_goals_cases_are_there() {
        for size in [Size::Headline, Size::Quick] {
            let names: Vec<String> = runs(size).iter().map(Run::name).collect();
            for name in ["tarn-140", "haproxy-140", "tarn-udp-140", "stock-udp-200"] {
                assert!(names.iter().any(|known| known == name), "{name} of {names:?}");
            }
        }
    }
}
