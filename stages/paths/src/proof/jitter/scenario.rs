//! What the uplinks are like.

use std::time::Duration;

use tarn_lab::random::Random;

/// An uplink's round trip while nothing special happens, and what does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// The round trip, in milliseconds; it varies by [`JITTER`] in both directions on each of both ways.
    pub round_trip_ms: u64,
    /// The share of packets lost on each of both ways, in percent.
    pub loss_percent: f64,
    /// What happens.
    pub event: Event,
}

/// What happens to an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nothing.
    Steady,
    /// The round trip takes [`SPIKE_MS`] for a second, again and again at random.
    Spikes,
    /// The round trip takes [`SPIKE_MS`] for a while, once, while there are flows.
    Worsens,
    /// Nothing comes through for a while, once, while there are flows.
    Dies,
}

impl Event {
    /// Whether it comes only once, at [`TROUBLE`].
    pub fn is_once(self) -> bool {
        matches!(self, Self::Worsens | Self::Dies)
    }
}

/// One scenario.
pub struct Scenario {
    /// What the names of its cases end in.
    pub suffix: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// The uplinks, in the order of the router's routes.
    pub uplinks: &'static [Quality],
    /// The best to have for the whole time, if the future were known.
    pub oracle: usize,
    /// Where a flow has bad luck.
    pub bad: usize,
    /// How long its flows last in the quick size.
    pub length: Duration,
}

impl Scenario {
    /// Whether nothing makes one uplink better than another.
    pub fn is_equal(&self) -> bool {
        self.uplinks.iter().all(|uplink| *uplink == self.uplinks[0])
    }

    /// The index of the uplink to which this happens, if it does to any.
    pub fn with(&self, event: Event) -> Option<usize> {
        self.uplinks.iter().position(|uplink| uplink.event == event)
    }
}

/// How much a packet's delay varies.
pub const JITTER: Duration = Duration::from_micros(250);
/// The round trip during a spike, in milliseconds.
pub const SPIKE_MS: u64 = 200;
/// How long a spike lasts.
const SPIKE: Duration = Duration::from_secs(1);
/// From the end of a spike to the next one, on average.
const SPIKE_GAP_S: f64 = 4.0;
/// When an uplink dies or worsens, and for how long.
pub const TROUBLE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(5));
/// Long enough for a figure of every case.
const SHORT: Duration = Duration::from_secs(12);
/// Long enough for an uplink that has died to be trusted again: `back_after`, and what is left of `stay`.
const UNTIL_BACK: Duration = Duration::from_secs(42);

const fn quality(round_trip_ms: u64, loss_percent: f64, event: Event) -> Quality {
    Quality {
        round_trip_ms,
        loss_percent,
        event,
    }
}

/// All of them.
pub static SCENARIOS: [Scenario; 6] = [
    Scenario {
        suffix: "spikes",
        title: "30 ms; 20 ms with spikes",
        uplinks: &[quality(20, 0.0, Event::Spikes), quality(30, 0.0, Event::Steady)],
        oracle: 1,
        bad: 0,
        length: SHORT,
    },
    Scenario {
        suffix: "lossy",
        title: "30 ms; 20 ms with 3 % lost each way",
        uplinks: &[quality(20, 3.0, Event::Steady), quality(30, 0.0, Event::Steady)],
        oracle: 1,
        bad: 0,
        length: SHORT,
    },
    Scenario {
        suffix: "worsens",
        title: "30 ms; 20 ms that takes 200 ms for 5 s",
        uplinks: &[quality(20, 0.0, Event::Worsens), quality(30, 0.0, Event::Steady)],
        oracle: 1,
        bad: 0,
        length: SHORT,
    },
    Scenario {
        suffix: "dies",
        title: "35 ms; 20 ms that dies for 5 s",
        uplinks: &[quality(20, 0.0, Event::Dies), quality(35, 0.0, Event::Steady)],
        oracle: 1,
        bad: 0,
        length: UNTIL_BACK,
    },
    Scenario {
        suffix: "equal",
        title: "25 ms; 25 ms",
        uplinks: &[quality(25, 0.0, Event::Steady), quality(25, 0.0, Event::Steady)],
        oracle: 0,
        bad: 1,
        length: SHORT,
    },
    Scenario {
        suffix: "three",
        title: "20 ms with spikes; 25 ms lossy; 30 ms",
        uplinks: &[
            quality(20, 0.0, Event::Spikes),
            quality(25, 3.0, Event::Steady),
            quality(30, 0.0, Event::Steady),
        ],
        oracle: 2,
        bad: 0,
        length: SHORT,
    },
];

/// When an uplink is out of the ordinary within `length`, as (from, to): the same for every case. One with spikes has at least one,
/// so `length` must have room for it.
pub fn disturbances(
    event: Event,
    uplink: usize,
    seed: u64,
    stream: &str,
    length: Duration,
) -> Vec<(Duration, Duration)> {
    match event {
        Event::Steady => Vec::new(),
        Event::Worsens | Event::Dies => vec![(TROUBLE.0, TROUBLE.0 + TROUBLE.1)],
        Event::Spikes => {
            let mut random = Random::new(seed, &format!("{stream} {uplink}"));
            loop {
                let spikes = spikes(&mut random, length);
                if !spikes.is_empty() {
                    return spikes;
                }
            }
        }
    }
}

fn spikes(random: &mut Random, length: Duration) -> Vec<(Duration, Duration)> {
    let mut at = Duration::ZERO;
    let mut spikes = Vec::new();
    loop {
        at += Duration::from_secs_f64(random.exponential(SPIKE_GAP_S));
        if at + SPIKE > length {
            return spikes;
        }
        spikes.push((at, at + SPIKE));
        at += SPIKE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without one there would be nothing to be steadier than.
    #[test]
    fn every_seed_has_spikes_and_they_end_in_time() {
        let length = Duration::from_secs(12);
        for seed in 0..1000 {
            let spikes = disturbances(Event::Spikes, 0, seed, "spikes", length);
            assert!(spikes.last().is_some_and(|last| last.1 <= length), "{seed}");
            assert!(spikes.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{seed}");
        }
    }
}
