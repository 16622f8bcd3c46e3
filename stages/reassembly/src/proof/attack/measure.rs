//! One attack after the other, against each contender.

use std::fs::File;
use std::io::Read as _;
use std::io::{Seek as _, SeekFrom};
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};

use super::kinds::{Attack, QUICK};
use super::load::Load;
use super::{COMPLETED, HELD, MEMORY, PATH};
use crate::module::Module;
use crate::proof::bench::Bench;
use crate::proof::scene::{Contender, Scene};
use tarn_lab::busy::{Meter, give_way, monotonic_ns, sleep_until};
use tarn_lab::experiment::{Case, Check, Guest, Measurement, Series, Size, metrics};
use tarn_lab::load::Datagrams;

/// Before the attack, the attack, and after it, ms.
const TIMES: (usize, usize, usize) = (1_000, 2_500, 1_000);
const TIMES_FULL: (usize, usize, usize) = (2_000, 5_000, 2_000);
/// How often memory is looked at, ms.
const LOOK: usize = 20;
/// What a point of the plot puts together, ms.
const SLOT: usize = 100;
/// After boot. In its first half a minute Linux 6.12 spends 8,000 instructions more on each wait; on what was not traced.
const SINCE_BOOT: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_secs(60);

/// The control first: the others are told above it.
const CONTENDERS: [Contender; 4] = [
    Contender::Control,
    Contender::Mainline,
    Contender::MainlineTuned,
    Contender::Tarn,
];

/// What came of an attack.
struct Outcome {
    /// Of each legitimate datagram, whether it arrived intact.
    completed: Vec<bool>,
    /// The most that was held.
    held: Held,
    /// Instructions a fragment during the attack.
    cost: f64,
}

/// Runs the attacks.
pub fn run(guest: &mut Guest, attacks: Vec<Attack>) -> Result<Measurement> {
    // The kernel's threads go first: what they are left to do for a frame is done before the next one.
    give_way(true)?;
    let meter = Meter::new()?;
    sleep_until(SINCE_BOOT.as_nanos() as u64)?;
    let mut all = Measurement::default();
    let runs = (attacks.len() * CONTENDERS.len()) as f64;
    for (number, attack) in attacks.iter().enumerate() {
        let (mut control, mut load) = (0.0, None);
        for (place, contender) in CONTENDERS.into_iter().enumerate() {
            let name = attack.case(contender);
            guest.progress(&name, (number * CONTENDERS.len() + place) as f64 / runs);
            let bench = contender.needs_bench().then(Bench::load).transpose()?;
            let scene = Scene::new(attack.is_v6)?;
            let load = load.get_or_insert_with(|| Load::new(attack, &scene, times(guest.size), guest.seed));
            let begun = contender.begin(scene.receiver()?, bench.as_ref())?;
            let outcome = measure(&scene, load, contender, &meter).with_context(|| name.clone())?;
            begun.end()?;
            if contender == Contender::Control {
                control = outcome.cost;
            } else {
                add(&mut all, attack, contender, load, &outcome, control);
            }
        }
    }
    Ok(all)
}

fn times(size: Size) -> (usize, usize, usize) {
    if size == Size::Full { TIMES_FULL } else { TIMES }
}

/// Sends everything when it is due, and takes what becomes whole.
fn measure(scene: &Scene, load: &Load, contender: Contender, meter: &Meter) -> Result<Outcome> {
    let frames = scene.frames()?;
    let open = || Datagrams::open(scene.target(), load.payload, load.payload);
    let mut socket = scene.receiver()?.enter(open)?;
    let mut memory = Memory::open(scene, contender)?;
    let mut completed = vec![false; load.begins.len()];
    let (mut held, mut cost, mut running) = (Held::default(), 0.0, None);
    meter.settle(SETTLING)?;
    let start = monotonic_ns();
    for (tick, due) in load.ticks.iter().enumerate() {
        sleep_until(start + tick as u64 * 1_000_000)?;
        if tick == load.attack.start {
            running = Some(meter.start());
        }
        if tick == load.attack.end {
            cost = running
                .take()
                .map_or(0.0, |running| running.stop().per(load.frames() as u64));
        }
        frames.send(due)?;
        socket.take(|number, is_intact| {
            if let (Some(completed), true) = (completed.get_mut(number as usize), is_intact) {
                *completed = true;
            }
        })?;
        if tick % LOOK == 0 {
            held = held.most(memory.look()?);
        }
    }
    Ok(Outcome { completed, held, cost })
}

/// The share of these that are true, percent.
fn share(completed: &[bool]) -> f64 {
    let count = completed.iter().filter(|completed| **completed).count();
    100.0 * count as f64 / completed.len().max(1) as f64
}

fn add(all: &mut Measurement, attack: &Attack, contender: Contender, load: &Load, outcome: &Outcome, control: f64) {
    let of = |within: Range<usize>| share(&outcome.completed[load.begun(within)]);
    let mut case = Case::new(attack.case(contender), attack.title(contender));
    case.metrics = metrics([
        (COMPLETED, of(load.attack.clone())),
        (MEMORY, outcome.held.bytes as f64 / 1024.0),
        (HELD, outcome.held.datagrams as f64),
        (PATH, outcome.cost - control),
        ("datagrams", load.begun(load.attack.clone()).len() as f64),
    ]);
    // Those that the attack can reach are not among them.
    let before = of(0..load.attack.start - attack.spread_ms as usize);
    all.checks.push(Check {
        name: format!("{}: every datagram before the attack was delivered intact", case.name),
        passed: before == 100.0,
        detail: format!("{before:.1} %"),
    });
    if *attack == QUICK[0] {
        all.series.extend(course(contender, load, of));
    }
    all.cases.push(case);
}

/// The course of the share over time, with the attack in a lane of its own.
fn course(contender: Contender, load: &Load, of: impl Fn(Range<usize>) -> f64) -> [Series; 3] {
    let end = load.begins.last().map_or(0, |last| last + 1);
    let slots: Vec<usize> = (0..end / SLOT).map(|slot| slot * SLOT).collect();
    let series = |name: &str, unit: &str, value: &dyn Fn(usize) -> f64| Series {
        case: contender.name().to_owned(),
        name: format!("{name}_first_only"),
        unit: unit.to_owned(),
        values: slots.iter().map(|slot| value(*slot)).collect(),
    };
    [
        series("completed", "%", &|slot| of(slot..slot + SLOT)),
        series("phase", "", &|slot| f64::from(u8::from(load.attack.contains(&slot)))),
        series("seconds", "s", &|slot| slot as f64 / 1_000.0),
    ]
}

/// What is held.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    bytes: u64,
    datagrams: u64,
}

impl Held {
    fn most(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            datagrams: self.datagrams.max(other.datagrams),
        }
    }
}

/// Where it is read what is held.
enum Memory {
    /// The stack's account in /proc/net/sockstat, or sockstat6.
    Stack(File),
    /// The module's.
    Module(Module),
}

impl Memory {
    fn open(scene: &Scene, contender: Contender) -> Result<Self> {
        let receiver = scene.receiver()?;
        if contender == Contender::Tarn {
            return receiver.enter(Module::loaded).map(Self::Module);
        }
        let path = if scene.target().is_ipv6() {
            "/proc/thread-self/net/sockstat6"
        } else {
            "/proc/thread-self/net/sockstat"
        };
        let open = || File::open(path).with_context(|| format!("cannot open {path}"));
        receiver.enter(open).map(Self::Stack)
    }

    fn look(&mut self) -> Result<Held> {
        match self {
            Self::Stack(file) => {
                let mut text = String::new();
                file.seek(SeekFrom::Start(0))
                    .context("cannot read the memory of fragments again")?;
                file.read_to_string(&mut text)
                    .context("cannot read the memory of fragments")?;
                held(&text).with_context(|| format!("no memory of fragments in {text:?}"))
            }
            Self::Module(module) => {
                let held = module.state()?.context("nothing runs")?.held;
                Ok(Held {
                    bytes: held.memory_max,
                    datagrams: u64::from(held.datagrams),
                })
            }
        }
    }
}

/// Of `FRAG: inuse 3 memory 6912`, or `FRAG6: ...`.
fn held(sockstat: &str) -> Option<Held> {
    let line = sockstat.lines().find(|line| line.starts_with("FRAG"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        words.get(place + 1)?.parse().ok()
    };
    Some(Held {
        bytes: after("memory")?,
        datagrams: after("inuse")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_says_what_is_held() {
        let text = "sockets: used 9\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 0\nFRAG: inuse 3 memory 6912\n";
        let found = held(text).unwrap();
        assert_eq!((found.datagrams, found.bytes), (3, 6912));
        assert!(held("TCP: inuse 1\n").is_none());
    }
}
