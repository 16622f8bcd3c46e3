//! The judgement over made-up uplinks, probe by probe, without a kernel.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;
use tarn_kernel::links::Packets;

mod late;
mod load;
mod pinned;
mod thrift;

/// The round trip time that a probe sent at this moment will have; `None`: it is lost.
type Path = Box<dyn Fn(Duration, u64) -> Option<Duration>>;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A number from 0 to 1 that depends on all of `seed` (splitmix64, Vigna).
fn noise(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// `delay`, and up to `jitter` more.
fn steady(delay: Duration, jitter: Duration, seed: u64) -> Path {
    Box::new(move |_, number| Some(delay + jitter.mul_f64(noise(seed << 32 | number))))
}

/// As `path`, but dead from one moment to another.
fn dead(path: Path, from: Duration, to: Duration) -> Path {
    Box::new(move |now, number| path(now, number).filter(|_| now < from || now >= to))
}

/// As `path`, but `late` for a second now and then, about every `every` seconds.
fn spiky(path: Path, late: Duration, every: u64, seed: u64) -> Path {
    Box::new(move |now, number| {
        let is_spike = noise(seed ^ (now.as_secs() << 8)) < 1.0 / every as f64;
        path(now, number).map(|time| if is_spike { time.max(late) } else { time })
    })
}

/// As `path`, but this share of probes is lost.
fn lossy(path: Path, share: f64, seed: u64) -> Path {
    Box::new(move |now, number| path(now, number).filter(|_| noise(seed ^ number.rotate_left(17)) >= share))
}

struct Simulation {
    judge: Judge,
    paths: Vec<Path>,
    now: Duration,
    last: Vec<Option<Duration>>,
    sent: u64,
    /// (when, uplink, sequence number)
    under_way: BinaryHeap<Reverse<(Duration, usize, u16)>>,
    /// When what users have sent is answered, and by which uplink.
    answers: BinaryHeap<Reverse<(Duration, usize)>>,
    /// What users have sent and received, by uplink.
    traffic: Vec<Packets>,
    /// Whether anybody uses the network: each uplink that flows go by is sent a request every 5 ms.
    is_idle: bool,
    decisions: Vec<(Duration, Decision)>,
}

impl Simulation {
    fn new(settings: Settings, paths: Vec<Path>) -> Self {
        let uplink = |index| Uplink::new((), format!("wan{index}"), 100, 1, &settings);
        let uplinks: Vec<Uplink> = (0..paths.len()).map(uplink).collect();
        let count = paths.len();
        Self {
            judge: Judge::new(settings, uplinks, &vec![0; count]),
            paths,
            now: Duration::ZERO,
            last: vec![None; count],
            sent: 0,
            under_way: BinaryHeap::new(),
            answers: BinaryHeap::new(),
            traffic: vec![Packets::default(); count],
            is_idle: false,
            decisions: Vec::new(),
        }
    }

    /// Lets time pass, in steps of 5 ms.
    fn run_until(&mut self, end: Duration) -> &mut Self {
        while self.now < end {
            self.now += ms(5);
            self.receive();
            self.use_uplinks();
            if let Some(decision) = self.judge.decide(self.now) {
                self.decisions.push((self.now, decision));
            }
            self.send();
        }
        self
    }

    fn receive(&mut self) {
        while let Some(Reverse((at, uplink, sequence))) = self.under_way.peek().copied() {
            if at > self.now {
                return;
            }
            self.under_way.pop();
            self.judge.uplinks[uplink].estimates[0].answered(sequence, at);
        }
    }

    /// What users do, which is looked at every 20 ms.
    fn use_uplinks(&mut self) {
        while let Some(Reverse((at, uplink))) = self.answers.peek().copied().filter(|next| next.0.0 <= self.now) {
            debug_assert!(at <= self.now);
            self.answers.pop();
            self.traffic[uplink].received += 1;
        }
        for index in 0..self.paths.len() {
            if !self.is_idle && self.judge.is_used(index, self.now) {
                self.traffic[index].sent += 1;
                let number = self.traffic[index].sent | 1 << 40;
                if let Some(time) = self.paths[index](self.now, number) {
                    self.answers.push(Reverse((self.now + time, index)));
                }
            }
            if self.now.as_millis() % 20 == 0 {
                self.judge.uplinks[index].traffic.look(self.now, self.traffic[index]);
            }
        }
    }

    fn send(&mut self) {
        for index in 0..self.paths.len() {
            let pace = self.judge.pace(index, self.now);
            if self.last[index].is_some_and(|last| self.now - last < pace.interval) {
                continue;
            }
            self.last[index] = Some(self.now);
            let Some(estimate) = self.judge.uplinks[index].estimates.first_mut() else {
                continue;
            };
            let sequence = estimate.sent(self.now);
            self.sent += 1;
            if let Some(time) = self.paths[index](self.now, self.sent) {
                self.under_way.push(Reverse((self.now + time, index, sequence)));
            }
        }
    }

    fn main(&self) -> usize {
        self.judge.main().unwrap()
    }

    /// Moves of traffic, the first choice left out.
    fn moves(&self) -> Vec<(Duration, usize)> {
        let main = |decision: &Decision| {
            (0..self.paths.len())
                .max_by_key(|index| decision.weights[*index])
                .unwrap()
        };
        let all: Vec<(Duration, usize)> = self
            .decisions
            .iter()
            .map(|(at, decision)| (*at, main(decision)))
            .collect();
        let moved = all.windows(2).filter(|pair| pair[0].1 != pair[1].1);
        moved.map(|pair| pair[1]).collect()
    }
}

#[test]
fn the_calmer_of_two_is_chosen_after_a_while_and_kept() {
    let paths = vec![steady(ms(40), ms(1), 1), steady(ms(20), ms(1), 2)];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.run_until(s(600));
    let moves = simulation.moves();
    assert_eq!((moves.len(), simulation.main()), (1, 1), "{:?}", simulation.decisions);
    assert!(moves[0].0 < s(10), "{moves:?}");
}

/// What is faster on average, but not at every moment, is not calm.
#[test]
fn a_slower_but_steady_uplink_is_preferred_to_a_fast_one_with_spikes() {
    let paths = vec![
        spiky(steady(ms(20), ms(1), 1), ms(200), 20, 7),
        steady(ms(30), ms(1), 2),
    ];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.run_until(s(900));
    assert_eq!(simulation.main(), 1, "{:?}", simulation.decisions);
    assert!(simulation.moves().len() <= 2, "{:?}", simulation.decisions);
}

#[test]
fn an_uplink_that_loses_packets_is_left() {
    let paths = vec![lossy(steady(ms(20), ms(1), 1), 0.05, 3), steady(ms(30), ms(1), 2)];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.run_until(s(120));
    assert_eq!(simulation.main(), 1, "{:?}", simulation.decisions);
}

#[test]
fn a_dead_uplink_is_left_within_200_ms_and_used_again_when_it_has_healed() {
    let paths = vec![dead(steady(ms(20), ms(1), 1), s(100), s(130)), steady(ms(40), ms(1), 2)];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.run_until(s(100));
    assert_eq!(simulation.main(), 0);
    simulation.run_until(s(100) + ms(200));
    assert_eq!(simulation.main(), 1, "{:?}", simulation.decisions);
    simulation.run_until(s(140));
    assert_eq!(
        (simulation.main(), simulation.judge.weights()[0]),
        (1, 0),
        "well for too short a time"
    );
    simulation.run_until(s(240));
    assert_eq!(simulation.main(), 0, "{:?}", simulation.decisions);
}

/// Targets that nobody answers, on any uplink, are no reason to send nothing.
#[test]
fn when_all_are_silent_what_there_is_is_used() {
    let never = || dead(steady(ms(20), ms(1), 1), s(0), s(9999));
    let mut simulation = Simulation::new(Settings::default(), vec![never(), never()]);
    simulation.run_until(s(60));
    assert_eq!(
        (simulation.main(), simulation.moves().len()),
        (0, 0),
        "{:?}",
        simulation.decisions
    );
}

#[test]
fn a_device_that_is_gone_is_left_at_once() {
    let paths = vec![steady(ms(20), ms(1), 1), steady(ms(40), ms(1), 2)];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.run_until(s(10));
    simulation.judge.uplinks[0].is_there = false;
    let decision = simulation.judge.decide(s(10)).unwrap();
    assert_eq!(
        (decision.weights, decision.reason),
        (vec![0, MAIN], Reason::Gone("wan0".into()))
    );
}

#[test]
fn an_uplink_that_dies_again_and_again_has_to_prove_itself_longer() {
    let mut path = steady(ms(20), ms(1), 1);
    for death in 0..5 {
        path = dead(path, s(100 + 40 * death), s(105 + 40 * death));
    }
    let mut simulation = Simulation::new(Settings::default(), vec![path, steady(ms(40), ms(1), 2)]);
    simulation.run_until(s(320));
    let moves = simulation.moves();
    assert!(
        moves.len() <= 6,
        "left three times of five, and back three times: {moves:?}"
    );
}

#[test]
fn in_proportion_each_gets_as_much_as_it_is_calm() {
    let settings = Settings {
        policy: Policy::Proportional,
        ..Settings::default()
    };
    let paths = vec![
        steady(ms(20), ms(0), 1),
        steady(ms(40), ms(0), 2),
        steady(ms(400), ms(0), 3),
        dead(steady(ms(10), ms(0), 4), s(0), s(9999)),
    ];
    let mut simulation = Simulation::new(settings, paths);
    simulation.run_until(s(60));
    assert_eq!(
        simulation.judge.weights(),
        [WEIGHT, WEIGHT / 2, 0, 0],
        "{:?}",
        simulation.decisions
    );
}

/// A link with jitter misses a probe now and then; its flows must not be thrown about for that.
#[test]
fn in_proportion_one_late_probe_throws_nobody_out() {
    let settings = Settings {
        policy: Policy::Proportional,
        ..Settings::default()
    };
    let paths = vec![lossy(steady(ms(20), ms(5), 1), 0.01, 5), steady(ms(24), ms(5), 2)];
    let mut simulation = Simulation::new(settings, paths);
    simulation.run_until(s(600));
    for (at, decision) in &simulation.decisions {
        assert!(
            decision.weights.iter().all(|weight| *weight > 0),
            "{at:?}: {decision:?}"
        );
    }
}

/// Of two that have died, the one that comes back first is used at once: there is nothing better.
#[test]
fn when_all_have_died_the_first_that_answers_is_used() {
    for policy in [Policy::Calmest, Policy::Proportional] {
        let settings = Settings {
            policy,
            ..Settings::default()
        };
        let paths = vec![
            dead(steady(ms(20), ms(1), 1), s(60), s(90)),
            dead(steady(ms(20), ms(1), 2), s(60), s(70)),
        ];
        let mut simulation = Simulation::new(settings, paths);
        simulation.run_until(s(72));
        assert_eq!(simulation.main(), 1, "{policy:?}: {:?}", simulation.decisions);
    }
}

/// What is in use is not left for one whose target answers again some milliseconds earlier, only for one that answers alone.
#[test]
fn when_targets_answer_again_traffic_stays_where_it_is() {
    for policy in [Policy::Calmest, Policy::Proportional] {
        let settings = Settings {
            policy,
            ..Settings::default()
        };
        let path = |delay, seed| dead(steady(ms(delay), ms(1), seed), s(60), s(70));
        let mut simulation = Simulation::new(settings, vec![path(60, 1), path(58, 2)]);
        simulation.run_until(s(69));
        let (before, decided) = (simulation.main(), simulation.decisions.len());
        simulation.run_until(s(120));
        for (at, decision) in &simulation.decisions[decided..] {
            let is_kept = match policy {
                Policy::Calmest => decision.weights[before] == MAIN,
                Policy::Proportional => decision.weights.iter().all(|weight| *weight > 0),
            };
            assert!(is_kept, "{policy:?}, {at:?}: {decision:?}");
        }
    }
}

/// While both prove themselves, the traffic is not tossed from one to the other.
#[test]
fn two_that_come_back_at_once_do_not_take_turns() {
    for policy in [Policy::Calmest, Policy::Proportional] {
        let settings = Settings {
            policy,
            ..Settings::default()
        };
        let path = |seed| dead(steady(ms(20), ms(1), seed), s(60), s(70));
        let mut simulation = Simulation::new(settings, vec![path(1), path(2)]);
        simulation.run_until(s(59));
        let before = simulation.decisions.len();
        simulation.run_until(s(120));
        assert!(
            simulation.decisions.len() - before <= 4,
            "{policy:?}: {:?}",
            simulation.decisions
        );
    }
}

/// What nobody can tell anything about is a last resort.
#[test]
fn an_uplink_without_targets_is_left_again_when_the_other_one_has_healed() {
    let paths = vec![dead(steady(ms(20), ms(1), 1), s(30), s(40)), steady(ms(1), ms(0), 2)];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.judge.uplinks[1].estimates.clear();
    simulation.run_until(s(31));
    assert_eq!(simulation.main(), 1);
    simulation.run_until(s(120));
    assert_eq!(simulation.main(), 0, "{:?}", simulation.decisions);
}

/// A flow that was left on the uplink of before has the same right to leave it.
#[test]
fn an_uplink_that_flows_were_left_on_is_looked_at_as_closely() {
    let paths = vec![dead(steady(ms(40), ms(1), 1), s(60), s(90)), steady(ms(20), ms(1), 2)];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.run_until(s(60));
    assert_eq!((simulation.main(), simulation.judge.weights()[0]), (1, STANDBY));
    simulation.run_until(s(60) + ms(205));
    assert_eq!(simulation.judge.weights()[0], 0, "{:?}", simulation.decisions);
}

/// A call on an uplink that only shared the flows until `tarn paths set --policy calmest`, or another file, would stay there when
/// it is slow, and for a second when it is dead.
#[test]
fn uplinks_that_flows_were_shared_by_are_looked_at_as_closely() {
    let shared = Settings {
        policy: Policy::Proportional,
        ..Settings::default()
    };
    let paths = || -> Vec<Path> {
        let slow = steady(ms(22), ms(1), 3);
        vec![
            steady(ms(20), ms(1), 1),
            dead(steady(ms(21), ms(1), 2), s(100), s(200)),
            Box::new(move |now, number| slow(now, number).map(|time| time + if now < s(90) { ms(0) } else { ms(80) })),
        ]
    };
    let by_command = |simulation: &mut Simulation| simulation.judge.set(Settings::default(), [100; 3].into_iter());
    let by_file = |simulation: &mut Simulation| {
        let judge = &simulation.judge;
        simulation.judge = Judge::new(Settings::default(), judge.uplinks.clone(), &judge.weights());
    };
    for calm in [by_command, by_file as fn(&mut Simulation)] {
        let mut simulation = Simulation::new(shared, paths());
        simulation.run_until(s(60));
        assert!(simulation.judge.weights().iter().all(|weight| *weight > STANDBY));
        calm(&mut simulation);
        simulation.run_until(s(61));
        assert_eq!(simulation.judge.weights(), [MAIN, STANDBY, STANDBY]);
        simulation.run_until(s(91));
        assert_eq!(simulation.judge.weights()[2], 0, "{:?}", simulation.decisions);
        simulation.run_until(s(100) + ms(205));
        assert_eq!(simulation.judge.weights()[1], 0, "{:?}", simulation.decisions);
    }
}

/// Of many targets, each is asked less often when a probe is missing, or all together would be more than what is promised.
#[test]
fn a_missing_probe_brings_no_more_than_the_most() {
    let settings = Settings {
        rate_most: 30,
        ..Settings::default()
    };
    let path = |seed| dead(steady(ms(20), ms(1), seed), s(60), s(90));
    let mut simulation = Simulation::new(settings, (1..=8).map(path).collect());
    for second in 1..=120 {
        let before = simulation.sent;
        simulation.run_until(s(second));
        // Each may be asked at both ends of a second.
        assert!(simulation.sent - before <= 8 * 31, "second {second}");
    }
}

/// One provider's way to one target is not the uplink.
#[test]
fn one_slow_target_of_two_moves_nobody_at_once() {
    let settings = Settings::default();
    let uplink = |name: &str| Uplink::new((), name.into(), 100, 2, &settings);
    let mut judge = Judge::new(settings, vec![uplink("wan0"), uplink("wan1")], &[MAIN, STANDBY]);
    for round in 0..2000_u64 {
        let now = ms(50 * round);
        for (uplink, target) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let estimate = &mut judge.uplinks[uplink].estimates[target];
            let sequence = estimate.sent(now);
            let is_slow = (uplink, target) == (0, 0) && round > 1000;
            estimate.answered(sequence, now + ms(if is_slow { 45 } else { 20 + target as u64 }));
        }
        assert_eq!(judge.decide(now + ms(49)), None, "round {round}");
    }
}

/// A cost makes an uplink look as slow as it is dear.
#[test]
fn a_dear_uplink_is_used_when_the_cheap_one_is_dead() {
    let paths = vec![dead(steady(ms(40), ms(1), 1), s(60), s(90)), steady(ms(20), ms(1), 2)];
    let mut simulation = Simulation::new(Settings::default(), paths);
    simulation.judge.uplinks[1].cost = 1000;
    simulation.run_until(s(60));
    assert_eq!(simulation.main(), 0);
    simulation.run_until(s(61));
    assert_eq!(simulation.main(), 1);
    simulation.run_until(s(200));
    assert_eq!(simulation.main(), 0, "{:?}", simulation.decisions);
}

/// The decisions that move traffic within ten minutes of equal uplinks.
fn moves_of_equal(seed: u64, delay: u64, jitter: u64, count: usize) -> Vec<(Duration, usize)> {
    let path = |index: usize| steady(ms(delay), ms(jitter), seed * 8 + index as u64);
    let mut simulation = Simulation::new(Settings::default(), (0..count).map(path).collect());
    simulation.run_until(s(600)).moves()
}

/// In the first seconds, one of them looks calmer by the whole margin, by chance.
#[test]
fn a_few_probes_are_no_reason_to_move() {
    assert_eq!(moves_of_equal(797_389, 2, 5, 3), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Ten minutes of two or three equal uplinks.
    #[test]
    fn equal_uplinks_do_not_flap(seed in 0..1_000_000_u64, delay in 2..150_u64, jitter in 0..20_u64, count in 2..4_usize) {
        prop_assert_eq!(moves_of_equal(seed, delay, jitter, count), []);
    }

    /// The same, shared: none is left, so that no flow that is under way has to move, and each keeps its part.
    #[test]
    fn equal_uplinks_share_for_good(seed in 0..1_000_000_u64, delay in 2..150_u64, jitter in 0..20_u64, count in 2..4_usize) {
        let settings = Settings { policy: Policy::Proportional, ..Settings::default() };
        let path = |index: usize| steady(ms(delay), ms(jitter), seed * 8 + index as u64);
        let mut simulation = Simulation::new(settings, (0..count).map(path).collect());
        simulation.run_until(s(600));
        for (at, decision) in &simulation.decisions {
            prop_assert!(decision.weights.iter().all(|weight| *weight > 0), "{:?}: {:?}", at, decision);
        }
        let weights = simulation.judge.weights();
        let fair = weights.iter().sum::<u32>() / count as u32;
        prop_assert!(weights.iter().all(|weight| (fair / 2..fair * 2).contains(weight)), "{:?}", weights);
    }

    /// Wherever and whenever an uplink dies, it is left in time, and not used while it is dead.
    #[test]
    fn a_dead_uplink_is_never_used(
        seed in 0..1_000_000_u64, delay in 2..40_u64, other in 2..40_u64, from in 20_000..40_000_u64, lasts in 300..60_000_u64,
    ) {
        let end = ms(from + lasts);
        let paths = vec![
            dead(steady(ms(delay), ms(1), seed), ms(from), end),
            dead(steady(ms(other), ms(1), seed + 1), end + s(60), end + s(90)),
        ];
        let mut simulation = Simulation::new(Settings::default(), paths);
        simulation.run_until(ms(from) + ms(205));
        while simulation.now < end {
            let until = simulation.now + ms(100);
            simulation.run_until(until);
            prop_assert_eq!(simulation.main(), 1, "{:?}: {:?}", simulation.now, simulation.decisions);
            // One that only stood by is asked less often.
            let is_out = simulation.judge.weights()[0] == 0;
            prop_assert!(is_out || simulation.now < ms(from + 805), "{:?}: {:?}", simulation.now, simulation.decisions);
        }
        simulation.run_until(end + s(60) + ms(205));
        prop_assert_eq!(simulation.main(), 0, "{:?}", simulation.decisions);
    }

    /// A path that is clearly calmer is found in time, wherever it stands in the list.
    #[test]
    fn there_is_always_a_decision_within_the_bound(seed in 0..1_000_000_u64, best in 0..3_usize, delay in 5..80_u64) {
        let path = |index: usize| steady(ms(if index == best { delay } else { delay * 3 / 2 + 3 }), ms(1), seed * 8 + index as u64);
        let mut simulation = Simulation::new(Settings::default(), (0..3).map(path).collect());
        let settings = Settings::default();
        simulation.run_until(settings.hold + settings.stay);
        prop_assert_eq!(simulation.main(), best, "{:?}", simulation.decisions);
    }

    /// Whatever comes, in whatever order, somebody carries the traffic.
    #[test]
    fn no_events_leave_nobody(events in prop::collection::vec((0..5_u8, 0..3_usize, any::<u16>(), 0..2_000_u64), 0..400)) {
        for policy in [Policy::Calmest, Policy::Proportional] {
            let settings = Settings { policy, ..Settings::default() };
            let uplinks = (0..3).map(|index| Uplink::new((), format!("wan{index}"), 100, 2, &settings)).collect();
            let mut judge = Judge::new(settings, uplinks, &[0; 3]);
            let mut now = Duration::ZERO;
            for (event, uplink, number, passed) in &events {
                now += ms(*passed);
                let chosen = &mut judge.uplinks[*uplink];
                let estimate = &mut chosen.estimates[usize::from(*number & 1)];
                match event {
                    0 | 1 => drop(estimate.sent(now)),
                    2 => estimate.answered(*number & 0xff, now),
                    3 => chosen.is_there = *number & 1 == 0,
                    _ => {}
                }
                let anybody = judge.uplinks.iter().any(|uplink| uplink.is_there);
                if let Some(decision) = judge.decide(now) {
                    prop_assert!(decision.weights.iter().any(|weight| *weight > 0));
                    prop_assert!(decision.weights.iter().all(|weight| *weight <= MAIN));
                }
                prop_assert!(!anybody || judge.weights().iter().any(|weight| *weight > 0));
            }
        }
    }
}
