//! The whole path: from the device to the socket.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::load::{self, Order, PATH_SHAPES, Shape};
use super::{PATH, READ};
use crate::proof::bench::Bench;
use crate::proof::scene::{Contender, Scene};
use crate::proof::slabs;
use tarn_lab::busy::{Meter, give_way};
use tarn_lab::experiment::{Check, Guest, Measurement, Size, metrics};
use tarn_lab::load::{Datagrams, FrameSender, fragments, udp};
use tarn_lab::random::Random;

/// Fragments of all datagrams of a trial together, about.
const FRAGMENTS: u32 = 1_200;
const FRAGMENTS_FULL: u32 = 12_000;
/// The trial in the middle is taken: in others the kernel may have done something by itself.
const TRIALS: usize = 3;
/// Of each datagram, so many bytes of payload are read.
const READ_BYTES: usize = 16;
const UDP_HEADER: usize = 8;
/// How long the kernel may go on with what was begun before.
const SETTLING: std::time::Duration = std::time::Duration::from_secs(60);

/// The control first: the others are told above it.
const CONTENDERS: [Contender; 4] = [
    Contender::Control,
    Contender::Mainline,
    Contender::MainlineConntrack,
    Contender::Tarn,
];

/// What a trial cost, in instructions a fragment.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Sending it, and all that the receiving host does up to its socket.
    path: f64,
    /// Reading it from the socket, which frees it.
    read: f64,
}

/// What the control cost, by fragments and order.
type Floor = BTreeMap<(u32, &'static str), Cost>;

/// Measures all of a family.
pub fn run(guest: &mut Guest, is_v6: bool) -> Result<Measurement> {
    // The kernel's threads go first: what they are left to do for a frame is done before the next one.
    give_way(true)?;
    slabs::keep()?;
    let meter = Meter::new()?;
    let mut floor = Floor::new();
    let mut all = Measurement::default();
    for (number, contender) in CONTENDERS.into_iter().enumerate() {
        guest.progress(contender.name(), number as f64 / CONTENDERS.len() as f64);
        let bench = contender.needs_bench().then(Bench::load).transpose()?;
        let scene = Scene::new(is_v6)?;
        let begun = contender.begin(scene.receiver()?, bench.as_ref())?;
        measure(guest, &meter, &scene, contender, &mut floor, &mut all).with_context(|| contender.name())?;
        begun.end()?;
    }
    Ok(all)
}

/// Every order of every shape with one contender.
fn measure(
    guest: &Guest,
    meter: &Meter,
    scene: &Scene,
    contender: Contender,
    floor: &mut Floor,
    all: &mut Measurement,
) -> Result<()> {
    let frames = scene.frames()?;
    let is_v6 = scene.target().is_ipv6();
    meter.settle(SETTLING)?;
    for shape in PATH_SHAPES {
        for order in Order::ALL {
            let trial = Trial::new(guest, scene, shape, order)?;
            let mut costs = Vec::new();
            // One before those that count.
            for number in 0..=TRIALS {
                let (delivered, cost) = trial.run(scene, &frames, meter)?;
                let expected = if contender == Contender::Control {
                    0
                } else {
                    trial.datagrams.len()
                };
                if delivered != expected || number == 0 {
                    let name = load::name(contender.name(), order, shape.0, is_v6);
                    all.checks.push(check(&name, delivered, expected));
                }
                if number > 0 {
                    costs.push(cost);
                }
            }
            costs.sort_by(|one: &Cost, other| one.path.total_cmp(&other.path));
            let cost = costs[TRIALS / 2];
            let key = (shape.0, order.name());
            if contender == Contender::Control {
                floor.insert(key, cost);
                continue;
            }
            let floor = floor.get(&key).context("there was no control")?;
            let mut case = load::case((contender.name(), contender.title()), order, shape.0, is_v6);
            case.metrics = metrics([(PATH, cost.path - floor.path), (READ, cost.read - floor.read)]);
            all.cases.push(case);
        }
    }
    Ok(())
}

fn check(name: &str, delivered: usize, expected: usize) -> Check {
    Check {
        name: format!("{name}: every datagram was delivered intact"),
        passed: delivered == expected,
        detail: format!("{delivered} of {expected}"),
    }
}

/// Datagrams, each as the frames of its fragments.
struct Trial {
    datagrams: Vec<Vec<Vec<u8>>>,
    payload: usize,
}

impl Trial {
    fn new(guest: &Guest, scene: &Scene, shape: Shape, order: Order) -> Result<Self> {
        let (source, target) = (scene.source(), scene.target());
        let is_v6 = target.is_ipv6();
        let size = load::size(shape, is_v6) as usize;
        let payload = size * shape.0 as usize - UDP_HEADER;
        let mut random = Random::new(guest.seed, "order");
        let wanted = if guest.size == Size::Full {
            FRAGMENTS_FULL
        } else {
            FRAGMENTS
        };
        let datagram = |number: u32| {
            let datagram = udp(source, target, number, payload, false);
            let fragments = fragments(source.ip(), target.ip(), number, &datagram, size);
            let mut frames: Vec<_> = fragments.iter().map(|fragment| fragment.frame(Scene::wire())).collect();
            order.arrange(&mut frames, &mut random);
            frames
        };
        Ok(Self {
            datagrams: (0..wanted / shape.0).map(datagram).collect(),
            payload,
        })
    }

    fn fragments(&self) -> usize {
        self.datagrams.iter().map(Vec::len).sum()
    }

    /// Sends all, and reads each as soon as it is there; returns how many were delivered.
    fn run(&self, scene: &Scene, frames: &FrameSender, meter: &Meter) -> Result<(usize, Cost)> {
        let open = || Datagrams::open(scene.target(), self.payload, READ_BYTES);
        let mut socket = scene.receiver()?.enter(open)?;
        let (mut delivered, mut path, mut read) = (0, 0, 0);
        for datagram in &self.datagrams {
            let ((), busy) = meter.measure(|| frames.send(datagram))?;
            path += busy.busy_ns;
            let ((), busy) = meter.measure(|| socket.take(|_, is_intact| delivered += usize::from(is_intact)))?;
            read += busy.busy_ns;
        }
        let per_fragment = |sum: u64| sum as f64 / self.fragments() as f64;
        let cost = Cost {
            path: per_fragment(path),
            read: per_fragment(read),
        };
        Ok((delivered, cost))
    }
}
