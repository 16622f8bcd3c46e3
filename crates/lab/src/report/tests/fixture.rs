//! Made-up results, for tests only.

use std::collections::BTreeMap;

use crate::cards::Cards;
use crate::experiment::{Case, Check, Experiment, Measurement, Metric, Outcome, Plot, Reference, Series, Size};

use super::super::Entry;

static METRICS: [Metric; 7] = [
    Metric::less(
        "host_instructions_per_packet",
        "Cost of the host in the middle",
        "instructions",
        0,
    ),
    Metric::less("instructions_per_packet", "Cost from end to end", "instructions", 0),
    Metric::neutral("sent", "Sent", "packets", 0),
    Metric::more("delivered", "Delivered", "packets", 0),
    Metric::less("wrong_reply_address", "Wrong reply address", "packets", 0),
    Metric::less("rtt_p50_us", "Round trip, median", "us", 1),
    Metric::less("rtt_max_us", "Round trip, maximum", "us", 1),
];

static PLOTS: [Plot; 4] = [
    Plot::Bars {
        title: "What the host in the middle costs",
        metric: "host_instructions_per_packet",
        references: &["host_instructions_per_packet", "crude"],
    },
    Plot::Cdf {
        title: "Round trip of a datagram",
        series: "rtt_us",
        logarithmic: true,
    },
    Plot::Timeline {
        title: "Round trips over the run",
        series: "course_us",
        x: "number of the round trip",
        from: 1,
        step: 1,
        lanes: None,
    },
    Plot::Groups {
        title: "Round trips by size",
        series: "sizes_us",
        groups: &["64 bytes", "512 bytes", "1,400 bytes"],
        promised: &[27.0, 28.0, 40.0],
        promise: "what was promised",
    },
];

/// An experiment with bars, a distribution and a timeline.
pub const DESCRIBED: Experiment = Experiment {
    stage: "redirect",
    name: "redirect",
    title: "Redirecting a port: cost and round trip",
    method: "A client, a host and a server in a namespace of its own behind the host.\n\n\
        Five trials of 14,000 datagrams.",
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: &METRICS,
    plots: &PLOTS,
    references: &[],
    highlights: &[],
    parts: |_| 1,
    headline: &[0],
    run: |_| unreachable!("it is made up"),
    conclude: None,
};

const CASES: [(&str, &str, f64); 12] = [
    ("direct", "Client and server on one wire", f64::NAN),
    ("plain", "Plain routing, no redirect", 5054.0),
    ("nft-stateless", "nftables, stateless", 8621.0),
    ("nft-dnat", "nftables DNAT with connection tracking", 8901.0),
    ("xdp-forward", "xdp-forward, flowtable mode", 3120.0),
    ("tarn-nft", "tarn over nftables", 8755.0),
    ("tarn-xdp-pass", "tarn over XDP, passed on to the stack", 5480.0),
    ("tarn-xdp-redirect", "tarn over XDP, redirected", 2440.0),
    ("tarn-tc", "tarn at tc, redirect_peer", 2170.0),
    ("tarn", "tarn, as configured by default", 2168.0),
    ("ipvs", "IPVS in NAT mode", 7812.0),
    ("iptables", "iptables DNAT", 9420.0),
];

/// The case that is not run.
const SKIPPED: &str = "xdp-forward";

/// Numbers that look drawn by lot and are the same everywhere.
pub fn numbers(seed: u64) -> impl Iterator<Item = f64> {
    let step = |state: &mut u64| {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Some((*state >> 11) as f64 / (1u64 << 53) as f64)
    };
    std::iter::repeat(()).scan(seed.wrapping_add(1), move |state, ()| step(state))
}

/// A result like that of `redirect`, with its first `cases` cases; the default is among them when there are ten.
pub fn outcome(suite: &str, kernel: &str, cases: usize) -> Outcome {
    let measurement = Measurement {
        cases: CASES.iter().take(cases).map(case).collect(),
        series: CASES
            .iter()
            .take(cases)
            .enumerate()
            .filter(|(_, case)| case.0 != SKIPPED)
            .flat_map(|(index, case)| series(index, case))
            .collect(),
        checks: vec![
            check(
                "Every packet of every case is delivered and answered",
                true,
                "140 000 of 140 000",
            ),
            check(
                "The default costs at most a third of nftables DNAT",
                true,
                "2 168 of 8 901 instructions, 0.24",
            ),
            check(
                "The default costs less than half of plain routing",
                suite != "bookworm",
                "2 168 of 5 054 instructions, 0.43",
            ),
        ],
        goals: vec![
            check(
                "The default costs less than tc alone",
                true,
                "2 168 of 2 170 instructions",
            ),
            check("The default costs nothing", false, "2 168 instructions"),
        ],
    };
    Outcome {
        experiment: "redirect".into(),
        kernel: kernel.into(),
        suite: suite.into(),
        seed: 1,
        size: Size::Quick,
        build: "rustc 1.95.0, clang 14.0.6, debug build".into(),
        tarn: "0.1.0".into(),
        measurement,
        reference: vec![
            Reference::new(
                "A hand-made tc program",
                "host_instructions_per_packet",
                2170.0,
                "instructions a packet, 64 bytes, Linux 6.12",
            ),
            Reference::new(
                "nftables DNAT, same run",
                "host_instructions_per_packet",
                8901.0,
                "instructions a packet, 64 bytes, Linux 6.12",
            ),
            Reference::new(
                "Student report, Linux 5.15",
                "client_time_ms",
                1411.5,
                "ms for a trial of 14,000 datagrams",
            ),
        ],
    }
}

fn case(&(name, title, cost): &(&str, &str, f64)) -> Case {
    if name == SKIPPED {
        return Case {
            name: name.into(),
            title: title.into(),
            metrics: BTreeMap::new(),
            skipped: Some("the image's xdp-tools 1.3.1 has no flowtable mode; it came with 1.5".into()),
        };
    }
    let host = if cost.is_nan() { 0.0 } else { cost };
    let all = [
        ("instructions_per_packet", 26_717.0 + host),
        ("sent", 14_000.0),
        ("delivered", 14_000.0),
        ("wrong_reply_address", 0.0),
        ("rtt_p50_us", 26.7 + host / 1000.0),
        ("rtt_max_us", 61.4 + host / 150.0),
    ];
    let mut metrics: BTreeMap<String, f64> = all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if !cost.is_nan() {
        metrics.insert("host_instructions_per_packet".into(), cost);
    }
    Case {
        name: name.into(),
        title: title.into(),
        metrics,
        skipped: None,
    }
}

fn series(index: usize, &(name, _, cost): &(&str, &str, f64)) -> Vec<Series> {
    let base = 26.7 + if cost.is_nan() { 0.0 } else { cost / 1000.0 };
    let value = |lot: f64| base + 0.4 * lot - 1.1 * (1.0 - lot).ln() + if lot > 0.995 { 40.0 * lot } else { 0.0 };
    let of = |series: &str, count: usize| Series {
        case: name.into(),
        name: series.into(),
        unit: "us".into(),
        values: numbers(index as u64).take(count).map(value).collect(),
    };
    vec![of("rtt_us", 5000), of("course_us", 400), of("sizes_us", 3)]
}

pub fn check(name: &str, passed: bool, detail: &str) -> Check {
    Check {
        name: name.into(),
        passed,
        detail: detail.into(),
    }
}

/// An entry whose experiment is known.
pub fn described(outcome: &Outcome) -> Entry<'_> {
    Entry {
        outcome,
        experiment: Some(const { &DESCRIBED }),
    }
}

/// An entry whose experiment this build does not know.
pub fn unknown(outcome: &Outcome) -> Entry<'_> {
    Entry {
        outcome,
        experiment: None,
    }
}
