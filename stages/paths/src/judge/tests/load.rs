//! The judgement where the load is measured.

use super::*;
use crate::load::Load;

/// By load, with uplinks that are all steady.
fn by_load(policy: Policy, count: usize) -> Simulation {
    let settings = Settings {
        measure: Measure::Load,
        policy,
        ..Settings::default()
    };
    Simulation::new(
        settings,
        (0..count).map(|index| steady(ms(20), ms(1), index as u64)).collect(),
    )
}

impl Simulation {
    /// Lets time pass, a second at a time, while each uplink sends what `load` says of it, by its share of new flows.
    fn run_with(&mut self, end: Duration, load: impl Fn(u64, f64) -> f64) {
        while self.now < end {
            let weights = self.judge.weights();
            let sum = f64::from(weights.iter().sum::<u32>().max(1));
            for (index, weight) in weights.into_iter().enumerate() {
                let share = f64::from(weight) / sum;
                let draw = self.now.as_secs() << 8 | index as u64;
                self.judge.uplinks[index].load = Some(Load {
                    busy: load(draw, share),
                    uneven: 0.0,
                });
            }
            self.run_until(self.now + s(1));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// All traffic goes where least is sent, and makes that the busiest: it must not go to and fro faster than `stay` allows.
    #[test]
    fn traffic_that_chases_itself_moves_once_in_a_while(count in 2usize..4, seed: u64) {
        let mut simulation = by_load(Policy::Calmest, count);
        simulation.run_with(s(600), |draw, share| share * 1e6 * (0.5 + noise(draw ^ seed)));
        let moves = simulation.moves();
        prop_assert!((15..=20).contains(&moves.len()), "{} moves", moves.len());
        prop_assert!(moves.windows(2).all(|pair| pair[1].0 - pair[0].0 >= s(30)), "{moves:?}");
    }

    /// A little on one of them is no reason.
    #[test]
    fn idle_uplinks_are_left_as_they_are(seed: u64) {
        let mut simulation = by_load(Policy::Calmest, 2);
        simulation.run_with(s(600), |draw, _| 9000.0 * noise(draw ^ seed));
        prop_assert_eq!(simulation.moves(), []);
    }

    /// Shares follow the loads, and nobody who is well is left out.
    #[test]
    fn shares_by_load_are_even_over_time(seed: u64) {
        let mut simulation = by_load(Policy::Proportional, 3);
        simulation.run_with(s(600), |draw, share| share * 1e6 * (0.8 + 0.4 * noise(draw ^ seed)));
        let mut sums = [0.0; 3];
        for (_, decision) in &simulation.decisions {
            prop_assert!(decision.weights.iter().all(|weight| *weight > 0), "what is under way would move");
            let all = f64::from(decision.weights.iter().sum::<u32>());
            for (sum, weight) in sums.iter_mut().zip(&decision.weights) {
                *sum += f64::from(*weight) / all;
            }
        }
        let mean = sums.iter().sum::<f64>() / 3.0;
        prop_assert!(sums.iter().all(|sum| (sum / mean - 1.0).abs() < 0.5), "{sums:?}");
    }
}

/// Who goes by the load does not move for a delay, but must not stay where nothing comes through.
#[test]
fn a_slow_uplink_is_kept_and_a_dead_one_is_left() {
    let mut simulation = by_load(Policy::Calmest, 2);
    let slow: Path = Box::new(|now, _| Some(if now < s(60) { ms(20) } else { ms(45) }));
    simulation.paths[0] = dead(slow, s(120), s(600));
    simulation.run_with(s(119), |_, _| 0.0);
    assert_eq!((simulation.moves(), simulation.main()), (Vec::new(), 0));
    simulation.run_with(s(130), |_, _| 0.0);
    assert_eq!(simulation.main(), 1);
    assert!(matches!(
        simulation.decisions.last().unwrap().1.reason,
        Reason::Missing(..)
    ));
}

/// A link that costs twice as much has to be half as busy.
#[test]
fn cost_counts() {
    let mut simulation = by_load(Policy::Calmest, 2);
    simulation.judge.uplinks[1].cost = 300;
    simulation.run_with(s(300), |draw, _| if draw & 1 == 0 { 200_000.0 } else { 100_000.0 });
    assert_eq!(simulation.moves(), []);
    simulation.judge.uplinks[1].cost = 150;
    simulation.run_with(s(400), |draw, _| if draw & 1 == 0 { 200_000.0 } else { 100_000.0 });
    assert_eq!(simulation.main(), 1);
}
