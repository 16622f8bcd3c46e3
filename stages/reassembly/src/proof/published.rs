//! The experiment `reassembly-published`: the paper's table, with Linux 2.2.12, its change, today's kernel and tarn.

use anyhow::{Context, Result};
use std::time::Duration;

use self::network::{FILES, MTUS, Network};
use super::bench::Bench;
use super::scene::Contender;
use super::slabs;
use tarn_lab::busy::{Meter, give_way};
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{
    Case, Check, Experiment, Guest, Highlight, Measurement, Metric, Plot, Reference, Size, metrics,
};

mod network;

/// The experiment.
pub static PUBLISHED: Experiment = Experiment {
    stage: crate::STAGE,
    name: "reassembly-published",
    title: "files through a router with a small MTU, as the paper measured them",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |_| MTUS.len(),
    headline: &[0],
    run,
    conclude: None,
};

/// What is shown at the end of a run.
static HIGHLIGHTS: &[Highlight] = &[Highlight {
    what: "50 kB at MTU 100, ms",
    metric: TRANSFER,
    stock: Some("mainline-100-50000"),
    peer: None,
    published: Some("tail-100-50000"),
    tarn: "tarn-100-50000",
}];

const METHOD: &str = "\
A sender, a router and a receiver. The link behind the router has an MTU of 100, 200 or 300 bytes. A file of 15,000, \
30,000 or 50,000 bytes is one UDP datagram, which the router sends on in fragments, in order. A case is named for \
who reassembles, the MTU and the bytes of the file.

`head` is the search of Linux 2.2.12 (`ip_fragment.c`): a fragment is compared with those that are there, from the \
first one on. `tail` is the paper's: from the last one backwards, and the last fragment (MF = 0) without any search. \
Both are lists in a module behind a hook of today's kernel, and count their comparisons: n(n-1)/2 and n-2 for n \
fragments in order. The stock kernel appends to a run of fragments after one comparison; tarn computes a slot from \
the offset, without a comparison. Neither is counted. The lists and tarn take fragments before they are routed; the \
stock kernel routes each of them.

Instructions are those of the receiver for a file, above a control that drops the fragments. The links take no time: \
the transfer time is that of one CPU which sends, routes, fragments and receives.

The paper's factor cannot be had from today's kernel. The search from the head, which the paper removed, has long \
gone, and a search is a small part of what a fragment costs today: it is routed, queued and accounted for as well.";

const COMPARISONS: &str = "comparisons";
const INSTRUCTIONS: &str = "instructions";
const TRANSFER: &str = "transfer_ms";
const RATE: &str = "rate_mbit_s";
/// By how much the rate is above that of `head`, percent.
const GAIN: &str = "rate_gain_percent";

static METRICS: &[Metric] = &[
    Metric::neutral("fragments", "fragments", "a file", 0),
    Metric::less(COMPARISONS, "comparisons", "a file", 0),
    Metric::less(INSTRUCTIONS, "receiver", "instructions/file", 0),
    Metric::less(TRANSFER, "transfer", "ms", 3),
    Metric::more(RATE, "rate", "Mbit/s", 1),
    Metric::more(GAIN, "above head", "%", 1),
];

static PLOTS: &[Plot] = &[Plot::Bars {
    title: "By how much the rate is above that of a list searched from its head",
    metric: GAIN,
    references: &[GAIN],
}];

const PAPER: &str =
    "Korean paper on IP reassembly, about 2000, Linux 2.2.12: list searched from its tail instead of its head";

static REFERENCES: &[Reference] = &[
    Reference::new(PAPER, GAIN, 80.0, "% more, MTU 100, 15,000 bytes"),
    Reference::new(PAPER, GAIN, 165.0, "% more, MTU 300, 50,000 bytes"),
];

/// The control first, `head` next: the others are told above the one and by the other.
const CONTENDERS: [Contender; 5] = [
    Contender::Control,
    Contender::Head,
    Contender::Tail,
    Contender::Mainline,
    Contender::Tarn,
];

/// How often a file is sent.
const TIMES: u32 = 20;
const TIMES_FULL: u32 = 200;
/// Before those that count.
const WARM_UP: u32 = 3;
const PATIENCE: Duration = Duration::from_millis(100);
const SETTLING: Duration = Duration::from_secs(60);

/// What sending a file came to, each time.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    instructions: f64,
    comparisons: Option<f64>,
    delivered: u32,
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    // The kernel's threads go first: what they are left to do for a frame is done before the next one.
    give_way(true)?;
    slabs::keep()?;
    let meter = Meter::new()?;
    let mtu = MTUS[guest.part];
    let times = if guest.size == Size::Full { TIMES_FULL } else { TIMES };
    let mut all = Measurement::default();
    let mut figures: Vec<Vec<Figures>> = Vec::new();
    for (number, contender) in CONTENDERS.into_iter().enumerate() {
        guest.progress(contender.name(), number as f64 / CONTENDERS.len() as f64);
        let bench = contender.needs_bench().then(Bench::load).transpose()?;
        let network = Network::new(mtu)?;
        let measured = measure(&network, contender, bench.as_ref(), &meter, times).with_context(|| contender.name())?;
        if contender != Contender::Control {
            all.checks.extend(checks(contender, mtu, times, &measured));
        }
        figures.push(measured);
    }
    let (control, others) = figures.split_first().context("there was no control")?;
    for (contender, measured) in CONTENDERS[1..].iter().zip(others) {
        for (index, file) in FILES.into_iter().enumerate() {
            all.cases.push(row(
                *contender,
                mtu,
                file,
                measured[index],
                control[index],
                others[0][index],
            ));
        }
    }
    Ok(all)
}

/// Every file with one contender.
fn measure(
    network: &Network,
    contender: Contender,
    bench: Option<&Bench>,
    meter: &Meter,
    times: u32,
) -> Result<Vec<Figures>> {
    let begun = contender.begin(network.receiver()?, bench)?;
    // Nothing arrives where all is dropped.
    let patience = if contender == Contender::Control {
        Duration::ZERO
    } else {
        PATIENCE
    };
    meter.settle(SETTLING)?;
    let mut all = Vec::new();
    for file in FILES {
        let mut transfer = network.transfer(file)?;
        for number in 0..WARM_UP {
            transfer.send(number, patience)?;
        }
        let before = begun.comparisons()?;
        let mut figures = Figures::default();
        let (delivered, busy) = meter.measure(|| {
            let sent = (WARM_UP..WARM_UP + times).map(|number| transfer.send(number, patience));
            sent.map(|delivered| Ok(u32::from(delivered?))).sum::<Result<u32>>()
        })?;
        figures.delivered = delivered;
        figures.instructions = busy.per(times.into());
        if let Some((before, after)) = before.zip(begun.comparisons()?) {
            figures.comparisons = Some((after - before) as f64 / f64::from(times));
        }
        all.push(figures);
    }
    begun.end()?;
    Ok(all)
}

fn name(contender: Contender, mtu: u32, file: usize) -> String {
    format!("{}-{mtu}-{file}", contender.name())
}

fn row(contender: Contender, mtu: u32, file: usize, figures: Figures, control: Figures, head: Figures) -> Case {
    let mut case = Case::new(
        name(contender, mtu, file),
        format!("{}: MTU {mtu}, {file} bytes", contender.title()),
    );
    // One instruction a nanosecond, and no CPU sleeps meanwhile.
    case.metrics = metrics([
        ("fragments", f64::from(network::fragments(mtu, file))),
        (INSTRUCTIONS, figures.instructions - control.instructions),
        (TRANSFER, figures.instructions / 1e6),
        (RATE, 8e3 * file as f64 / figures.instructions),
    ]);
    if contender != Contender::Head {
        let gain = 100.0 * (head.instructions / figures.instructions - 1.0);
        case.metrics.extend(metrics([(GAIN, gain)]));
    }
    if matches!(contender, Contender::Head | Contender::Tail) {
        case.metrics.extend(
            figures
                .comparisons
                .map(|comparisons| (COMPARISONS.to_owned(), comparisons)),
        );
    }
    case
}

/// Every file arrived, and the lists search as they are said to.
fn checks(contender: Contender, mtu: u32, times: u32, measured: &[Figures]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (file, figures) in FILES.into_iter().zip(measured) {
        let name = name(contender, mtu, file);
        checks.push(Check {
            name: format!("{name}: every file was delivered intact"),
            passed: figures.delivered == times,
            detail: format!("{} of {times}", figures.delivered),
        });
        let n = f64::from(network::fragments(mtu, file));
        let comparisons = match contender {
            Contender::Head => n * (n - 1.0) / 2.0,
            Contender::Tail => n - 2.0,
            _ => continue,
        };
        let counted = figures.comparisons.unwrap_or_default();
        checks.push(Check {
            name: format!("{name}: {comparisons} comparisons for {n} fragments in order"),
            passed: counted == comparisons,
            detail: format!("{counted}"),
        });
    }
    checks
}
