//! The networks that the congestion control is judged in, and their division.
//!
//! One half of them is for tuning; the other half is held out: no parameter is chosen by it, and reports show it first. A network is
//! of the one half or of the other by its name alone ([`Network::is_held_out`]), so the division cannot be moved by a seed or by what
//! else is in the table. Renaming a network, or changing what decides, breaks it: a test holds both halves' names.

use std::fmt;

/// How the rate of the bottleneck goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// It stays.
    Steady,
    /// Halved, and whole again.
    Halved,
    /// Cut to 40 %, and whole again.
    Cut,
    /// As Wi-Fi: a random walk down to 20 %.
    Walk,
    /// As LTE: it wanders down to 20 % and fades for moments.
    Fading,
}

/// What keeps the packets that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// The last that came is dropped.
    DropTail,
    /// sch_fq_codel.
    FqCodel,
    /// sch_cake.
    Cake,
    /// One queue that marks by CoDel (RFC 8289), and flows that know ECN.
    Ecn,
    /// Nothing waits: what exceeds the rate is discarded.
    Policer,
}

/// What else happens to packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// So many in a hundred are lost at random.
    Loss(u32),
    /// Acknowledgements come in lumps, every so many milliseconds.
    Lumps(u32),
    /// Some overtake others.
    Reordering,
}

/// Who else is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rivals {
    /// Nobody.
    None,
    /// So many flows of CUBIC.
    Cubic(u32),
    /// So many flows of BBRv1.
    Bbr(u32),
}

/// One network, and the flows that are judged in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The bottleneck's whole rate, Mbit/s.
    pub rate: u32,
    /// How it goes on.
    pub course: Course,
    /// Without a queue, ms.
    pub round_trip: u32,
    /// What may wait, in hundredths of what the whole rate sends in a round trip.
    pub buffer: u32,
    /// What keeps it.
    pub queue: Queue,
    /// What else happens.
    pub trouble: Trouble,
    /// Flows of the congestion control that is judged; they begin a second apart where the rate is steady, else 10 ms.
    pub flows: u32,
    /// Who else is there.
    pub rivals: Rivals,
}

impl Network {
    const fn new(rate: u32, round_trip: u32, buffer: u32, flows: u32) -> Self {
        Self {
            rate,
            course: Course::Steady,
            round_trip,
            buffer,
            queue: Queue::DropTail,
            trouble: Trouble::None,
            flows,
            rivals: Rivals::None,
        }
    }

    /// One flow on a path whose rate, Mbit/s, stays; its round trip in ms, its buffer in hundredths of a product.
    pub fn steady(rate: u32, round_trip: u32, buffer: u32) -> Self {
        Self::new(rate, round_trip, buffer, 1)
    }

    /// The lowest rate, in hundredths of the whole one.
    pub fn lowest(&self) -> u32 {
        match self.course {
            Course::Steady => 100,
            Course::Halved => 50,
            Course::Cut => 40,
            Course::Walk | Course::Fading => 20,
        }
    }

    /// Whether no parameter may be chosen by it: by a bit in the middle of the FNV-1a hash of its name, which all of the name decides.
    pub fn is_held_out(&self) -> bool {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let hash = self
            .to_string()
            .bytes()
            .fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
        hash >> 32 & 1 == 1
    }
}

/// As `50to20-80ms-1bdp-4flows`.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = f64::from(self.rate * self.lowest()) / 100.0;
        match self.course {
            Course::Steady => write!(f, "{}", self.rate)?,
            Course::Halved | Course::Cut => write!(f, "{}to{low}", self.rate)?,
            Course::Walk => write!(f, "{}walk{low}", self.rate)?,
            Course::Fading => write!(f, "{}fading{low}", self.rate)?,
        }
        write!(
            f,
            "-{}ms-{}bdp-{}flows",
            self.round_trip,
            f64::from(self.buffer) / 100.0,
            self.flows
        )?;
        match self.queue {
            Queue::DropTail => {}
            Queue::FqCodel => write!(f, "-fqcodel")?,
            Queue::Cake => write!(f, "-cake")?,
            Queue::Ecn => write!(f, "-ecn")?,
            Queue::Policer => write!(f, "-policer")?,
        }
        match self.trouble {
            Trouble::None => {}
            Trouble::Loss(percent) => write!(f, "-loss{percent}")?,
            Trouble::Lumps(ms) => write!(f, "-lumps{ms}")?,
            Trouble::Reordering => write!(f, "-reordering")?,
        }
        match self.rivals {
            Rivals::None => Ok(()),
            Rivals::Cubic(flows) => write!(f, "-vs{flows}cubic"),
            Rivals::Bbr(flows) => write!(f, "-vs{flows}bbr"),
        }
    }
}

/// Rates and round trips of accesses: LTE, DSL, cable, fibre, a far server, a near one.
const PATHS: [(u32, u32); 7] = [(5, 60), (20, 40), (20, 100), (50, 20), (50, 80), (100, 200), (200, 5)];

/// Those of them that flows share.
const SHARED: [(u32, u32); 4] = [(20, 40), (50, 20), (50, 80), (100, 200)];

/// All networks, each once.
pub fn all() -> Vec<Network> {
    let mut table = drops();
    table.extend(everywhere());
    table.extend(fair());
    table
}

/// Where the bandwidth drops: every path and every course with every buffer, with one, four or sixteen flows in turn.
pub fn drops() -> Vec<Network> {
    let courses = [Course::Halved, Course::Cut, Course::Walk, Course::Fading];
    let mut table = Vec::new();
    for (rate, round_trip) in PATHS {
        for course in courses {
            for buffer in [50, 100, 200, 400] {
                let flows = [1, 4, 1, 4, 16][table.len() % 5];
                let network = Network::new(rate, round_trip, buffer, flows);
                table.push(Network { course, ..network });
            }
        }
    }
    table
}

/// Where nothing may be worse.
pub fn everywhere() -> Vec<Network> {
    let mut table = Vec::new();
    for (rate, round_trip) in PATHS {
        let of = |buffer, flows| Network::new(rate, round_trip, buffer, flows);
        table.extend([of(10, 1), of(25, 4), of(100, 1), of(400, 4)]);
        for queue in [Queue::FqCodel, Queue::Cake] {
            table.push(Network { queue, ..of(200, 4) });
            table.push(Network {
                queue,
                course: Course::Cut,
                ..of(200, 1)
            });
        }
        table.push(Network {
            queue: Queue::Policer,
            ..of(20, 1)
        });
        table.push(Network {
            queue: Queue::Ecn,
            ..of(200, 4)
        });
        table.push(Network {
            queue: Queue::Ecn,
            rivals: Rivals::Cubic(1),
            ..of(200, 1)
        });
        let troubles = [
            Trouble::Loss(1),
            Trouble::Loss(3),
            Trouble::Lumps(20),
            Trouble::Reordering,
        ];
        table.extend(troubles.map(|trouble| Network { trouble, ..of(100, 1) }));
    }
    table
}

/// Where flows share a rate that stays.
pub fn fair() -> Vec<Network> {
    let mut table = Vec::new();
    for (rate, round_trip) in SHARED {
        for buffer in [50, 100, 200, 400] {
            let of = |flows| Network::new(rate, round_trip, buffer, flows);
            table.extend([of(2), of(16)]);
            let rivals = [Rivals::Cubic(1), Rivals::Cubic(4), Rivals::Bbr(1), Rivals::Bbr(4)];
            table.extend(rivals.map(|rivals| Network { rivals, ..of(1) }));
        }
    }
    table.extend(fair_added());
    table
}

/// Added when all parameters had been chosen, so that neither half of these had been tuned for then; [`everywhere`] has the other
/// networks of four flows.
fn fair_added() -> Vec<Network> {
    let mut table = Vec::new();
    for (rate, round_trip) in SHARED {
        table.extend([50, 100, 200].map(|buffer| Network::new(rate, round_trip, buffer, 4)));
        for queue in [Queue::FqCodel, Queue::Cake] {
            let of = |flows, rivals| Network {
                queue,
                rivals,
                ..Network::new(rate, round_trip, 200, flows)
            };
            table.extend([of(2, Rivals::None), of(1, Rivals::Cubic(1)), of(1, Rivals::Bbr(1))]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was tuned by one half and reported by the other would mean nothing once a network changed sides.
    #[test]
    fn the_division_is_the_one_that_was_made_before_tuning() {
        let held_out: Vec<String> = all()
            .iter()
            .filter(|network| network.is_held_out())
            .map(Network::to_string)
            .collect();
        let recorded: Vec<&str> = include_str!("held-out.txt").lines().collect();
        assert_eq!(held_out, recorded);
    }

    #[test]
    fn each_network_has_a_name_of_its_own() {
        let mut names: Vec<String> = all().iter().map(Network::to_string).collect();
        names.sort();
        let repeated = names.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(repeated.is_none(), "{repeated:?}");
    }

    /// Neither half lacks a kind of network.
    #[test]
    fn about_half_of_each_kind_is_held_out() {
        for table in [drops(), everywhere(), fair()] {
            let held_out = table.iter().filter(|network| network.is_held_out()).count();
            let share = held_out * 100 / table.len();
            assert!((35..=65).contains(&share), "{share} % of {}", table.len());
        }
    }
}
