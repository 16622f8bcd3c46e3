//! The stage's figures, for `status` and the metrics.

use std::time::Duration;

use anyhow::Result;

use super::config::{LIMIT_MOST, Service, TARGET_WHOLE, percent};
use super::haproxy::report::Report;
use super::haproxy::steering::monotonic;
use super::known::Known;
use super::module::{Counts, Module, Rule, State, Target};
use super::times::quantile;
use tarn_base::described;
use tarn_base::figures::{FigureTable, Figures, Value, rounded};
use tarn_frame::state::StateDirectory;

mod proxied;

described! {
    /// What holds for all services.
    struct Scheduling {
        scheduling: Label "" "Whether requests are scheduled: yes, stopped (by `tarn classes stop`), or gone (ended by someone else, or HAProxy cannot be steered)",
        trouble: Note "" "Why requests are not scheduled, though they should be, and what to do",
        rule: Label "" "How the next class is chosen: ratio or published",
        window: Gauge "s" "Time over which shares are counted",
        hold: Gauge "us" "How long requests gather before a choice",
        hold_rounds: Gauge "rounds" "How many rounds of the dispatcher requests gather before a choice",
    }
}

described! {
    /// How a service does.
    struct ServiceNow {
        service: Label "" "The service's name",
        ports: Note "" "Its local ports",
        protocol: Note "" "What a request is: auto, http, stream, dns or connection",
        limit: Gauge "requests" "Requests that the service has at most at a time, in force now; none while nothing is limited",
        limit_set: Note "" "The limit as it was set: a number, or auto",
        in_flight: Gauge "requests" "Requests that the service has now",
        places: Gauge "requests" "Requests of those that are not overdue: the limit holds for these",
        overdue: Gauge "us" "Time after which a request in service gives up its place to another",
        service_time: Gauge "us" "Mean time from handing a request on to its answer",
    }
}

described! {
    /// How a class does at a service.
    struct ClassNow {
        service: Label "" "The service's name",
        class: Label "" "The class's name",
        target: Gauge "%" "Share of answers that is to be in time",
        deadline: Gauge "us" "Time from a request's arrival to its answer that is in time",
        share: Gauge "%" "Share of the window's requests answered in time, without those of suspected clients",
        share_total: Gauge "%" "Share of all requests answered in time, since the start or the last reset",
        priority: Gauge "" "10 * requests * target / in time, over what the rule counts, without what nobody could answer: the highest is served first",
        waiting: Gauge "requests" "Requests that wait now, without those set aside",
        aside: Gauge "requests" "Requests that wait for idle times now: set aside, or of suspected clients",
        in_flight: Gauge "requests" "Requests that the service has now",
        response_p50: Gauge "us" "Response time that half of the answers took at most",
        response_p95: Gauge "us" "Response time that 95 % of the answers took at most",
        response_p99: Gauge "us" "Response time that 99 % of the answers took at most",
    }
}

described! {
    /// What became of a class's requests to a service.
    struct Requests {
        service: Label "" "The service's name",
        class: Label "" "The class's name",
        packets: Counter "packets" "Packets of requests",
        requests: Counter "requests" "Requests that arrived",
        connections: Counter "requests" "Of the requests, connections that cannot be looked into: in time if let in early enough",
        in_time: Counter "requests" "Requests answered within the deadline",
        late: Counter "requests" "Requests answered later",
        unanswered: Counter "requests" "Requests handed on and never answered",
        set_aside: Counter "requests" "Requests that could not be in time any more and waited for idle times",
        suspected: Counter "requests" "Requests that waited for idle times because too many of their client's were left unanswered",
        dropped_cap: Counter "packets" "Packets dropped because the class's cap was reached",
        dropped_memory: Counter "packets" "Packets dropped because there was no memory",
        dropped_gone: Counter "packets" "Packets dropped because their route went away as they came",
        dropped_repeated: Counter "packets" "Packets dropped that came again while the first one waited",
        unscheduled: Counter "packets" "Packets that passed unscheduled: of connections signed by TCP-MD5 or TCP-AO",
    }
}

/// What the kernel knows of what is up; `None` when nothing is. The form is the same while nothing is scheduled.
///
/// # Errors
/// The kernel's, or a file that is damaged.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(known) = Known::load(state)? else {
        return Ok(None);
    };
    let mut module = Module::find()?;
    let mut rows = Rows::default();
    let mut all_run = true;
    for (number, service) in known.config.services.iter().enumerate() {
        let state = match &mut module {
            Some(module) => module.service(number).state()?,
            None => None,
        };
        rows.services.push(service_row(service, state.as_ref()));
        if let (Some(module), Some(state)) = (&mut module, &state) {
            rows.add_classes(&known, service, state, module)?;
        }
        all_run &= state.is_some();
    }
    // A report that is damaged is none: the agent writes the next one.
    let report = Report::load(state).ok().flatten();
    let trouble = proxied::add(&mut rows, &known.config, report.as_ref(), monotonic()?);
    Ok(Some(Figures {
        fields: Scheduling::FIELDS,
        values: scheduling(&known, all_run, trouble),
        tables: rows.tables(),
    }))
}

/// The rows of the tables.
#[derive(Default)]
struct Rows {
    services: Vec<Vec<Value>>,
    classes: Vec<Vec<Value>>,
    requests: Vec<Vec<Value>>,
}

impl Rows {
    /// Those of a service's classes; the module is asked about this service.
    fn add_classes(&mut self, known: &Known, service: &Service, state: &State, module: &mut Module) -> Result<()> {
        let targets = state.settings.classes.iter().flatten();
        for (index, (target, counts)) in targets.zip(&state.counts).enumerate() {
            let times = module.times(u32::try_from(index)?)?;
            let (service, class) = (service.name.as_str(), known.name(index));
            self.classes.push(class_row(service, &class, target, counts, &times));
            self.requests.push(request_row(service, &class, counts));
        }
        Ok(())
    }

    fn tables(self) -> Vec<FigureTable> {
        let table = |name, about, fields, rows| FigureTable {
            name,
            about,
            fields,
            rows,
        };
        vec![
            table("services", "How the services do", ServiceNow::FIELDS, self.services),
            table("classes", "How the classes do", ClassNow::FIELDS, self.classes),
            table(
                "requests",
                "What became of each class's requests",
                Requests::FIELDS,
                self.requests,
            ),
        ]
    }
}

/// `trouble`: why HAProxy is not steered.
fn scheduling(known: &Known, all_run: bool, trouble: Option<String>) -> Vec<Value> {
    let gone = "left alone: someone else has ended the scheduling or removed the module; `tarn up` begins it again";
    let gone = (!all_run).then(|| gone.to_owned());
    let (word, trouble) = match (known.stopped, gone.or(trouble)) {
        (true, _) => ("stopped", None),
        (false, None) => ("yes", None),
        (false, trouble) => ("gone", trouble),
    };
    let config = &known.config;
    let rule = match config.rule {
        Rule::Ratio => "ratio",
        Rule::Published => "published",
    };
    Scheduling {
        scheduling: Value::from(word),
        trouble: Value::from(trouble),
        rule: Value::from(rule),
        window: Value::from(config.window.as_secs_f64()),
        hold: Value::from(config.hold.as_secs_f64() * 1e6),
        hold_rounds: Value::from(u64::from(config.hold_rounds)),
    }
    .values()
}

fn service_row(service: &Service, state: Option<&State>) -> Vec<Value> {
    let ports: Vec<String> = service.ports.iter().map(ToString::to_string).collect();
    let limit_set = match service.limit {
        0 => "auto".to_owned(),
        limit => limit.to_string(),
    };
    let limit = state.map(|state| state.limit);
    let number = |of: fn(&State) -> u32| Value::from(state.map(|state| u64::from(of(state))));
    let microseconds =
        |of: fn(&State) -> Duration| Value::from(state.map(|state| rounded(of(state).as_secs_f64() * 1e6, 1)));
    ServiceNow {
        service: Value::from(service.name.as_str()),
        ports: Value::from(ports.join(", ")),
        protocol: serde_json::to_value(service.protocol).unwrap_or_default(),
        limit: Value::from(
            limit
                .filter(|limit| service.limit > 0 || *limit < LIMIT_MOST)
                .map(u64::from),
        ),
        limit_set: Value::from(limit_set),
        in_flight: number(|state| state.in_flight),
        places: number(|state| state.places),
        overdue: microseconds(|state| state.overdue),
        service_time: microseconds(|state| state.service),
    }
    .values()
}

fn class_row(service: &str, class: &str, target: &Target, counts: &Counts, times: &[u32]) -> Vec<Value> {
    let response = |share| Value::from(quantile(times, share));
    ClassNow {
        service: Value::from(service),
        class: Value::from(class),
        target: Value::from(percent(target.target)),
        deadline: Value::from(target.deadline as f64 / 1e3),
        share: Value::from(share(counts.window_in_time, counts.window_requests)),
        share_total: Value::from(share(counts.in_time, counts.requests)),
        priority: Value::from(priority(counts.rule_requests, counts.rule_in_time, target.target)),
        waiting: Value::from(u64::from(counts.waiting)),
        aside: Value::from(u64::from(counts.aside)),
        in_flight: Value::from(u64::from(counts.in_flight)),
        response_p50: response(0.5),
        response_p95: response(0.95),
        response_p99: response(0.99),
    }
    .values()
}

fn request_row(service: &str, class: &str, counts: &Counts) -> Vec<Value> {
    Requests {
        service: Value::from(service),
        class: Value::from(class),
        packets: Value::from(counts.packets),
        requests: Value::from(counts.requests),
        connections: Value::from(counts.connections),
        in_time: Value::from(counts.in_time),
        late: Value::from(counts.late),
        unanswered: Value::from(counts.unanswered),
        set_aside: Value::from(counts.set_aside),
        suspected: Value::from(counts.suspected),
        dropped_cap: Value::from(counts.dropped_cap),
        dropped_memory: Value::from(counts.dropped_memory),
        dropped_gone: Value::from(counts.dropped_gone),
        dropped_repeated: Value::from(counts.dropped_repeated),
        unscheduled: Value::from(counts.unscheduled),
    }
    .values()
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
    use super::super::config::tests::{BY_NETWORK, config};
    use super::super::module::Settings;
    use super::*;

    const COUNTS: Counts = Counts {
        requests: 0,
        in_time: 0,
        late: 0,
        unanswered: 0,
        set_aside: 0,
        suspected: 0,
        connections: 0,
        packets: 0,
        dropped_cap: 0,
        dropped_memory: 0,
        dropped_gone: 0,
        dropped_repeated: 0,
        unscheduled: 0,
        window_requests: 0,
        window_in_time: 0,
        rule_requests: 0,
        rule_in_time: 0,
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
        let known = Known {
            config: config(BY_NETWORK),
            stopped: true,
            names_clients: false,
            resets: 0,
        };
        let state = State {
            settings: Settings::default(),
            in_flight: 1,
            places: 1,
            limit: LIMIT_MOST,
            overdue: Duration::from_millis(3),
            service: Duration::from_micros(1500),
            counts: Vec::new(),
        };
        let stopped = scheduling(&known, false, None);
        assert_eq!(stopped.len(), Scheduling::FIELDS.len());
        assert_eq!((&stopped[0], &stopped[1]), (&Value::from("stopped"), &Value::Null));
        let service = &known.config.services[0];
        let row = service_row(service, Some(&state));
        assert_eq!(row.len(), ServiceNow::FIELDS.len());
        assert_eq!(
            (&row[1], &row[3], &row[8]),
            (&Value::from("tcp/80"), &Value::Null, &Value::from(1500.0))
        );
        assert_eq!(service_row(service, None).len(), ServiceNow::FIELDS.len());
        let target = Target {
            deadline: 4_000_000,
            target: 9000,
            cap: 1,
        };
        let row = class_row("tcp/80", "gold", &target, &COUNTS, &[0, 1]);
        assert_eq!(row.len(), ClassNow::FIELDS.len());
        assert_eq!((&row[3], &row[10]), (&Value::from(4000.0), &Value::from(1.5)));
        assert_eq!(request_row("tcp/80", "gold", &COUNTS).len(), Requests::FIELDS.len());
    }
}
