//! The experiment `classes-real`: programs as users run them, under loads from generators that are not ours, and what their clients
//! saw beside what tarn says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use self::clients::{Load, Seen};
use self::scene::{Begun, Contender, Counted, Scene};
use self::servers::Kind;
use super::load::allow_many_connections;
use super::overload::share;
use super::scene::TARGETS;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Experiment, Guest, Highlight, Measurement, Metric, Plot, Series, Size};

mod checks;
pub mod clients;
pub mod scene;
pub mod servers;

/// The experiment.
pub static REAL: Experiment = Experiment {
    stage: crate::STAGE,
    name: "classes-real",
    title: "what clients of nginx, HAProxy and unbound see, and what tarn says",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: true,
    metrics: METRICS,
    plots: PLOTS,
    references: &[],
    highlights: HIGHLIGHTS,
    parts: |size| parts(size).len(),
    headline: &[0],
    run,
    conclude: Some(checks::conclude),
};

static HIGHLIGHTS: &[Highlight] = &[Highlight {
    what: "nginx: gold at 140 %",
    metric: "in_time_0",
    stock: Some("stock-nginx-http-1.4"),
    peer: None,
    published: None,
    tarn: "tarn-nginx-http-1.4",
}];

const METHOD: &str = "\
Debian's nginx stands before gunicorn, which works on four requests at a time, each for 100 ms; unbound answers from its own data and \
may use 1 % of a CPU. Five classes of clients, each in a network of its own, send equal loads: h2load sends requests of HTTP, dnsperf \
those of DNS, at equal distances, whether answers come or not. The load is a share of the capacity that the same generators measured \
before; the deadline is 10 mean service times (of unbound, 500 ms). Targets are 90, 80, 70, 60 and 50 %. tarn has its defaults: it \
finds the limit, and the figures begin with the second window, after 10 s. HAProxy, where it is there, ends TLS, gives each \
class a priority, and the service four requests at a time, five where tarn sets the order.

In time is what the clients saw: by HTTP/1.1 from when a request is sent, each on a connection of its own, by HTTP/2 from when it is due \
on one of four connections, in TLS from the first packet of a connection with one request to its last data, as tcpdump sees it \
on the client's wire. What tarn says is what `tarn classes status` counts over all of the run, in TLS from the second window on; `seen` is what the \
clients saw over the same.";

/// From when the load is measured, and for how long: the second window.
const FROM: Duration = Duration::from_secs(10);
const LENGTH: Duration = Duration::from_secs(10);
const LENGTH_FULL: Duration = Duration::from_secs(110);
/// How long it goes on: what is measured has as much beside it to the end.
const AFTER: Duration = Duration::from_secs(2);
/// How old may be what tarn says of a service behind HAProxy.
const SAID_EVERY: Duration = Duration::from_millis(1500);
/// Ten times what a request takes gunicorn.
const DEADLINE: Duration = Duration::from_secs(1);
const DEADLINE_DNS: Duration = Duration::from_millis(500);

static METRICS: &[Metric] = &[
    share("in_time_0", "class 0 in time"),
    share("in_time_1", "class 1"),
    share("in_time_2", "class 2"),
    share("in_time_3", "class 3"),
    share("in_time_4", "class 4"),
    Metric::more("throughput_per_s", "throughput", "answers/s", 1),
    share("seen_in_time_0", "class 0, compared"),
    share("said_in_time_0", "as tarn says"),
    share("seen_in_time_4", "class 4, compared"),
    share("said_in_time_4", "as tarn says, class 4"),
];

static PLOTS: &[Plot] = &[Plot::Groups {
    title: "Answered in time at 140 % of the capacity: nginx, HTTP/1.1",
    series: "in_time_140",
    groups: &["class 0", "class 1", "class 2", "class 3", "class 4"],
    promised: &[90.0, 80.0, 70.0, 60.0, 50.0],
    promise: "the class's target",
}];

/// A case.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    contender: Contender,
    kind: Kind,
    /// Percent of the capacity.
    percent: u32,
}

impl Run {
    fn name(&self) -> String {
        let Self {
            contender,
            kind,
            percent,
        } = self;
        let load = f64::from(*percent) / 100.0;
        format!("{}-{}-{load:.1}", contender.name(), kind.name())
    }

    fn case(&self) -> Case {
        let Self {
            contender,
            kind,
            percent,
        } = self;
        Case::new(
            self.name(),
            format!("{}, {percent} %: {}", kind.title(), contender.title()),
        )
    }
}

/// Each part's cases are measured in a guest of their own.
fn parts(size: Size) -> Vec<Vec<Run>> {
    use Contender::{Haproxy, Stock, Tarn, TarnHaproxy};
    use Kind::{Dns, Http, Http2, Tls};
    let runs = |kind: Kind, percent: u32, contenders: &[Contender]| {
        let run = |&contender: &Contender| Run {
            contender,
            kind,
            percent,
        };
        contenders.iter().map(run).collect::<Vec<_>>()
    };
    let own = [Stock, Tarn];
    let steered = [Haproxy, TarnHaproxy];
    match size {
        Size::Headline => vec![runs(Http, 140, &own)],
        Size::Quick => vec![
            runs(Http, 140, &own),
            runs(Tls, 140, &own),
            [runs(Http, 140, &steered), runs(Http2, 140, &steered)].concat(),
            runs(Dns, 140, &own),
        ],
        Size::Full => {
            let of = |percent: u32| {
                [
                    runs(Http, percent, &[Stock, Haproxy, Tarn, TarnHaproxy]),
                    runs(Tls, percent, &[Stock, Haproxy, Tarn, TarnHaproxy]),
                    runs(Http2, percent, &[Stock, Haproxy, TarnHaproxy]),
                    runs(Dns, percent, &own),
                ]
            };
            [50, 110, 130, 140, 200].into_iter().flat_map(of).collect()
        }
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    allow_many_connections()?;
    let scene = Scene::new()?;
    let parts = parts(guest.size);
    let runs = parts.get(guest.part).context("there is no such part")?;
    let length = if guest.size == Size::Full { LENGTH_FULL } else { LENGTH };
    let mut capacities = Vec::new();
    guest.measure(runs, Run::case, |run, case, all| {
        let deadline = if run.kind == Kind::Dns { DEADLINE_DNS } else { DEADLINE };
        let capacity = capacity(&scene, run.kind, &mut capacities)?;
        let load = Load {
            kind: run.kind,
            rate: capacity * f64::from(run.percent) / 100.0 / TARGETS.len() as f64,
            length: FROM + length + AFTER,
        };
        let begun = scene.begin(run.contender, run.kind, deadline)?;
        let (seen, before) = load.run(&scene, FROM, || Count::of(run, &begun))?;
        std::thread::sleep(SAID_EVERY);
        let after = run.contender.is_tarn().then(|| begun.counted()).transpose()?;
        begun.end()?;
        let outcome = Outcome { seen, deadline, length };
        outcome.fill(case);
        if let Some(after) = after {
            outcome.compare(case, &before, &after);
        }
        if run.kind == Kind::Http && run.percent == 140 {
            let shares = (0..TARGETS.len()).map(|class| 100.0 * outcome.share(class));
            all.series.push(Series {
                case: run.name(),
                name: "in_time_140".into(),
                unit: "%".into(),
                values: shares.collect(),
            });
        }
        Ok(())
    })
}

/// Answers a second of this kind's service, which is measured once a guest.
fn capacity(scene: &Scene, kind: Kind, known: &mut Vec<(Kind, f64)>) -> Result<f64> {
    if let Some((_, capacity)) = known.iter().find(|(known, _)| *known == kind) {
        return Ok(*capacity);
    }
    let begun = scene.begin(Contender::Stock, kind, DEADLINE)?;
    let measured = clients::capacity(scene, kind)?;
    begun.end()?;
    known.push((kind, measured));
    Ok(measured)
}

/// What tarn had counted when the comparison began; nothing at the beginning of all.
#[derive(Default)]
struct Count {
    /// As clients note times, in s.
    at: f64,
    classes: Vec<Counted>,
}

impl Count {
    /// Of connections in TLS only: they are counted by what an answer usually takes, which has to be known first.
    fn of(run: &Run, begun: &Begun<'_>) -> Result<Self> {
        if !run.contender.is_tarn() || run.kind != Kind::Tls {
            return Ok(Self::default());
        }
        Ok(Self {
            at: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64(),
            classes: begun.counted()?,
        })
    }
}

/// What clients saw of a load.
struct Outcome {
    /// A class each.
    seen: Vec<Vec<Seen>>,
    deadline: Duration,
    length: Duration,
}

impl Outcome {
    fn fill(&self, case: &mut Case) {
        for class in 0..TARGETS.len() {
            case.metrics.insert(format!("in_time_{class}"), self.share(class));
        }
        case.metrics.insert("throughput_per_s".into(), self.throughput());
    }

    /// What tarn has counted since `before`, and what the clients saw, by the same rule: a request counts when it comes, and as
    /// answered in time when it is.
    fn compare(&self, case: &mut Case, before: &Count, after: &[Counted]) {
        for (class, after) in after.iter().enumerate() {
            let earlier = before.classes.get(class).copied().unwrap_or_default();
            let (requests, in_time) = (after.requests - earlier.requests, after.in_time - earlier.in_time);
            let mut add = |name: &str, value: f64| case.metrics.insert(format!("{name}_{class}"), value);
            add("said_in_time", in_time / requests.max(1.0));
            let all = &self.seen[class];
            let requests = all.iter().filter(|seen| seen.begin >= before.at).count();
            let took = all.iter().filter(|seen| self.is_in_time(seen));
            let in_time = took
                .filter(|seen| seen.end().is_some_and(|end| end >= before.at))
                .count();
            add("seen_in_time", in_time as f64 / requests.max(1) as f64);
        }
    }

    fn is_in_time(&self, seen: &Seen) -> bool {
        seen.took.is_some_and(|took| took <= self.deadline.as_secs_f64())
    }

    /// Those of a class's requests that are measured. They came at equal distances.
    fn measured(&self, class: usize) -> Vec<Seen> {
        let mut all = self.seen[class].clone();
        all.sort_by(|one, other| one.begin.total_cmp(&other.begin));
        let whole = (FROM + self.length + AFTER).as_secs_f64();
        let at = |time: Duration| (all.len() as f64 * time.as_secs_f64() / whole) as usize;
        all[at(FROM)..at(FROM + self.length)].to_vec()
    }

    /// The share of a class's requests that was answered in time.
    fn share(&self, class: usize) -> f64 {
        let measured = self.measured(class);
        let in_time = measured.iter().filter(|seen| self.is_in_time(seen)).count();
        in_time as f64 / measured.len().max(1) as f64
    }

    /// Answers a second while it is measured.
    fn throughput(&self) -> f64 {
        let all = || self.seen.iter().flatten();
        let begin = all().map(|seen| seen.begin).fold(f64::INFINITY, f64::min);
        let [from, to] = [FROM, FROM + self.length].map(|time| begin + time.as_secs_f64());
        all()
            .filter_map(Seen::end)
            .filter(|end| (from..to).contains(end))
            .count() as f64
            / (to - from)
    }
}
