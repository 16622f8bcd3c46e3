//! The description of a network and of the flows that use it.

use std::fmt;

use crate::skeleton::core::pace_parameters;

/// Bytes of a segment's payload.
pub(crate) const SEGMENT_BYTES: u64 = 1448;
/// Bytes of a full packet on the link.
pub(crate) const PACKET_BYTES: u64 = 1514;
/// Bytes of an acknowledgement on the link.
pub(crate) const ACKNOWLEDGEMENT_BYTES: u64 = 66;
/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1000 * MS;

/// One bottleneck, a path back that only delays, and flows.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// The bottleneck's rate, bit/s, before [`Network::course`] changes it.
    pub(crate) rate: u64,
    /// The round trip without a queue, us.
    pub(crate) round_trip_us: u64,
    /// What the bottleneck keeps.
    pub(crate) buffer: Buffer,
    /// The bottleneck discards what exceeds its rate (a token bucket of the size of the buffer) instead of queueing it.
    pub(crate) polices: bool,
    /// The share of packets that are lost at random, 0.0 to 1.0.
    pub(crate) loss: f64,
    /// How the rate changes.
    pub(crate) course: Course,
    /// All packets are lost from the first time to the second, ms.
    pub(crate) outage_ms: Option<(u64, u64)>,
    /// The return path delivers acknowledgements in batches, one batch each so many ms; 0: each at once.
    pub(crate) acknowledged_every_ms: u64,
    /// The path back holds acknowledgements from the first time to the second, ms; then they come ten times as fast as otherwise.
    pub(crate) silence_ms: Option<(u64, u64)>,
    /// What the clock of the receiver counts in TCP's timestamps, us; 0: there are none.
    pub(crate) tick_us: u64,
    /// How those timestamps are off.
    pub(crate) stamps: Stamps,
    /// What others keep in the queue of the way back.
    pub(crate) back: Option<Back>,
    /// The rate of the way back, bit/s, where acknowledgements make a queue of their own; 0: they do not.
    pub(crate) back_rate: u64,
    /// From this time on, ms, the round trip is longer by so many us.
    pub(crate) detour: Option<(u64, u64)>,
    pub(crate) flows: Vec<Flow>,
    /// From when on figures count, ms; `None`: from two seconds or twenty round trips on, whichever is longer.
    pub(crate) measured_from_ms: Option<u64>,
    /// How long it is simulated, ms.
    pub(crate) duration_ms: u64,
    /// What is random comes of it.
    pub(crate) seed: u64,
}

/// What a receiver's timestamps show instead of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamps {
    /// The clock.
    Exact,
    /// A clock that steps, every so many ticks.
    Steps(u64),
    /// Every other acknowledgement has a time to come, at most so many ticks ahead: that of the next packet of its own that leaves.
    Early(u64),
    /// A receiver that lies: acknowledgements seem to wait ever longer, 50 ms more each second up to so many.
    Lagging(u64),
}

/// A queue that fills and falls, as CUBIC keeps it: acknowledgements wait in it for `least_ms` to `most_ms`, up and down in `period_ms`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Back {
    pub(crate) from_ms: u64,
    pub(crate) least_ms: u64,
    pub(crate) most_ms: u64,
    pub(crate) period_ms: u64,
}

impl Back {
    /// How long an acknowledgement waits that comes to the queue now. Times in ns. The queue falls by less than a second a second, so
    /// that none overtakes another.
    fn wait(&self, now: u64) -> u64 {
        let Some(since) = now.checked_sub(self.from_ms * MS) else {
            return 0;
        };
        let (period, depth) = (self.period_ms * MS, (self.most_ms - self.least_ms) * MS);
        let phase = since % period;
        let share = 2 * phase.min(period - phase);
        self.least_ms * MS + (u128::from(depth) * u128::from(share) / u128::from(period)) as u64
    }
}

/// The size of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Buffer {
    /// Full packets.
    Packets(u64),
    Bytes(u64),
    /// Parts of what the first rate sends in a round trip; at least four packets.
    Products(f64),
}

/// How the rate of the bottleneck changes over time. Rates are in bit/s.
#[derive(Debug, Clone)]
pub(crate) enum Course {
    Steady,
    /// Down to `low` and back, one change every `period_ms`.
    Step {
        low: u64,
        period_ms: u64,
    },
    /// To each rate from its time on, ms, in the order of time.
    Script(Vec<(u64, u64)>),
    /// As Wi-Fi: a random walk between `low` and the first rate, a step every 100 ms.
    Walk {
        low: u64,
    },
    /// As LTE: a rate that wanders around the middle of `low` and the first one every 20 ms, and fades now and then.
    Fading {
        low: u64,
    },
}

/// One sender.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) control: Control,
    /// When it begins, ms.
    pub(crate) start_ms: u64,
    pub(crate) source: Source,
}

/// A flow's congestion control.
#[derive(Clone, Copy)]
pub(crate) enum Control {
    Pace(pace_parameters),
    Cubic,
    Reno,
}

/// Without the parameters, which would hide the network that they are used in.
impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pace(parameters) => write!(f, "pace, response {}", parameters.response),
            Self::Cubic => write!(f, "CUBIC"),
            Self::Reno => write!(f, "Reno"),
        }
    }
}

/// What a flow has to send.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// Always more.
    Endless,
    /// So many segments, and again every so many ms.
    Portions { segments: u64, every_ms: u64 },
}

impl Network {
    /// A steady network without loss, a buffer of one product, and so many flows of one control, which begin a millisecond apart.
    pub(crate) fn new(rate: u64, round_trip_us: u64, control: Control, flows: u64) -> Self {
        let flow = |number| Flow {
            control,
            start_ms: 50 + number,
            source: Source::Endless,
        };
        Self {
            rate,
            round_trip_us,
            buffer: Buffer::Products(1.0),
            polices: false,
            loss: 0.0,
            course: Course::Steady,
            outage_ms: None,
            acknowledged_every_ms: 0,
            silence_ms: None,
            tick_us: 1000,
            stamps: Stamps::Exact,
            back: None,
            back_rate: 0,
            detour: None,
            flows: (0..flows).map(flow).collect(),
            measured_from_ms: None,
            duration_ms: 20_000,
            seed: 1,
        }
    }

    /// When an acknowledgement reaches its sender, of a packet that has come now. Times in ns.
    pub(super) fn arrival(&self, now: u64) -> u64 {
        let longer = self.detour.filter(|(from, _)| now >= from * MS).map_or(0, |(_, us)| us);
        let gathered = (self.acknowledged_every_ms * MS).max(1);
        let waits = self.back.map_or(0, |back| back.wait(now));
        let arrives = (now + waits + (self.round_trip_us + longer) * 1000).next_multiple_of(gathered);
        match self.silence_ms {
            Some((from, to)) if (from * MS..to * MS).contains(&arrives) => to * MS + (arrives - from * MS) / 10,
            // Those that follow do not overtake.
            Some((from, to)) if arrives >= to * MS => arrives.max(to * MS + (to - from) * MS / 10),
            _ => arrives,
        }
    }

    /// The receiver's clock, which is ahead of all others.
    pub(super) fn peer_clock(&self, now: u64) -> u32 {
        const AHEAD: u64 = 123_456;
        let Some(ticks) = now.checked_div(self.tick_us * 1000) else {
            return 0;
        };
        let shown = match self.stamps {
            Stamps::Exact => ticks,
            Stamps::Steps(step) => ticks - ticks % step,
            // Numbers that come of the time: a run repeats.
            Stamps::Early(most) if now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1 => {
                ticks + now / 1000 % (most + 1)
            }
            Stamps::Early(_) => ticks,
            Stamps::Lagging(most) => ticks - (ticks / 20).min(most),
        };
        (shown + AHEAD) as u32
    }

    /// The buffer in bytes.
    pub(super) fn buffer_bytes(&self) -> u64 {
        match self.buffer {
            Buffer::Packets(packets) => packets * PACKET_BYTES,
            Buffer::Bytes(bytes) => bytes,
            Buffer::Products(products) => {
                let product = self.rate as f64 / 8e6 * self.round_trip_us as f64;
                ((product * products) as u64).max(4 * PACKET_BYTES)
            }
        }
    }

    /// How long the start-up is that figures leave out, ns.
    pub(crate) fn startup(&self) -> u64 {
        let from = self.measured_from_ms.map(|ms| ms * MS);
        from.unwrap_or((2 * SECOND).max(20 * 1000 * self.round_trip_us))
    }
}
