//! A flood from before its beginning until after its end.

use std::time::Duration;

use anyhow::Result;
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_lab::busy::{monotonic_ns, sleep_until};
use tarn_lab::experiment::{Case, Lanes, Measurement, Plot, Series, metrics};
use tarn_lab::load::{Exchange, Law};
use tarn_lab::stats::Sample;
use tarn_lab::topology::join;

use super::super::contender::Contender;
use super::super::crowd::Crowd;
use super::super::outside::{self, Answerers};
use super::super::rig::Rig;
use super::{FLOODED, MEASURING};

/// How long it is calm before, the flood lasts, and it is watched after.
const CALM: Duration = Duration::from_millis(200);
const FLOOD: Duration = Duration::from_millis(600);
const AFTER: Duration = Duration::from_millis(300);
/// The time between two requests. A stock kernel would be asked too often, as in [`outside::RARELY`], if anything else were measured here.
const EVERY: Duration = Duration::from_millis(25);
/// Of which the slowest round trip is shown, in ns.
const SLOT: u64 = 25_000_000;

/// What cases' names end with.
pub const NAME: &str = "timeline";

/// Who is shown.
pub const CONTENDERS: [Contender; 3] = [Contender::Stock, Contender::Threads, Contender::Tarn];

pub const PLOT: Plot = Plot::Timeline {
    title: "The slowest ping-pong of each 25 ms, at 1.5 times the capacity",
    series: "slowest_ms",
    x: "slots of 25 ms",
    from: 0,
    step: 1,
    lanes: Some(Lanes {
        noun: "Phases",
        series: "phase",
        time: "seconds",
        x: "seconds",
        names: &[
            ("calm", "before the flood"),
            ("flood", "while it goes on"),
            ("over", "after it"),
        ],
        note: "each point: 25 ms; what is not answered in 100 ms counts as 100 ms",
    }),
};

/// Measures one.
///
/// # Errors
/// It cannot be.
pub fn measure(contender: Contender, rig: &Rig, seed: u64, case: &mut Case, all: &mut Measurement) -> Result<()> {
    let up = contender.set_up(rig.host()?)?;
    rig.readdress()?;
    let answerers = Answerers::start(rig)?;
    let crowd = Crowd::start(rig.host()?, FLOODED, seed)?;
    set_policy(0, Policy::Fifo(MEASURING))?;
    let begin = monotonic_ns();
    let asking = outside::ping_pong(rig, CALM + FLOOD + AFTER, EVERY, Law::Every)?;
    sleep_until(begin + CALM.as_nanos() as u64)?;
    rig.flood(true)?;
    let onset = monotonic_ns();
    sleep_until(begin + (CALM + FLOOD).as_nanos() as u64)?;
    rig.flood(false)?;
    let over = monotonic_ns();
    let exchanges = join(asking.join())?;
    crowd.end()?;
    answerers.stop()?;
    set_policy(0, Policy::Ordinary)?;
    up.put_back(rig.host()?)?;

    let slots = slots(begin, exchanges.list());
    let phase = |slot: &Slot| match slot.begin {
        begin if begin >= over => 2.0,
        begin if begin + SLOT > onset => 1.0,
        _ => 0.0,
    };
    let mut add = |name: &str, unit: &str, values: Vec<f64>| {
        all.series.push(Series {
            case: case.name.clone(),
            name: name.into(),
            unit: unit.into(),
            values,
        });
    };
    add("slowest_ms", "ms", slots.iter().map(|slot| slot.slowest_ms).collect());
    add("phase", "", slots.iter().map(phase).collect());
    let seconds = |slot: &Slot| (slot.begin - begin) as f64 / 1e9;
    add("seconds", "s", slots.iter().map(seconds).collect());
    let waited = Sample::new(exchanges.list().iter().map(outside::waited_us))?;
    let lost = exchanges.list().len() as u64 - exchanges.answered_count();
    case.metrics = metrics([
        ("pingpong_p50_us", waited.percentile(50.0)),
        ("pingpong_p99_us", waited.percentile(99.0)),
        (
            "pingpong_lost_share",
            lost as f64 * 100.0 / exchanges.list().len().max(1) as f64,
        ),
    ]);
    Ok(())
}

struct Slot {
    /// CLOCK_MONOTONIC, ns.
    begin: u64,
    slowest_ms: f64,
}

/// Those in which something was asked.
fn slots(begin: u64, exchanges: &[Exchange]) -> Vec<Slot> {
    let number = |exchange: &Exchange| exchange.due_ns.saturating_sub(begin) / SLOT;
    exchanges
        .chunk_by(|one, next| number(one) == number(next))
        .map(|slot| Slot {
            begin: begin + number(&slot[0]) * SLOT,
            slowest_ms: slot.iter().map(outside::waited_us).fold(0.0, f64::max) / 1e3,
        })
        .collect()
}
