//! The sketch, as the kernel's program has it, against exact counts.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;

use proptest::prelude::*;
use tarn_lab::random::Random;

/// As in sketch.h.
const ONE: u32 = 65_536;
const PORT_SHARES: u32 = 64;
/// As in shared.h.
const SOURCE: u32 = 0;
const PORT: u32 = 1;

unsafe extern "C" {
    fn tarn_poll_size() -> u32;
    fn tarn_poll_mix(value: u32) -> u32;
    fn tarn_poll_chance(table: *mut u8, reason: u32, key: u32, window: u32, share: u32, weight: u32) -> u32;
}

struct Sketch(*mut u8, Layout);

impl Sketch {
    fn new() -> Self {
        // SAFETY: the call takes nothing.
        let layout = Layout::from_size_align(unsafe { tarn_poll_size() } as usize, 8).unwrap();
        // SAFETY: the layout has a size.
        Self(unsafe { alloc_zeroed(layout) }, layout)
    }

    /// A packet of a key; `window` from 2, so that what was never touched is no window's.
    fn chance(&mut self, reason: u32, key: u32, window: u32, share: u32) -> u32 {
        // SAFETY: the table is as large as it has to be, and nobody else's.
        unsafe { tarn_poll_chance(self.0, reason, key, window, share, 1) }
    }
}

impl Drop for Sketch {
    fn drop(&mut self) {
        // SAFETY: it was allocated so.
        unsafe { dealloc(self.0, self.1) }
    }
}

fn mix(value: u32) -> u32 {
    // SAFETY: the call takes a number only.
    unsafe { tarn_poll_mix(value) }
}

proptest! {
    /// Who keeps to the share must not pay for others, however many there are, as long as the sketch has room.
    #[test]
    fn who_keeps_to_its_share_loses_nothing(seed in any::<u32>(), senders in 1..400_u32, share in 8..200_u32) {
        let mut sketch = Sketch::new();
        let mut sent: HashMap<u32, u32> = HashMap::new();
        for packet in 0..20_000_u32 {
            let key = mix(seed ^ (mix(packet) % senders));
            let count = sent.entry(key).or_default();
            *count += 1;
            let chance = sketch.chance(SOURCE, key, 5, share);
            if *count > 2 * share {
                // Never taken for less than it sends.
                prop_assert!(chance >= ONE - ((u64::from(share) << 16) / u64::from(*count)) as u32);
            }
        }
        let modest: Vec<_> = sent.iter().filter(|(_, count)| **count < share / 2).collect();
        let wrongly = modest.iter().filter(|(key, _)| sketch.chance(SOURCE, **key, 5, share) > 0).count();
        // With 400 heavy senders, one in 120 meets another one in both of its cells.
        prop_assert!(wrongly <= modest.len() / 50 + 5, "{wrongly} of {}", modest.len());
    }

    /// Any order of packets, windows, shares: no overflow (the build traps), and a chance.
    #[test]
    fn a_chance_is_one(packets in prop::collection::vec((0..2_u32, any::<u32>(), any::<u32>(), any::<u32>()), 1..200)) {
        let mut sketch = Sketch::new();
        for (reason, key, window, share) in packets {
            prop_assert!(sketch.chance(reason, key, window, share % (1 << 20)) <= ONE);
        }
    }
}

/// What passes of a heavy sender is the share, whatever it sends.
#[test]
fn a_flood_gets_its_share_and_no_more() {
    for packets in [1_000_u32, 10_000, 100_000] {
        let mut sketch = Sketch::new();
        let mut passed = 0.0;
        for window in 10..20 {
            for _ in 0..packets {
                let chance = sketch.chance(SOURCE, 7, window, 100);
                if window > 10 {
                    passed += f64::from(ONE - chance) / f64::from(ONE);
                }
            }
        }
        let a_window = passed / 9.0;
        assert!((90.0..110.0).contains(&a_window), "{packets}: {a_window}");
    }
}

/// A call, a game: little, but not evenly. Eight packets a window are the least share.
#[test]
fn who_sends_less_than_its_share_in_the_mean_hardly_loses_anything() {
    let mut sketch = Sketch::new();
    let mut random = Random::new(1, "packets");
    let (mut sent, mut lost) = (0_u32, 0.0);
    let mut at = 0.0;
    while sent < 100_000 {
        at += random.exponential(1.0 / 6.5);
        sent += 1;
        lost += f64::from(sketch.chance(SOURCE, 7, 10 + at as u32, 8)) / f64::from(ONE);
    }
    let share = lost / f64::from(sent);
    assert!(share < 0.01, "{share} of it");
}

/// Of a burst, what passes grows with its logarithm before it is known as one: with pauses between bursts a sender gets at most five
/// times the share, whatever it sends.
#[test]
fn pauses_gain_little() {
    for (busy, silent) in [(1_u32, 1_u32), (2, 1), (3, 1), (3, 2), (4, 4), (1, 3)] {
        for packets in [9_u32, 12, 16, 17, 24, 100, 10_000] {
            let mut sketch = Sketch::new();
            let mut passed = 0.0;
            let periods = 100;
            for window in 10..10 + periods * (busy + silent) {
                if window % (busy + silent) < busy {
                    for _ in 0..packets {
                        passed += f64::from(ONE - sketch.chance(SOURCE, 7, window, 8)) / f64::from(ONE);
                    }
                }
            }
            let a_window = passed / f64::from(periods * (busy + silent));
            assert!(
                a_window < if packets > 100 { 40.0 } else { 16.0 },
                "{busy} windows of {packets} in {}: {a_window}",
                busy + silent
            );
        }
    }
}

/// A million forged sources keep to any share; the port that they flood does not, and another port loses nothing.
#[test]
fn forged_sources_are_known_by_the_port_that_they_flood() {
    let mut sketch = Sketch::new();
    let share = 64;
    let (mut by_source, mut by_port) = (0_u64, 0_u64);
    for packet in 0..1_000_000_u32 {
        let window = 5 + packet / 7_000;
        by_source += u64::from(sketch.chance(SOURCE, mix(packet), window, share));
        by_port += u64::from(sketch.chance(PORT, mix(53), window, share * PORT_SHARES));
        if packet % 700 == 0 {
            assert_eq!(
                sketch.chance(PORT, mix(22), window, share * PORT_SHARES),
                0,
                "ssh, {packet}"
            );
            assert_eq!(sketch.chance(SOURCE, 1, window, share), 0, "who uses it, {packet}");
        }
    }
    let passed = 1.0 - by_port as f64 / f64::from(ONE) / 1e6;
    let wanted = f64::from(share * PORT_SHARES) / 7_000.0;
    assert!(
        (0.9 * wanted..1.3 * wanted).contains(&passed),
        "{passed}, wanted {wanted}"
    );
    assert!(by_source < 1_000_000 * u64::from(ONE) / 1000, "{by_source}");
}

/// A sender that was heavy and has stopped is forgotten after two windows.
#[test]
fn who_has_stopped_flooding_is_forgotten() {
    let mut sketch = Sketch::new();
    for _ in 0..10_000 {
        sketch.chance(SOURCE, 7, 10, 100);
    }
    assert!(sketch.chance(SOURCE, 7, 11, 100) > 0);
    assert_eq!(sketch.chance(SOURCE, 7, 13, 100), 0);
}
