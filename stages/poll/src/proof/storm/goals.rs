//! What must hold of the experiment `poll-storm`, and the goal.

use tarn_lab::experiment::{Check, Measurement};

/// Beyond the capacity.
const OVERLOADS: [&str; 8] = [
    "1.5x",
    "3x",
    "1.5x-closed",
    "3x-closed",
    "1.5x-redirected",
    "3x-redirected",
    "3x-forged",
    "3x-forged-often",
];
/// Where dropping alone takes all of the CPU. The ring drops most then, whoever sent it: what is left is that others get on.
const UTMOST: [&str; 2] = ["10x", "10x-forged"];
/// Below it.
const BELOW: [&str; 4] = ["0.4x", "0.75x", "0.4x-closed", "0.4x-redirected"];

/// A figure of a stock kernel and of tarn.
type Pair = (f64, f64);

/// What must hold, and the goal.
pub fn conclude(all: &mut Measurement) {
    let (mut checks, mut goals) = (Vec::new(), Vec::new());
    for load in OVERLOADS {
        if all.figure(&format!("tarn-{load}"), "goodput_per_s").is_some() {
            overload(all, load, &mut checks, &mut goals);
        }
    }
    checks.extend(UTMOST.into_iter().filter_map(|load| utmost(all, load)));
    BELOW.into_iter().for_each(|load| below(all, load, &mut goals));
    all.checks.extend(checks);
    all.goals.extend(goals);
}

/// At a load; `None` where it was not measured.
fn pair(all: &Measurement, load: &str, metric: &str) -> Option<Pair> {
    let [stock, tarn] = ["stock", "tarn"].map(|name| all.figure(&format!("{name}-{load}"), metric));
    stock.zip(tarn)
}

fn overload(all: &Measurement, load: &str, checks: &mut Vec<Check>, goals: &mut Vec<Check>) {
    let ours = |metric: &str| all.figure(&format!("tarn-{load}"), metric).unwrap_or(f64::MAX);
    let lost = ours("pingpong_lost_share");
    checks.push(check(
        format!("at {load}, the client that does not flood is answered"),
        lost <= 10.0,
        format!("{lost:.2} % lost"),
    ));
    goals.push(check(
        format!("at {load}, at most 1 % of what does not flood is lost"),
        lost <= 1.0,
        format!("{lost:.2} %"),
    ));
    let storm = ours("pingpong_p99_us");
    for (calm, what) in [
        ("stock-0.4x", "of a stock host at 0.4x"),
        ("stock-0x", "of a stock host without a flood"),
    ] {
        if let Some(calm) = all.figure(calm, "pingpong_p99_us") {
            goals.push(check(
                format!("at {load}, the p99 of the ping-pong is at most twice that {what}"),
                storm <= 2.0 * calm,
                format!("{storm:.0} of {calm:.0} us"),
            ));
        }
    }
    if let Some((theirs, ours)) = pair(all, load, "goodput_per_s").filter(|_| !load.ends_with("closed")) {
        goals.push(check(
            format!("at {load}, the flooded server serves at least 100 times as much as stock"),
            ours >= 100.0 * theirs.max(1.0),
            format!("{ours:.0} of {theirs:.0} a second"),
        ));
    }
    if let Some((theirs, ours)) = pair(all, load, "hog_share") {
        goals.push(check(
            format!("at {load}, others keep a tenth of the CPU, and twice what stock leaves them"),
            ours >= (2.0 * theirs).max(10.0),
            format!("{ours:.1} of {theirs:.1} %"),
        ));
    }
    let fifo = ours("fifo_p99_us");
    goals.push(check(
        format!("at {load}, a real-time thread's p99 is at most 250 us"),
        fifo <= 250.0,
        format!("{fifo:.1} us"),
    ));
    let onset = ours("onset_max_us");
    goals.push(check(
        format!("at {load}, no ordinary thread is later than 25 ms at the onset"),
        onset <= 25_000.0,
        format!("{onset:.0} us"),
    ));
}

fn utmost(all: &Measurement, load: &str) -> Option<Check> {
    let (theirs, ours) = pair(all, load, "hog_share")?;
    Some(check(
        format!("at {load}, others keep a tenth of the CPU, and what stock leaves them"),
        ours >= theirs.max(10.0),
        format!("{ours:.1} of {theirs:.1} %"),
    ))
}

fn below(all: &Measurement, load: &str, goals: &mut Vec<Check>) {
    for (metric, what) in [
        ("pingpong_p50_us", "the median of the ping-pong"),
        ("pingpong_p99_us", "the p99 of the ping-pong"),
        ("fifo_p99_us", "a real-time thread's p99"),
    ] {
        if let Some((theirs, ours)) = pair(all, load, metric) {
            goals.push(check(
                format!("at {load}, {what} is at most 5 % longer than stock's"),
                ours <= 1.05 * theirs,
                format!("{ours:.1} of {theirs:.1} us"),
            ));
        }
    }
    if let Some((theirs, ours)) = pair(all, load, "goodput_per_s").filter(|_| !load.ends_with("closed")) {
        goals.push(check(
            format!("at {load}, the server serves at least 95 % of what stock serves"),
            ours >= 0.95 * theirs,
            format!("{ours:.0} of {theirs:.0} a second"),
        ));
    }
}

fn check(name: String, passed: bool, detail: String) -> Check {
    Check { name, passed, detail }
}
