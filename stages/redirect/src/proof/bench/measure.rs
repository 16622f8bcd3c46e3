//! The measurement: rounds in which every case has its turn, so that whatever disturbs the machine meets all of them.

use anyhow::{Context, Result, ensure};

use super::chase::Chase;
use super::programs::{Hook, Programs, Traffic, Which};
use super::setting::{FEW_FLOWS, Tables, TestNetwork};
use super::{NEAR_BYTES, Options};

/// One UDP checksum in 65,536 looks like one that a local sender left to the device, which XDP leaves to tc.
const TOLERATED_SHARE: f64 = 0.001;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// In JSON.
    pub name: &'static str,
    /// In the table.
    pub title: &'static str,
    traffic: fn(&Tables) -> Traffic,
    /// Whether only the rule's lookup is measured: the same function in both programs.
    is_lookup: bool,
}

impl Case {
    const fn new(name: &'static str, title: &'static str, traffic: fn(&Tables) -> Traffic) -> Self {
        Self {
            name,
            title,
            traffic,
            is_lookup: false,
        }
    }

    /// Where it is measured.
    pub fn hooks(self) -> &'static [Hook] {
        if self.is_lookup {
            &[Hook::Tc]
        } else {
            &[Hook::Xdp, Hook::Tc]
        }
    }

    fn program(self, hook: Hook) -> Which {
        if self.is_lookup {
            Which::Lookup
        } else {
            Which::Redirect(hook)
        }
    }
}

/// The cases, in the order of the table.
pub const CASES: [Case; 6] = [
    Case::new("other_ports", "no rule's port", |_| Traffic::OtherPorts),
    Case::new("other_addresses", "a rule's port, no rule's address", |_| {
        Traffic::OtherAddresses
    }),
    Case::new("known_flow", "known flow, one of 1,000", |_| {
        Traffic::KnownFlow(FEW_FLOWS)
    }),
    Case::new("known_flow_per_rule", "known flow, one of as many as rules", |tables| {
        Traffic::KnownFlow(tables.flows)
    }),
    Case::new("first_packet", "first packet of a flow", |_| Traffic::FirstPacket),
    Case {
        is_lookup: true,
        ..Case::new("lookup", "of that, the rule's lookup", |_| Traffic::FirstPacket)
    },
];

/// The samples of one case at one hook and number of rules: one a round, in ns a packet.
#[derive(Debug, Clone)]
pub struct Samples {
    /// The case.
    pub case: Case,
    /// Where.
    pub hook: Hook,
    /// With how many rules.
    pub rules: u32,
    /// The whole program.
    pub program: Vec<f64>,
    /// The program less what makes its packets, in the same round.
    pub cost: Vec<f64>,
}

/// The samples of all rounds.
pub struct Measured {
    /// Case by case.
    pub cases: Vec<Samples>,
    /// Programs that do nothing, XDP and tc, in ns a run.
    pub empty: [Vec<f64>; 2],
    /// Loads that hit the nearest cache, in ns.
    pub near: Vec<f64>,
    /// Loads that miss the caches, in huge pages and in pages of 4 KiB.
    pub far: [Vec<f64>; 2],
}

/// The chains of loads that a cache miss is measured by.
pub struct Chases {
    near: Chase,
    far: [Chase; 2],
}

impl Chases {
    /// Over this much memory where they shall miss.
    pub fn new(far_bytes: usize) -> Result<Self> {
        Ok(Self {
            near: Chase::new(NEAR_BYTES, true)?,
            far: [Chase::new(far_bytes, true)?, Chase::new(far_bytes, false)?],
        })
    }
}

/// Measures all rounds. The calling thread must be in the namespace `host` of the place. `progress` is told which part of all
/// is done, in 0..=1, and says whether there is time for another round.
pub fn measure(
    options: &Options,
    place: &TestNetwork,
    tables: &[Tables],
    chases: &mut Chases,
    mut progress: impl FnMut(f64) -> bool,
) -> Result<Measured> {
    let mut measured = Measured {
        cases: Vec::new(),
        empty: Default::default(),
        near: vec![],
        far: Default::default(),
    };
    for case in CASES {
        for &hook in case.hooks() {
            let of = |tables: &Tables| Samples {
                case,
                hook,
                rules: tables.rules,
                program: vec![],
                cost: vec![],
            };
            measured.cases.extend(tables.iter().map(of));
        }
    }
    for round in 0..options.rounds {
        let count = measured.cases.len() as f64;
        for (number, samples) in measured.cases.iter_mut().enumerate() {
            let is_in_time = progress((f64::from(round) + number as f64 / count) / f64::from(options.rounds));
            if number == 0 && round > 0 && !is_in_time {
                return Ok(measured);
            }
            let tables = tables
                .iter()
                .find(|tables| tables.rules == samples.rules)
                .context("the tables are missing")?;
            measure_case(options.packets, place.ifindex, tables, samples)?;
        }
        let programs = &tables.first().context("no number of rules was asked for")?.known;
        for (hook, samples) in [Hook::Xdp, Hook::Tc].into_iter().zip(&mut measured.empty) {
            samples.push(time(programs, Which::Empty(hook), options.packets, place.ifindex)?);
        }
        measured.near.push(chases.near.measure()?);
        for (chase, samples) in chases.far.iter_mut().zip(&mut measured.far) {
            samples.push(chase.measure()?);
        }
    }
    Ok(measured)
}

/// Runs one case with what makes its packets, and the latter alone right behind it.
fn measure_case(packets: u32, ifindex: u32, tables: &Tables, samples: &mut Samples) -> Result<()> {
    let (case, hook) = (samples.case, samples.hook);
    let traffic = (case.traffic)(tables);
    let programs = if traffic == Traffic::FirstPacket {
        &tables.first
    } else {
        &tables.known
    };
    programs.set_traffic(traffic, tables.rules, false)?;
    let before = programs.redirected()?;
    let program = time(programs, case.program(hook), packets, ifindex)?;
    check(case, traffic, packets, programs.redirected()? - before)?;
    let draw = time(programs, Which::Draw(hook), packets, ifindex)?;
    samples.program.push(program);
    samples.cost.push(program - draw);
    Ok(())
}

/// Nanoseconds a packet, without the system call around them: that of a run of one packet is taken away.
fn time(programs: &Programs, which: Which, packets: u32, ifindex: u32) -> Result<f64> {
    programs.run(which, warm_up(packets), ifindex)?;
    let around = programs.run(which, 1, ifindex)?;
    let all = programs.run(which, packets, ifindex)?;
    Ok((all.as_nanos() as f64 - around.as_nanos() as f64) / f64::from(packets - 1))
}

fn warm_up(packets: u32) -> u32 {
    packets / 10
}

/// A figure of packets that went another way than said would be none.
fn check(case: Case, traffic: Traffic, packets: u32, redirected: u64) -> Result<()> {
    let run = f64::from(packets + warm_up(packets) + 1);
    let share = redirected as f64 / run;
    let wanted = match traffic {
        Traffic::KnownFlow(_) | Traffic::FirstPacket => 1.0,
        Traffic::OtherPorts | Traffic::OtherAddresses => 0.0,
    };
    ensure!(
        (share - wanted).abs() <= TOLERATED_SHARE,
        "{}: {redirected} of {run} packets were redirected: nothing was measured",
        case.title
    );
    Ok(())
}
