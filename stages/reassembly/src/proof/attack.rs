//! The experiment `reassembly-attack`: whether datagrams still become whole while somebody sends fragments that never do.

use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Experiment, Guest, Highlight, Lanes, Metric, Plot, Reference, Size};

mod goals;
mod kinds;
mod load;
mod measure;

use kinds::Attack;

/// The experiment.
pub static ATTACK: Experiment = Experiment {
    stage: crate::STAGE,
    name: "reassembly-attack",
    title: "datagrams that still become whole under an attack with fragments",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: PLOTS,
    references: REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |size| kinds::attacks(size).len().div_ceil(ATTACKS_A_PART),
    headline: &[0],
    run: |guest: &mut Guest| measure::run(guest, attacks_of(guest)),
    conclude: Some(goals::conclude),
};

/// What is shown at the end of a run.
static HIGHLIGHTS: &[Highlight] = &[Highlight {
    what: "% complete, attacked",
    metric: COMPLETED,
    stock: Some("mainline-first-only-10000-10ms"),
    peer: Some(("64 MiB", "mainline-tuned-first-only-10000-10ms")),
    published: None,
    tarn: "tarn-first-only-10000-10ms",
}];

const METHOD: &str = "\
A legitimate sender sends 100 datagrams a second of 8 fragments each, which take 1 to 400 ms to arrive. After a \
second an attacker begins to send 8,000 fragments a second, from one address or from 10,000. They are first \
fragments only; datagrams of 8 fragments without one; fragments that overlap by 8 bytes, and one behind them; or \
fragments of 8 bytes with gaps between them.

Cases that end in `spoofed`: all of that comes from the legitimate sender's address, with random identifiers. \
`strangers`: each legitimate datagram comes from an address that has never sent one. `tunnel`: the legitimate sender \
sends 400 packets a second of 1,600 bytes, each in 2 fragments. `flood`: 80,000 hostile fragments a second, of 64 \
bytes.

The share is that of the legitimate datagrams begun during the attack that arrived intact at a UDP socket: their \
number and every byte are compared. What completes before the memory is full, in the first quarter of a second, is \
part of it. Memory is the most that fragments took, as the kernel accounts it. CPU is instructions a fragment during \
the attack, less those of a control: the same frames, dropped by a hook where tarn would take them.

tarn and the stock kernel have the kernel's defaults, 4 MiB and 30 s; the tuned kernel has 64 MiB and 2 s.";

/// Of the legitimate datagrams, percent.
const COMPLETED: &str = "completed_share";
/// The most memory, KiB.
const MEMORY: &str = "memory_max_kib";
/// Instructions a fragment, above the control.
const PATH: &str = "path_instructions_per_fragment";
/// The most datagrams held at a time.
const HELD: &str = "held_max";

static METRICS: &[Metric] = &[
    Metric::more(COMPLETED, "completed", "%", 2),
    Metric::less(MEMORY, "memory, at most", "KiB", 0),
    Metric::less(PATH, "CPU", "instructions/fragment", 0),
    Metric::neutral(HELD, "held, at most", "datagrams", 0),
    Metric::neutral("datagrams", "legitimate", "datagrams", 0),
];

static PLOTS: &[Plot] = &[
    Plot::Timeline {
        title: "Legitimate datagrams that become whole: first fragments from 10,000 addresses, datagrams of 10 ms",
        series: "completed_first_only",
        x: "slots of 100 ms",
        from: 0,
        step: 1,
        lanes: Some(lanes("phase_first_only", "seconds_first_only")),
    },
    Plot::Groups {
        title: "Legitimate datagrams that become whole, by attack",
        series: "completed_by_attack",
        groups: kinds::PROMISED_NAMES,
        promised: &[goals::PROMISED; kinds::PROMISED_NAMES.len()],
        promise: "99.9 %, the goal",
    },
];

const fn lanes(series: &'static str, time: &'static str) -> Lanes {
    Lanes {
        noun: "Phases",
        series,
        time,
        x: "seconds",
        names: &[
            ("calm", "legitimate datagrams only"),
            ("attack", "and 8,000 hostile fragments a second"),
        ],
        note: "each point: the datagrams begun in 100 ms; colour and lane: whether the attack goes on",
    }
}

static REFERENCES: &[Reference] = &[Reference::new(
    "Linux commit fa0f527358bd (2018), which brought the tree: netstat after five minutes of neper's udp_stream",
    "reassembled",
    944_952.0,
    "datagrams, beside 262,734,239 failures",
)];

/// How many attacks a guest goes through.
const ATTACKS_A_PART: usize = 4;

fn attacks_of(guest: &Guest) -> Vec<Attack> {
    let all = kinds::attacks(guest.size);
    // The one that is plotted says most.
    let most = if guest.size == Size::Headline {
        1
    } else {
        ATTACKS_A_PART
    };
    all.into_iter().skip(guest.part * ATTACKS_A_PART).take(most).collect()
}
