//! The stage's figures, for `status` and the metrics.

use anyhow::Result;

use super::config::{TARGET_WHOLE, percent};
use super::known::Known;
use super::module::{Counts, Module, Rule, State, Target};
use super::times::quantile;
use tarn_base::figures::{Field, FigureTable, Figures, Kind, Value, field, rounded};
use tarn_frame::state::StateDirectory;

static FIELDS: &[Field] = &[
    field(
        "scheduling",
        "",
        Kind::Label,
        "Whether requests are scheduled: yes, or stopped by `tarn classes stop`",
    ),
    field(
        "rule",
        "",
        Kind::Label,
        "How the next class is chosen: ratio or published",
    ),
    field(
        "limit",
        "requests",
        Kind::Gauge,
        "Requests that the service has at most at a time, in force now",
    ),
    field(
        "limit_set",
        "",
        Kind::Label,
        "The limit as it was set: a number, or auto",
    ),
    field(
        "in_flight",
        "requests",
        Kind::Gauge,
        "Requests that the service has now",
    ),
    field(
        "service_time",
        "us",
        Kind::Gauge,
        "Mean time from handing a request on to its answer",
    ),
    field("window", "s", Kind::Gauge, "Time over which shares are counted"),
    field("hold", "us", Kind::Gauge, "How long requests gather before a choice"),
    field(
        "hold_rounds",
        "rounds",
        Kind::Gauge,
        "How many rounds of the dispatcher requests gather before a choice",
    ),
];

static CLASS_FIELDS: &[Field] = &[
    field("class", "", Kind::Label, "The class's name"),
    field("target", "%", Kind::Gauge, "Share of answers that is to be in time"),
    field(
        "deadline",
        "us",
        Kind::Gauge,
        "Time from a request's arrival to its answer that is in time",
    ),
    field(
        "share",
        "%",
        Kind::Gauge,
        "Share of the window's requests answered in time",
    ),
    field(
        "share_total",
        "%",
        Kind::Gauge,
        "Share of all requests answered in time, since the start or the last reset",
    ),
    field(
        "priority",
        "",
        Kind::Gauge,
        "10 * requests * target / in time, over what the rule counts: the highest is served first",
    ),
    field(
        "waiting",
        "requests",
        Kind::Gauge,
        "Requests that wait now, without those set aside",
    ),
    field("aside", "requests", Kind::Gauge, "Requests set aside now"),
    field(
        "in_flight",
        "requests",
        Kind::Gauge,
        "Requests that the service has now",
    ),
    field(
        "response_p50",
        "us",
        Kind::Gauge,
        "Response time that half of the answers took at most",
    ),
    field(
        "response_p95",
        "us",
        Kind::Gauge,
        "Response time that 95 % of the answers took at most",
    ),
    field(
        "response_p99",
        "us",
        Kind::Gauge,
        "Response time that 99 % of the answers took at most",
    ),
];

static REQUEST_FIELDS: &[Field] = &[
    field("class", "", Kind::Label, "The class's name"),
    field("packets", "packets", Kind::Counter, "Packets of requests"),
    field("requests", "requests", Kind::Counter, "Requests that arrived"),
    field(
        "in_time",
        "requests",
        Kind::Counter,
        "Requests answered within the deadline",
    ),
    field("late", "requests", Kind::Counter, "Requests answered later"),
    field(
        "unanswered",
        "requests",
        Kind::Counter,
        "Requests handed on and never answered",
    ),
    field(
        "set_aside",
        "requests",
        Kind::Counter,
        "Requests that could not be in time any more and waited for idle times",
    ),
    field(
        "dropped_cap",
        "packets",
        Kind::Counter,
        "Packets dropped because the class's cap was reached",
    ),
    field(
        "dropped_memory",
        "packets",
        Kind::Counter,
        "Packets dropped because there was no memory",
    ),
    field(
        "dropped_gone",
        "packets",
        Kind::Counter,
        "Packets dropped with their network namespace",
    ),
    field(
        "dropped_repeated",
        "packets",
        Kind::Counter,
        "Packets dropped that came again while the first one waited",
    ),
];

/// What the kernel knows of what is up; `None` when nothing is.
///
/// # Errors
/// The kernel's, or a file that is damaged.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(known) = Known::load(state)? else {
        return Ok(None);
    };
    let Some(mut module) = Module::find()? else {
        return Ok(Some(stopped()));
    };
    let Some(running) = module.state()? else {
        return Ok(Some(stopped()));
    };
    let targets = running.settings.classes.clone().unwrap_or_default();
    let (mut classes, mut requests) = (Vec::new(), Vec::new());
    for (index, (target, counts)) in targets.iter().zip(&running.counts).enumerate() {
        let times = module.times(u32::try_from(index)?)?;
        classes.push(class_row(known.name(index), target, counts, &running, &times));
        requests.push(request_row(known.name(index), counts));
    }
    Ok(Some(Figures {
        fields: FIELDS,
        values: values(&running),
        tables: vec![
            FigureTable {
                name: "classes",
                about: "How the classes do",
                fields: CLASS_FIELDS,
                rows: classes,
            },
            FigureTable {
                name: "requests",
                about: "What became of each class's requests",
                fields: REQUEST_FIELDS,
                rows: requests,
            },
        ],
    }))
}

fn stopped() -> Figures {
    let mut values = vec![Value::None; FIELDS.len()];
    values[0] = Value::from("stopped");
    Figures {
        fields: FIELDS,
        values,
        tables: Vec::new(),
    }
}

fn values(running: &State) -> Vec<Value> {
    let settings = &running.settings;
    let rule = match settings.rule.unwrap_or_default() {
        Rule::Ratio => "ratio",
        Rule::Published => "published",
    };
    let limit = match settings.limit.unwrap_or_default() {
        0 => "auto".to_owned(),
        limit => limit.to_string(),
    };
    vec![
        Value::from("yes"),
        Value::from(rule),
        Value::from(u64::from(running.limit)),
        Value::from(limit),
        Value::from(u64::from(running.in_flight)),
        Value::from(rounded(running.service.as_secs_f64() * 1e6, 1)),
        Value::from(settings.window.map(|window| window.as_secs_f64())),
        Value::from(settings.hold.map(|hold| hold.as_secs_f64() * 1e6)),
        Value::from(settings.hold_rounds.map(u64::from)),
    ]
}

fn class_row(name: String, target: &Target, counts: &Counts, running: &State, times: &[u32]) -> Vec<Value> {
    let (requests, in_time) = match running.settings.rule.unwrap_or_default() {
        Rule::Ratio => (counts.window_requests, counts.window_in_time),
        Rule::Published => (counts.requests, counts.in_time),
    };
    let response = |share| Value::from(quantile(times, share));
    vec![
        Value::from(name),
        Value::from(percent(target.target)),
        Value::from(target.deadline as f64 / 1e3),
        Value::from(share(counts.window_in_time, counts.window_requests)),
        Value::from(share(counts.in_time, counts.requests)),
        Value::from(priority(requests, in_time, target.target)),
        Value::from(u64::from(counts.waiting)),
        Value::from(u64::from(counts.aside)),
        Value::from(u64::from(counts.in_flight)),
        response(0.5),
        response(0.95),
        response(0.99),
    ]
}

fn request_row(name: String, counts: &Counts) -> Vec<Value> {
    vec![
        Value::from(name),
        Value::from(counts.packets),
        Value::from(counts.requests),
        Value::from(counts.in_time),
        Value::from(counts.late),
        Value::from(counts.unanswered),
        Value::from(counts.set_aside),
        Value::from(counts.dropped_cap),
        Value::from(counts.dropped_memory),
        Value::from(counts.dropped_gone),
        Value::from(counts.dropped_repeated),
    ]
}

/// In percent, to two digits, downwards: a target that is missed by little is not shown as met.
fn share(part: u64, whole: u64) -> Option<f64> {
    let hundredths = u128::from(part) * u128::from(TARGET_WHOLE) / u128::from(whole.max(1));
    (whole > 0).then_some(hundredths as f64 / 100.0)
}

/// As the thesis shows it: 10 * N * P / S, whole, with P in percent. Higher is served first; without an answer in time
/// there is no number, and the class goes before all.
pub fn priority(requests: u64, in_time: u64, target: u32) -> Option<u64> {
    let scaled = u128::from(requests) * u128::from(target) / 10;
    let priority = scaled.checked_div(u128::from(in_time))?;
    Some(u64::try_from(priority).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Counts = Counts {
        requests: 0,
        in_time: 0,
        late: 0,
        unanswered: 0,
        set_aside: 0,
        packets: 0,
        dropped_cap: 0,
        dropped_memory: 0,
        dropped_gone: 0,
        dropped_repeated: 0,
        window_requests: 0,
        window_in_time: 0,
        waiting: 0,
        aside: 0,
        in_flight: 0,
        waiting_packets: 0,
    };

    /// The thesis's own table: packets, those in time, targets, and the priorities that it prints.
    #[test]
    fn priorities_are_those_of_the_published_table() {
        let table = [
            (60_000, 40_756, 90, 1324),
            (60_000, 36_512, 80, 1314),
            (57_551, 30_658, 70, 1314),
            (57_350, 26_172, 60, 1314),
            (48_139, 18_304, 50, 1315),
        ];
        for (requests, in_time, target, printed) in table {
            let found = priority(requests, in_time, target * 100).unwrap();
            assert!(found.abs_diff(printed) <= 1, "{found}, {printed} in print");
        }
        assert_eq!(priority(1, 0, 9000), None);
        assert_eq!(priority(u64::MAX, 1, 10_000), Some(u64::MAX));
    }

    #[test]
    fn a_share_is_never_rounded_up() {
        assert_eq!(share(89_999, 100_000), Some(89.99));
        assert_eq!(share(0, 0), None);
        assert_eq!(share(7, 7), Some(100.0));
    }

    #[test]
    fn every_figure_has_its_description() {
        let state = State {
            settings: super::super::module::Settings::default(),
            in_flight: 1,
            limit: 8,
            service: std::time::Duration::from_micros(1500),
            counts: Vec::new(),
        };
        assert_eq!(values(&state).len(), FIELDS.len());
        assert_eq!(stopped().values.len(), FIELDS.len());
        let target = Target {
            deadline: 4_000_000,
            target: 9000,
            cap: 1,
        };
        let row = class_row("gold".to_owned(), &target, &COUNTS, &state, &[0, 1]);
        assert_eq!(row.len(), CLASS_FIELDS.len());
        assert_eq!(
            (row[2].clone(), row[9].clone()),
            (Value::Real(4000.0), Value::Real(1.5))
        );
        assert_eq!(request_row("gold".to_owned(), &COUNTS).len(), REQUEST_FIELDS.len());
    }
}
