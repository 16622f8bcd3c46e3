//! The experiment `classes-published`: the thesis's own, five clients of a web server.

use std::time::Duration;

use anyhow::{Context, Result};

use super::load;
use super::scene::{self, SERVICE, Scene, TARGETS};
use crate::module::{Module, State};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Metric, Metrics, Plot, Series, Size, metrics};
use tarn_lab::load::{Exchange, Exchanges, Flow, HttpRequests};

mod apache;
mod references;

/// The experiment.
pub static PUBLISHED: Experiment = Experiment {
    stage: crate::STAGE,
    name: "classes-published",
    title: "five classes of clients of a web server, as in the thesis",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: references::ALL,
    highlights: &[],
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: None,
};

const METHOD: &str = "\
The experiment of the 2006 thesis: five clients, one of each class, ask a web server for a small page, each on four \
connections that are kept, each the next request when the last is answered. A response time is the time around send and \
receive; connecting is left out. The deadline is the mean time that the server needs for an answer while all ask, measured \
before; nothing is measured until each connection has had a hundred answers, so that the limit is found. The thesis's server was Apache on a 700 MHz machine with Linux 2.6.16, behind 100 Mbit/s; here it is Debian's \
Apache in a network namespace of its own. Its figures stand beside ours; times of two such machines do not compare, shares \
and their order do.

A closed loop of twenty requests is never more than the server can do: what is late by one class's turn is early by \
another's. What happens when more comes than can be served is shown by classes-overload.";

/// Connections of each client.
const CONNECTIONS: u16 = 4;
/// Requests on each; in full size as many as the thesis's.
const REQUESTS: u32 = 100;
const REQUESTS_FULL: u32 = 15_000;
/// Requests on each while the mean time for an answer is measured.
const ANSWER_TIME: u32 = 20;
/// Requests on each before anything is measured: meanwhile the limit is found.
const WARM_UP: u32 = 100;
/// A deadline that everything meets, as long as the right one is not known.
const NO_DEADLINE: Duration = Duration::from_secs(60);

/// What tarn's section says in each case; nothing where it is not up.
const CASES: [(&str, &str, Option<&str>); 4] = [
    ("stock", "stock kernel", None),
    (
        "published",
        "published rule, limit 2",
        Some("rule = \"published\"\nlimit = 2"),
    ),
    ("tarn-limit", "tarn, limit 2", Some("limit = 2")),
    ("tarn", "tarn (defaults)", Some("")),
];

static METRICS: &[Metric] = &{
    const fn response(name: &'static str, title: &'static str) -> Metric {
        Metric::less(name, title, "ms", 3)
    }
    const fn requests(name: &'static str, title: &'static str) -> Metric {
        Metric::neutral(name, title, "requests", 0)
    }
    const fn in_time(name: &'static str, title: &'static str) -> Metric {
        Metric::more(name, title, "requests", 0)
    }
    const fn priority(name: &'static str, title: &'static str) -> Metric {
        Metric::neutral(name, title, "scaled", 0)
    }
    [
        response("response_ms_0", "class 0 mean response"),
        response("response_ms_1", "class 1 mean"),
        response("response_ms_2", "class 2 mean"),
        response("response_ms_3", "class 3 mean"),
        response("response_ms_4", "class 4 mean"),
        requests("requests_0", "class 0 requests"),
        requests("requests_1", "class 1"),
        requests("requests_2", "class 2"),
        requests("requests_3", "class 3"),
        requests("requests_4", "class 4"),
        in_time("in_time_0", "class 0 in time"),
        in_time("in_time_1", "class 1"),
        in_time("in_time_2", "class 2"),
        in_time("in_time_3", "class 3"),
        in_time("in_time_4", "class 4"),
        priority("priority_0", "class 0 priority"),
        priority("priority_1", "class 1"),
        priority("priority_2", "class 2"),
        priority("priority_3", "class 3"),
        priority("priority_4", "class 4"),
        Metric::more("throughput_per_s", "throughput", "answers/s", 0),
        Metric::neutral("deadline_ms", "deadline", "ms", 3),
    ]
};

static PLOTS: &[Plot] = &[
    timeline("Response time by class, stock kernel", "response_stock"),
    timeline("Response time by class, published rule", "response_published"),
    timeline("Response time by class, tarn, limit 2", "response_tarn-limit"),
    timeline("Response time by class, tarn", "response_tarn"),
    timeline("Throughput by class, stock kernel", "throughput_stock"),
    timeline("Throughput by class, published rule", "throughput_published"),
    timeline("Throughput by class, tarn, limit 2", "throughput_tarn-limit"),
    timeline("Throughput by class, tarn", "throughput_tarn"),
];

const fn timeline(title: &'static str, series: &'static str) -> Plot {
    Plot::Timeline {
        title,
        series,
        x: "ms from the start",
        from: 0,
        step: SLOT_MS,
        lanes: None,
    }
}

/// The goal for the throughput that is lost, in percent, and what must hold meanwhile.
const GOAL_LESS: f64 = 2.0;
const MOST_LESS: f64 = 4.0;

/// What the plots put together.
const SLOT_MS: u32 = 20;

fn run(guest: &mut Guest) -> Result<Measurement> {
    let scene = Scene::new()?;
    let mut server = apache::start(&scene)?;
    let requests = match guest.size {
        Size::Full => REQUESTS_FULL,
        _ => REQUESTS,
    };
    let deadline = answer_time(&scene)?;
    let describe = |(name, title, _): &_| Case::new(*name, *title);
    let mut measurement = guest.measure(&CASES, describe, |(name, _, settings), case, all| {
        let outcome = measure(&scene, *settings, deadline, requests)?;
        case.metrics = outcome.metrics();
        all.series.extend(outcome.series(name));
        all.checks.push(outcome.check(name));
        Ok(())
    })?;
    scene::end_program(&mut server)?;
    let (check, goal) = [MOST_LESS, GOAL_LESS]
        .map(|most| throughput_check(&measurement, most))
        .into();
    measurement.checks.push(check);
    measurement.goals.push(goal);
    Ok(measurement)
}

/// All classes' requests, by four connections each.
fn ask(scene: &Scene, requests: u32) -> Result<Vec<Exchanges>> {
    load::together(scene, |class| {
        let flow = Flow::to(SERVICE.parse()?).from(Scene::client(class)?);
        HttpRequests {
            connections: CONNECTIONS,
            ..HttpRequests::new(flow, requests * u32::from(CONNECTIONS))
        }
        .run()
    })
}

/// The mean time to an answer when all ask and nothing waits: of all of them, for it varies.
fn answer_time(scene: &Scene) -> Result<Duration> {
    scene.start_tarn("rule = \"published\"\nlimit = 16384", NO_DEADLINE)?;
    let times: Vec<f64> = ask(scene, ANSWER_TIME)?
        .iter()
        .flat_map(Exchanges::round_trips_us)
        .collect();
    scene.tarn(&["down"])?;
    let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
    Ok(Duration::from_secs_f64(mean / 1e6))
}

fn state(scene: &Scene) -> Result<State> {
    let mut module = scene
        .server()?
        .enter(Module::find)?
        .context("the module is not loaded")?;
    module.state()?.context("no classes run")
}

/// One case: what the clients saw, and where tarn was up, what it counted.
struct Outcome {
    answers: Vec<Exchanges>,
    state: Option<State>,
    deadline: Duration,
}

fn measure(scene: &Scene, settings: Option<&str>, deadline: Duration, requests: u32) -> Result<Outcome> {
    if let Some(settings) = settings {
        scene.start_tarn(settings, deadline)?;
    }
    ask(scene, WARM_UP)?;
    if settings.is_some() {
        scene.tarn(&["classes", "reset"])?;
    }
    let answers = ask(scene, requests)?;
    let mut state_then = None;
    if settings.is_some() {
        state_then = Some(state(scene)?);
        scene.tarn(&["down"])?;
    }
    Ok(Outcome {
        answers,
        state: state_then,
        deadline,
    })
}

impl Outcome {
    fn metrics(&self) -> Metrics {
        let mut row = metrics([
            ("throughput_per_s", self.throughput()),
            ("deadline_ms", self.deadline.as_secs_f64() * 1e3),
        ]);
        for (class, answers) in self.answers.iter().enumerate() {
            let times = answers.round_trips_us();
            let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
            row.insert(format!("response_ms_{class}"), mean / 1e3);
        }
        for (class, counts) in self.state.iter().flat_map(|state| &state.counts).enumerate() {
            let (requests, in_time) = (counts.requests as f64, counts.in_time as f64);
            row.insert(format!("requests_{class}"), requests);
            row.insert(format!("in_time_{class}"), in_time);
            if counts.in_time > 0 {
                let target = f64::from(TARGETS[class]);
                row.insert(format!("priority_{class}"), 10.0 * requests * target / in_time);
            }
        }
        row
    }

    fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.answers.iter().flat_map(Exchanges::list)
    }

    fn begin(&self) -> u64 {
        self.exchanges().map(|exchange| exchange.sent_ns).min().unwrap_or(0)
    }

    fn throughput(&self) -> f64 {
        let received = self
            .exchanges()
            .filter_map(|exchange| Some(exchange.answer?.received_ns));
        let (count, last) = received.fold((0_u64, 0), |(count, last), time| (count + 1, last.max(time)));
        count as f64 * 1e9 / last.saturating_sub(self.begin()).max(1) as f64
    }

    /// Mean response time and rate of answers of each class in each slot of time.
    fn series(&self, case: &str) -> Vec<Series> {
        let begin = self.begin();
        let course = |(class, answers): (usize, &Exchanges)| {
            let mut slots: Vec<(f64, u32)> = Vec::new();
            for exchange in answers.list() {
                let Some(answer) = exchange.answer else { continue };
                let slot = ((answer.received_ns - begin) / 1_000_000 / u64::from(SLOT_MS)) as usize;
                slots.resize(slots.len().max(slot + 1), (0.0, 0));
                slots[slot].0 += exchange.round_trip_ns().unwrap_or(0) as f64 / 1e6;
                slots[slot].1 += 1;
            }
            // Who waits in a slot without answers is answered in the next one that has some; the last one has.
            let mut means: Vec<f64> = slots.iter().map(|(sum, count)| sum / f64::from(*count)).collect();
            for slot in (0..means.len().saturating_sub(1)).rev() {
                if slots[slot].1 == 0 {
                    means[slot] = means[slot + 1];
                }
            }
            let rates = slots.iter().map(|(_, count)| f64::from(count * 1000 / SLOT_MS));
            let series = |name: String, unit: &str, values: Vec<f64>| Series {
                case: format!("class {class}"),
                name,
                unit: unit.into(),
                values,
            };
            [
                series(format!("response_{case}"), "ms", means),
                series(format!("throughput_{case}"), "answers/s", rates.collect()),
            ]
        };
        self.answers.iter().enumerate().flat_map(course).collect()
    }

    fn check(&self, case: &str) -> Check {
        let (mut sent, mut answered, mut damaged) = (0, 0, 0);
        for answers in &self.answers {
            sent += answers.sent_count();
            answered += answers.answered_count();
            damaged += answers.damaged_count();
        }
        Check {
            name: format!("{case}: every request is answered with the page"),
            passed: sent > 0 && answered == sent && damaged == 0,
            detail: format!("{sent} sent, {answered} answered, {damaged} of them not with the page"),
        }
    }
}

/// What tarn costs while every request is served, of which at most so many percent.
fn throughput_check(measurement: &Measurement, most_less: f64) -> Check {
    let of = |case: &str| measurement.figure(case, "throughput_per_s").unwrap_or(0.0);
    let (tarn, stock) = (of("tarn"), of("stock"));
    let less = 100.0 * (1.0 - tarn / stock);
    Check {
        name: format!("tarn: at most {most_less} % less throughput than the stock kernel"),
        passed: less <= most_less,
        detail: format!("{tarn:.0} against {stock:.0} answers/s, {less:.1} % less"),
    }
}
