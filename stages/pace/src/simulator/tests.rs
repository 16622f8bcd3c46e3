//! What a user would lose if the algorithm failed somewhere among all networks, or if the simulator did not show it.
//!
//! `TARN_CASES_TIMES=100` in the environment tries a hundred times as many networks.

mod arbitrary;
mod back;
mod bounds;
mod generated;
mod parts;
mod prototype;
mod rises;
mod stalls;
mod steady;

use proptest::prelude::ProptestConfig;

use super::network::{Control, Course, Network, Source};
use super::simulate;
use crate::parameters::defaults;

/// A property is tried on so many generated cases.
fn cases(usual: u32) -> ProptestConfig {
    let times = std::env::var("TARN_CASES_TIMES")
        .ok()
        .and_then(|times| times.parse::<u32>().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(usual * times.unwrap_or(1))
    }
}

/// A developer could not try a change on thousands of networks, and would not know whether a figure came of the change.
#[test]
fn a_run_repeats_and_half_a_minute_takes_a_moment() {
    let mut network = Network::new(50_000_000, 20_000, Control::Pace(defaults()), 2);
    network.duration_ms = 30_000;
    network.loss = 0.001;
    network.course = Course::Fading { low: 10_000_000 };
    network.flows[1].source = Source::Portions {
        segments: 200,
        every_ms: 500,
    };
    network.acknowledged_every_ms = 4;
    let began = std::time::Instant::now();
    let outcome = simulate(&network);
    // It takes about 20 ms. A busy machine takes longer.
    assert!(began.elapsed().as_secs_f64() < 2.0, "{:?}", began.elapsed());
    assert_eq!(outcome, simulate(&network));
    network.seed += 1;
    assert_ne!(outcome, simulate(&network));
}
