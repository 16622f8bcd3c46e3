//! What must hold: whoever is not overloaded gets what they get without tarn, and figures are those of what is counted.

use tarn_lab::experiment::{Case, Check, Measurement};

/// How much less or more than on the stock kernel is as good.
const AS_GOOD: f64 = 0.02;
/// The same of a service that has slowed down.
const KEEPS_UP: f64 = 0.05;

/// Compares each case of tarn's with the stock kernel's.
pub fn conclude(all: &mut Measurement) {
    let checks: Vec<Check> = all
        .cases
        .iter()
        .filter_map(|case| {
            let situation = case.name.strip_prefix("tarn-")?;
            let stock = all
                .cases
                .iter()
                .find(|case| case.name == format!("stock-{situation}"))?;
            Some(harms_nobody(situation, stock, case))
        })
        .chain(all.cases.iter().filter_map(is_counted))
        .collect();
    all.checks.extend(checks);
}

fn of(case: &Case, figure: &str) -> Option<f64> {
    case.metrics.get(figure).copied()
}

/// Figures of a case, and whether each is as good as another's.
fn harms_nobody(situation: &str, stock: &Case, tarn: &Case) -> Check {
    let mut details = Vec::new();
    let mut passed = true;
    let mut compare = |figure: &str, is_good: fn(f64, f64) -> bool| {
        if let (Some(stock), Some(tarn)) = (of(stock, figure), of(tarn, figure)) {
            passed &= is_good(stock, tarn);
            details.push(format!("{figure} {stock:.1}, with tarn {tarn:.1}"));
        }
    };
    compare("answered_share", |stock, tarn| tarn >= stock * (1.0 - AS_GOOD));
    compare("throughput_per_s", |stock, tarn| tarn >= stock * (1.0 - KEEPS_UP));
    for figure in ["p99_ms", "slowest_ms"] {
        // Half a millisecond for what tarn itself takes, where a request takes next to nothing.
        compare(figure, |stock, tarn| tarn <= stock * (1.0 + AS_GOOD) + 0.5);
    }
    Check {
        name: format!("{situation}: as good as without tarn"),
        passed: passed && !details.is_empty(),
        detail: details.join("; "),
    }
}

/// What travels together is one request, and an answer is the one that counts.
fn is_counted(case: &Case) -> Option<Check> {
    let counted = of(case, "counted")?;
    let (name, passed, detail) = match case.name.as_str() {
        "tarn-streams" | "tarn-pipelined" => ("counted as one", counted == 1.0, format!("{counted} counted")),
        "tarn-idle-tls" => ("counted one by one", counted == 5.0, format!("{counted} of 5 counted")),
        "tarn-interim" => {
            let (took, said) = (of(case, "slowest_ms")?, of(case, "said_ms")?);
            // The middle of a bucket may be 1/32 of its value away.
            let is_near = (took - said).abs() <= took / 16.0;
            ("timed by its answer", is_near, format!("{took:.1} ms, {said:.1} said"))
        }
        _ => return None,
    };
    Some(Check {
        name: format!("{}: {name}", case.name),
        passed,
        detail,
    })
}
