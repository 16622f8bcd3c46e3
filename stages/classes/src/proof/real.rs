//! The experiment `classes-real`: programs as users run them, under loads from generators that are not ours, and what their clients
//! saw beside what tarn says.

use std::time::Duration;

use anyhow::{Context, Result};

use self::clients::Load;
use self::outcome::{Count, Outcome};
use self::scene::{Contender, Scene};
use self::servers::Kind;
use super::load::allow_many_connections;
use super::overload::share;
use super::scene::TARGETS;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Experiment, Guest, Highlight, Measurement, Metric, Plot, Series, Size};

mod checks;
pub mod clients;
mod outcome;
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
before; the deadline is ten times what a request or a visit takes (of unbound, 500 ms). Targets are 90, 80, 70, 60 and 50 %. tarn has its defaults: it \
finds the limit, and the figures begin with the second window, after 10 s. A visit is a connection by HTTP/2 with five requests at once; \
visits are a fifth as many, so the limit is found later, and with tarn their figures begin after 40 s. HAProxy, where it is there, ends TLS, gives each \
class a priority, and the service four requests at a time, five where tarn sets the order.

In time is what the clients saw: by HTTP/1.1 from when a request is sent, each on a connection of its own, by HTTP/2 from when it is due \
on one of four connections, in TLS from the first packet of a connection with one request to its last data, as tcpdump sees it \
on the client's wire; so is a visit, of which also the server's first data count: then it was let in. What tarn says is what `tarn classes status` counts over all of the run, in TLS from the second window on; `seen` is what the \
clients saw over the same.";

/// From when the load is measured, and for how long: the second window.
const FROM: Duration = Duration::from_secs(10);
const LENGTH: Duration = Duration::from_secs(10);
const LENGTH_FULL: Duration = Duration::from_secs(110);
/// The same of visits with tarn: they are a fifth as many, so it finds the limit later.
const FROM_VISITS: Duration = Duration::from_secs(40);
const LENGTH_VISITS: Duration = Duration::from_secs(20);
/// How long it goes on: what is measured has as much beside it to the end.
const AFTER: Duration = Duration::from_secs(2);
/// How old may be what tarn says of a service behind HAProxy.
const SAID_EVERY: Duration = Duration::from_millis(1500);
/// Ten times what a request, or a visit, takes gunicorn.
const DEADLINE: Duration = Duration::from_secs(1);
const DEADLINE_VISITS: Duration = Duration::from_secs(2);
const DEADLINE_DNS: Duration = Duration::from_millis(500);

static METRICS: &[Metric] = &[
    share("in_time_0", "class 0 in time"),
    share("in_time_1", "class 1"),
    share("in_time_2", "class 2"),
    share("in_time_3", "class 3"),
    share("in_time_4", "class 4"),
    share("let_in_0", "class 0, let in"),
    share("let_in_1", "class 1, let in"),
    share("let_in_2", "class 2, let in"),
    share("let_in_3", "class 3, let in"),
    share("let_in_4", "class 4, let in"),
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
    use Kind::{Dns, Http, Http2, Tls, Visits};
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
            runs(Visits, 140, &own),
        ],
        Size::Full => {
            let of = |percent: u32| {
                [
                    runs(Http, percent, &[Stock, Haproxy, Tarn, TarnHaproxy]),
                    runs(Tls, percent, &[Stock, Haproxy, Tarn, TarnHaproxy]),
                    runs(Http2, percent, &[Stock, Haproxy, TarnHaproxy]),
                    runs(Visits, percent, &own),
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
    let size = guest.size;
    let parts = parts(size);
    let runs = parts.get(guest.part).context("there is no such part")?;
    let mut capacities = Vec::new();
    guest.measure(runs, Run::case, |run, case, all| {
        let (deadline, from, length) = match run.kind {
            Kind::Dns => (DEADLINE_DNS, FROM, LENGTH),
            Kind::Visits if run.contender.is_tarn() => (DEADLINE_VISITS, FROM_VISITS, LENGTH_VISITS),
            Kind::Visits => (DEADLINE_VISITS, FROM, LENGTH),
            _ => (DEADLINE, FROM, LENGTH),
        };
        let length = if size == Size::Full { LENGTH_FULL } else { length };
        let capacity = capacity(&scene, run.kind, &mut capacities)?;
        let load = Load {
            kind: run.kind,
            rate: capacity * f64::from(run.percent) / 100.0 / TARGETS.len() as f64,
            length: from + length + AFTER,
        };
        let begun = scene.begin(run.contender, run.kind, deadline)?;
        let (seen, before) = load.run(&scene, from, || Count::of(run, &begun))?;
        std::thread::sleep(SAID_EVERY);
        let after = run.contender.is_tarn().then(|| begun.counted()).transpose()?;
        begun.end()?;
        let outcome = Outcome {
            seen,
            deadline,
            from,
            length,
        };
        outcome.fill(case, run.kind);
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
