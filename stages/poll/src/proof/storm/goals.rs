//! What must hold of the experiment `poll-storm`, and the goal.

use tarn_lab::experiment::{Check, Measurement};

/// What must hold, and the goal.
pub fn conclude(all: &mut Measurement) {
    let figure = |case: &str, metric: &str| all.figure(case, metric);
    let mut checks = Vec::new();
    let mut goals = Vec::new();
    for load in [
        "1.5x",
        "3x",
        "10x",
        "1.5x-closed",
        "3x-closed",
        "1.5x-redirected",
        "3x-redirected",
        "3x-forged",
        "10x-forged",
    ] {
        let [stock, tarn] = ["stock", "tarn"].map(|name| format!("{name}-{load}"));
        let (Some(theirs), Some(ours)) = (figure(&stock, "goodput_per_s"), figure(&tarn, "goodput_per_s")) else {
            continue;
        };
        let lost = figure(&tarn, "pingpong_lost_share").unwrap_or(100.0);
        let is_served = !load.ends_with("closed");
        checks.push(Check {
            name: format!("at {load}, the client that does not flood is answered"),
            passed: lost <= 10.0,
            detail: format!("{lost:.2} % lost"),
        });
        goals.push(goal(
            format!("at {load}, at most 1 % of what does not flood is lost"),
            lost <= 1.0,
            format!("{lost:.2} %"),
        ));
        for (calm, what) in [
            ("stock-0.4x", "of a stock host at 0.4x"),
            ("stock-0x", "of a stock host without a flood"),
        ] {
            let (Some(calm), Some(storm)) = (figure(calm, "pingpong_p99_us"), figure(&tarn, "pingpong_p99_us")) else {
                continue;
            };
            goals.push(goal(
                format!("at {load}, the p99 of the ping-pong is at most twice that {what}"),
                storm <= 2.0 * calm,
                format!("{storm:.0} of {calm:.0} us"),
            ));
        }
        if is_served {
            goals.push(goal(
                format!("at {load}, the flooded server serves at least 100 times as much as stock"),
                ours >= 100.0 * theirs.max(1.0),
                format!("{ours:.0} of {theirs:.0} a second"),
            ));
        }
        let hogs = [&stock, &tarn].map(|case| figure(case, "hog_share").unwrap_or_default());
        goals.push(goal(
            format!("at {load}, others keep a tenth of the CPU, and twice what stock leaves them"),
            hogs[1] >= (2.0 * hogs[0]).max(10.0),
            format!("{:.1} of {:.1} %", hogs[1], hogs[0]),
        ));
        let fifo = figure(&tarn, "fifo_p99_us").unwrap_or(f64::MAX);
        goals.push(goal(
            format!("at {load}, a real-time thread's p99 is at most 250 us"),
            fifo <= 250.0,
            format!("{fifo:.1} us"),
        ));
        let onset = figure(&tarn, "onset_max_us").unwrap_or(f64::MAX);
        goals.push(goal(
            format!("at {load}, no ordinary thread is later than 25 ms at the onset"),
            onset <= 25_000.0,
            format!("{onset:.0} us"),
        ));
    }
    for load in ["0.4x", "0.75x", "0.4x-closed", "0.4x-redirected"] {
        let pair = |metric: &str| {
            let [theirs, ours] = ["stock", "tarn"].map(|name| figure(&format!("{name}-{load}"), metric));
            theirs.zip(ours)
        };
        for (metric, what) in [
            ("pingpong_p50_us", "the median of the ping-pong"),
            ("pingpong_p99_us", "the p99 of the ping-pong"),
            ("fifo_p99_us", "a real-time thread's p99"),
        ] {
            if let Some((theirs, ours)) = pair(metric) {
                goals.push(goal(
                    format!("at {load}, {what} is at most 5 % longer than stock's"),
                    ours <= 1.05 * theirs,
                    format!("{ours:.1} of {theirs:.1} us"),
                ));
            }
        }
        if let Some((theirs, ours)) = pair("goodput_per_s").filter(|_| !load.ends_with("closed")) {
            goals.push(goal(
                format!("at {load}, the server serves at least 95 % of what stock serves"),
                ours >= 0.95 * theirs,
                format!("{ours:.0} of {theirs:.0} a second"),
            ));
        }
    }
    all.checks.extend(checks);
    all.goals.extend(goals);
}

fn goal(name: String, passed: bool, detail: String) -> Check {
    Check { name, passed, detail }
}
