//! The frames of an attack and of the datagrams that have to survive it, by the millisecond in which they are sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::kinds::{Attack, Kind, Variant};
use crate::proof::scene::Scene;
use tarn_lab::load::{Fragment, fragments, udp};
use tarn_lab::random::Random;

/// Hostile fragments a millisecond, and in a flood.
const HOSTILE: usize = 8;
const FLOOD: usize = 80;
/// Bytes of a fragment of a flood.
const FLOOD_BYTES: usize = 64;
/// Legitimate fragments a datagram, and the time from one datagram to the next, us; in a tunnel.
const FRAGMENTS: usize = 8;
const INTERVAL_US: u64 = 10_000;
const TUNNEL_INTERVAL_US: u64 = 2_500;
/// Bytes of a tunnel's packet behind its IP header.
const TUNNEL_PACKET: usize = 1_580;
const UDP_HEADER: usize = 8;
/// Fragments of a datagram without end, 8 bytes each.
const TINY: u16 = 64;
const TINY_BYTES: usize = 8;

/// What is sent when.
pub struct Load {
    /// The frames of each millisecond, in their order.
    pub ticks: Vec<Vec<Vec<u8>>>,
    /// When each legitimate datagram begins, ms.
    pub begins: Vec<usize>,
    /// The milliseconds of the attack.
    pub attack: Range<usize>,
    /// Bytes of payload of a legitimate datagram.
    pub payload: usize,
}

impl Load {
    /// The legitimate datagrams begin in all of `calm`, `attack` and `after` milliseconds.
    pub fn new(attack: &Attack, scene: &Scene, (calm, length, after): (usize, usize, usize), seed: u64) -> Self {
        let mut load = Self {
            ticks: vec![Vec::new(); calm + length + after + attack.spread_ms as usize + 1],
            begins: Vec::new(),
            attack: calm..calm + length,
            payload: payload(attack),
        };
        load.add_legitimate(attack, scene, calm + length + after);
        load.add_hostile(attack, scene, seed);
        load
    }

    /// Frames sent during the attack.
    pub fn frames(&self) -> usize {
        self.ticks[self.attack.clone()].iter().map(Vec::len).sum()
    }

    /// The numbers of the legitimate datagrams that begin in these milliseconds.
    pub fn begun(&self, within: Range<usize>) -> Range<usize> {
        let before = |end: usize| self.begins.partition_point(|begin| *begin < end);
        before(within.start)..before(within.end)
    }

    fn add_legitimate(&mut self, attack: &Attack, scene: &Scene, until: usize) {
        let interval = if attack.variant == Variant::Tunnel {
            TUNNEL_INTERVAL_US
        } else {
            INTERVAL_US
        };
        for number in 0.. {
            let begin_us = u64::from(number) * interval;
            if begin_us >= until as u64 * 1_000 {
                return;
            }
            self.begins.push((begin_us / 1_000) as usize);
            let mut source = scene.source();
            if attack.variant == Variant::Strangers {
                source.set_ip(address(attack.is_v6, 2, number));
            }
            let target = scene.target();
            let datagram = udp(source, target, number, self.payload, true);
            let fragments = fragments(source.ip(), target.ip(), number + 1, &datagram, largest(attack.is_v6));
            let gaps = (fragments.len() as u64 - 1).max(1);
            for (index, fragment) in (0..).zip(&fragments) {
                let due_us = begin_us + index * attack.spread_ms * 1_000 / gaps;
                self.ticks[(due_us / 1_000) as usize].push(fragment.frame(Scene::wire()));
            }
        }
    }

    /// Puts hostile fragments between the legitimate ones of each millisecond, which stay in their order.
    fn add_hostile(&mut self, attack: &Attack, scene: &Scene, seed: u64) {
        let mut random = Random::new(seed, "attack");
        let mut hostile = Hostile::new(attack, scene, seed);
        let rate = if attack.variant == Variant::Flood {
            FLOOD
        } else {
            HOSTILE
        };
        for tick in &mut self.ticks[self.attack.clone()] {
            let legitimate = std::mem::take(tick);
            tick.extend((0..rate).map(|_| hostile.next()));
            let mut place = 0;
            for frame in legitimate {
                place += random.below((tick.len() - place) as u64 + 1) as usize;
                tick.insert(place, frame);
                place += 1;
            }
        }
    }
}

/// Bytes of a datagram that fit into a frame, a multiple of 8.
fn largest(is_v6: bool) -> usize {
    if is_v6 { 1448 } else { 1480 }
}

fn payload(attack: &Attack) -> usize {
    let datagram = if attack.variant == Variant::Tunnel {
        TUNNEL_PACKET
    } else {
        FRAGMENTS * largest(attack.is_v6)
    };
    datagram - UDP_HEADER
}

/// Address `number` of a group; of IPv6 each in a network of its own.
fn address(is_v6: bool, group: u8, number: u32) -> IpAddr {
    if is_v6 {
        Ipv6Addr::new(0xfd00, 0, u16::from(group), number as u16, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::from_bits(10 << 24 | u32::from(group) << 16 | (number & 0xffff)).into()
    }
}

/// What an attacker sends, one after the other.
struct Hostile {
    attack: Attack,
    spoofed: IpAddr,
    target: IpAddr,
    random: Random,
    /// What is left of the datagram that is being sent, last first.
    rest: Vec<Vec<u8>>,
}

impl Hostile {
    fn new(attack: &Attack, scene: &Scene, seed: u64) -> Self {
        Self {
            attack: *attack,
            spoofed: scene.source().ip(),
            target: scene.target().ip(),
            random: Random::new(seed, "hostile"),
            rest: Vec::new(),
        }
    }

    fn next(&mut self) -> Vec<u8> {
        if self.rest.is_empty() {
            self.rest = self.datagram();
            self.rest.reverse();
        }
        self.rest.pop().unwrap_or_default()
    }

    /// The frames of a datagram that never becomes whole.
    fn datagram(&mut self) -> Vec<Vec<u8>> {
        let source = if self.attack.variant == Variant::Spoofed {
            self.spoofed
        } else {
            address(
                self.attack.is_v6,
                1,
                self.random.below(u64::from(self.attack.sources)) as u32,
            )
        };
        let identifier = self.random.bits() as u32;
        let full = if self.attack.variant == Variant::Flood {
            FLOOD_BYTES
        } else {
            largest(self.attack.is_v6)
        };
        let target = self.target;
        let bytes = vec![0xee; full];
        let pieces = self.pieces(full);
        let frame = |(offset, length, more): (u16, usize, bool)| {
            let fragment = Fragment {
                source,
                target,
                identifier,
                offset,
                more,
                bytes: &bytes[..length],
            };
            fragment.frame(Scene::wire())
        };
        pieces.into_iter().map(frame).collect()
    }

    /// Where its fragments are, how long, and whether more follow.
    fn pieces(&mut self, full: usize) -> Vec<(u16, usize, bool)> {
        let step = full as u16;
        match self.attack.kind {
            Kind::FirstOnly => vec![(0, full, true)],
            Kind::AllButOne => {
                let missing = self.random.below(FRAGMENTS as u64) as u16;
                let last = FRAGMENTS as u16 - 1;
                let others = (0..=last).filter(|index| *index != missing);
                others.map(|index| (index * step, full, index < last)).collect()
            }
            Kind::Overlapping => vec![(0, full, true), (step - 8, full, true), (2 * step, full, true)],
            Kind::Tiny => {
                let mut pieces: Vec<_> = (0..TINY).map(|index| (index * 16, TINY_BYTES, true)).collect();
                self.random.shuffle(&mut pieces);
                pieces
            }
        }
    }
}
