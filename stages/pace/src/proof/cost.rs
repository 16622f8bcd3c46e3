//! The experiment `pace-cost`: what an acknowledgement costs a congestion control, and what a segment costs in all.

use std::time::Duration;

use anyhow::{Context, Result};

use self::watch::Watch;
use super::control::Control;
use super::networks::Network;
use super::path::{self, Path, RECEIVER};
use tarn_lab::busy::Meter;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Check, Experiment, Guest, Measurement, Metric, Plot, Size, metrics};
use tarn_lab::load::{Flow, TcpBulk, TcpSink};

mod watch;

const CONTROL: &str = "instructions_per_ack";
const SEGMENT: &str = "instructions_per_segment";
const ACKS: &str = "acknowledgements";

/// The experiment.
pub static COST: Experiment = Experiment {
    stage: crate::STAGE,
    name: "pace-cost",
    title: "what a congestion control costs",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: &[
        Metric::less(CONTROL, "an acknowledgement", "instructions", 0),
        Metric::less(SEGMENT, "a segment, all hosts", "instructions", 0),
        Metric::neutral(ACKS, "acknowledgements", "", 0),
    ],
    plots: &[Plot::Bars {
        title: "What the congestion control executes for an acknowledgement",
        metric: CONTROL,
        references: &[],
    }],
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[0],
    run,
    conclude: None,
};

const METHOD: &str = "\
One flow over a steady path of 20 Mbit/s and 40 ms whose queue holds four products, measured after two seconds. The first figure is \
what the congestion control's own function executes for an acknowledgement: BBR's bbr_main, CUBIC's cubictcp_cong_avoid and cubictcp_acked together, \
and our program; taken by BPF programs before and after it, less what these find around a function that does nothing. The second is all that all \
hosts execute, by the segment that is acknowledged, while nothing watches: TCP, the router, timers for pacing and the programs that send and receive.";

/// Of the in-tree module's, what ours may cost an acknowledgement.
const OF_BBR: f64 = 1.25;
const LENGTH: Duration = Duration::from_secs(3);
const LENGTH_FULL: Duration = Duration::from_secs(60);
const STARTUP: Duration = Duration::from_secs(2);
const PORT: u16 = 5001;
/// Bytes of payload a segment, with timestamps.
const SEGMENT_BYTES: f64 = 1448.0;

fn network() -> Network {
    Network::steady(20, 40, 400)
}

/// The functions of a control that acknowledgements call; ours are programs.
fn functions(control: Control) -> &'static [&'static str] {
    match control {
        Control::Cubic => &["cubictcp_cong_avoid", "cubictcp_acked"],
        Control::Bbr => &["bbr_main"],
        _ => &["acknowledged"],
    }
}

fn run(guest: &mut Guest) -> Result<Measurement> {
    let meter = Meter::new()?;
    let length = if guest.size == Size::Full { LENGTH_FULL } else { LENGTH };
    let describe = |control: &Control| Case::new(control.name(), control.title());
    let mut measurement = guest.measure(&Control::ALL, describe, |control, case, _| {
        let _provided = control.provide()?;
        let around = Watch::calibrate()?;
        let (watches, _) = transfer(*control, length, || {
            functions(*control)
                .iter()
                .map(|function| Watch::on(function))
                .collect::<Result<Vec<_>>>()
        })?;
        let calls = watches.first().map_or(0, |watch| watch.calls());
        let spent: f64 = watches
            .iter()
            .map(|watch| watch.spent() as f64 - around * watch.calls() as f64)
            .sum();
        let (busy, segments) = transfer(*control, length, || Ok(meter.start()))?;
        let busy = busy.stop();
        case.metrics = metrics([
            (CONTROL, spent / calls.max(1) as f64),
            (SEGMENT, busy.busy_ns as f64 / segments),
            (ACKS, calls as f64),
        ]);
        Ok(())
    })?;
    let figure = |control: Control| {
        measurement
            .figure(control.name(), CONTROL)
            .context("a case has no figure")
    };
    let (ours, theirs) = (figure(Control::Tarn)?, figure(Control::Bbr)?);
    measurement.checks.push(Check {
        name: "every control was called for acknowledgements".into(),
        passed: measurement
            .cases
            .iter()
            .all(|case| case.metrics.get(ACKS).is_some_and(|calls| *calls > 1000.0)),
        detail: format!("{} controls", measurement.cases.len()),
    });
    measurement.goals.push(Check {
        name: format!("an acknowledgement costs at most {OF_BBR} times what it costs the in-tree BBR"),
        passed: ours <= OF_BBR * theirs,
        detail: format!("{ours:.0} instructions, BBR {theirs:.0}: {:.2} times", ours / theirs),
    });
    Ok(measurement)
}

/// Sends for so long; what `begin` returns is made after the start-up and returned with the segments acknowledged since.
fn transfer<T: Send>(control: Control, length: Duration, begin: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let path = Path::build(network())?;
    let to = std::net::SocketAddr::new(RECEIVER.parse()?, PORT);
    let sink = TcpSink::start(path.receiver()?, to)?;
    let bulk = TcpBulk {
        flow: Flow::to(to),
        duration: Duration::ZERO,
        congestion: Some(control.in_kernel().into()),
    };
    let start = tarn_base::runtime::monotonic_ns() + STARTUP.as_nanos() as u64;
    let end = start + length.as_nanos() as u64;
    let sender = path.sender()?.spawn("bulk", move || bulk.watch(&[start, end]))?;
    path::wait_until(start);
    let begun = begin()?;
    path::wait_until(end);
    let infos = tarn_lab::topology::join(sender.join())?;
    sink.stop()?;
    let [from, to] = infos[..] else {
        anyhow::bail!("a flow was read {} times", infos.len())
    };
    Ok((begun, (to.bytes_acked - from.bytes_acked) as f64 / SEGMENT_BYTES))
}
