//! What the figures of many networks come to, held against the goal.

use super::control::Control;
use super::networks::Network;
use super::table::name;
use tarn_lab::experiment::{Check, Measurement};

/// Of BBR's figure, what ours may be. The goal of the stage.
struct Bound {
    metric: &'static str,
    what: &'static str,
    /// Networks with at least this buffer, and less than that one.
    buffer: (u32, u32),
    most: f64,
}

const ANY: u32 = u32::MAX;

const BOUNDS: [Bound; 4] = [
    Bound {
        metric: "rtt_p99_ms",
        what: "99th percentile of round trips, queues of one product",
        buffer: (100, 200),
        most: 0.8,
    },
    Bound {
        metric: "rtt_p99_ms",
        what: "99th percentile of round trips, queues of two products and more",
        buffer: (200, ANY),
        most: 0.6,
    },
    Bound {
        metric: "rtt_mean_ms",
        what: "mean round trip, queues of one product and more",
        buffer: (100, ANY),
        most: 0.65,
    },
    Bound {
        metric: "rtt_max_ms",
        what: "longest round trip, queues of two products and more",
        buffer: (200, ANY),
        most: 0.65,
    },
];

/// So much of BBR's retransmissions may be left.
const RETRANSMITTED: f64 = 0.59;

/// Where queues hold so much, the longest round trip may be so many times the floor: probes, which look for more, are in it.
const FLOOR: (u32, f64) = (200, 1.3);

/// The half that was held out, and the other one, as far as they were measured.
pub fn halves(measurement: &Measurement, networks: &[Network]) -> Vec<(&'static str, Vec<Network>)> {
    let measured = |network: &&Network| {
        measurement
            .figure(&name(Control::Tarn, network), "goodput_mbit_s")
            .is_some()
    };
    let (held_out, tuned): (Vec<Network>, Vec<Network>) = networks
        .iter()
        .filter(measured)
        .partition(|network| network.is_held_out());
    let halves = [("held out", held_out), ("tuned for", tuned)];
    halves
        .into_iter()
        .filter(|(_, networks)| !networks.is_empty())
        .collect()
}

/// The goal for drops of the bandwidth.
pub fn against_bbr(measurement: &Measurement, half: &str, networks: &[Network]) -> Vec<Check> {
    let mut checks = vec![
        retransmitted(measurement, half, networks),
        goodput(measurement, half, networks),
    ];
    checks.extend(
        BOUNDS
            .iter()
            .filter_map(|bound| round_trips(measurement, half, networks, bound)),
    );
    checks.extend(above_floor(measurement, half, networks));
    checks
}

fn above_floor(measurement: &Measurement, half: &str, networks: &[Network]) -> Option<Check> {
    let (buffer, most) = FLOOR;
    let ratios: Vec<f64> = networks
        .iter()
        .filter(|network| network.buffer >= buffer)
        .filter_map(|network| {
            let figure = |metric| measurement.figure(&name(Control::Tarn, network), metric);
            Some(figure("rtt_max_ms")? / figure("rtt_floor_ms")?)
        })
        .collect();
    let met = ratios.iter().filter(|ratio| **ratio <= most).count();
    let mean = geometric_mean(&ratios);
    (!ratios.is_empty()).then(|| Check {
        name: format!("{half}: longest round trip, queues of two products and more: at most {most} times the floor"),
        passed: mean <= most,
        detail: format!(
            "{mean:.2} times in the geometric mean; met in {met} of {} networks",
            ratios.len()
        ),
    })
}

/// Of the better one's goodput, what ours has to be at least. Less is no missed goal but a fault.
const STANDS_STILL: f64 = 0.6;

/// That ours stands still nowhere: what has to hold whatever the goals say.
pub fn goes_on(measurement: &Measurement, networks: &[Network]) -> Check {
    let figure = |control, network: &Network| measurement.figure(&name(control, network), "goodput_mbit_s");
    let share = |network: &Network| {
        let better = figure(Control::Cubic, network)?.max(figure(Control::Bbr, network)?);
        Some((figure(Control::Tarn, network)? / better, network.to_string()))
    };
    let least = networks
        .iter()
        .filter_map(share)
        .min_by(|one, other| one.0.total_cmp(&other.0));
    let (share, network) = least.unwrap_or((0.0, "no network".into()));
    Check {
        name: format!(
            "goodput is nowhere below {:.0} % of the better of CUBIC and BBR",
            100.0 * STANDS_STILL
        ),
        passed: share >= STANDS_STILL,
        detail: format!("{:.0} % at least, in {network}", 100.0 * share),
    }
}

/// Ours by BBR's of a network.
fn ratio(measurement: &Measurement, network: &Network, metric: &str) -> Option<f64> {
    let figure = |control| measurement.figure(&name(control, network), metric);
    Some(figure(Control::Tarn)? / figure(Control::Bbr)?)
}

fn total(measurement: &Measurement, networks: &[Network], control: Control, metric: &str) -> f64 {
    networks
        .iter()
        .filter_map(|network| measurement.figure(&name(control, network), metric))
        .sum()
}

fn retransmitted(measurement: &Measurement, half: &str, networks: &[Network]) -> Check {
    let [ours, theirs] =
        [Control::Tarn, Control::Bbr].map(|control| total(measurement, networks, control, "retransmitted"));
    Check {
        name: format!("{half}: at least 41 % fewer packets are sent again than by BBR"),
        passed: ours <= RETRANSMITTED * theirs,
        detail: format!("{ours:.0}, BBR {theirs:.0}, in {} networks", networks.len()),
    }
}

fn goodput(measurement: &Measurement, half: &str, networks: &[Network]) -> Check {
    let ratios: Vec<f64> = networks
        .iter()
        .filter_map(|network| ratio(measurement, network, "goodput_mbit_s"))
        .collect();
    let mean = geometric_mean(&ratios);
    let less = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    Check {
        name: format!("{half}: goodput is not below BBR's"),
        passed: mean >= 1.0,
        detail: format!(
            "{:.1} % of it in the geometric mean; less in {less} of {} networks",
            100.0 * mean,
            ratios.len()
        ),
    }
}

fn round_trips(measurement: &Measurement, half: &str, networks: &[Network], bound: &Bound) -> Option<Check> {
    let concerns = |network: &&Network| (bound.buffer.0..bound.buffer.1).contains(&network.buffer);
    let of = |network: &Network| ratio(measurement, network, bound.metric);
    let ratios: Vec<f64> = networks.iter().filter(concerns).filter_map(of).collect();
    let met = ratios.iter().filter(|ratio| **ratio <= bound.most).count();
    let mean = geometric_mean(&ratios);
    (!ratios.is_empty()).then(|| Check {
        name: format!("{half}: {}: at most {:.0} % of BBR's", bound.what, 100.0 * bound.most),
        passed: mean <= bound.most,
        detail: format!(
            "{:.0} % of it in the geometric mean; met in {met} of {} networks",
            100.0 * mean,
            ratios.len()
        ),
    })
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}
