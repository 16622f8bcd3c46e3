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
use tarn_base::figures::{Combine, FigureTable, Figures, Headline, Plot, Value, rounded};
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

/// The class that is furthest behind its target, or the least above it.
const WORST: Headline = Headline {
    table: "classes",
    field: "share",
    less: Some("target"),
    what: "points margin",
    combine: Combine::Least,
};

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
        let counted = match &mut module {
            Some(module) => Counted::read(module.service(number))?,
            None => None,
        };
        rows.add_service(&known, service, counted.as_ref());
        all_run &= counted.is_some();
    }
    // A report that is damaged is none: the agent writes the next one.
    let report = Report::load(state).ok().flatten();
    let trouble = proxied::add(&mut rows, &known.config, report.as_ref(), monotonic()?);
    Ok(Some(Figures {
        fields: Scheduling::FIELDS,
        values: scheduling(&known, all_run, trouble),
        tables: rows.tables(),
        headline: Some(WORST),
        alarms: &[],
    }))
}

/// The rows of the tables.
#[derive(Default)]
struct Rows {
    services: Vec<Vec<Value>>,
    classes: Vec<Vec<Value>>,
    requests: Vec<Vec<Value>>,
}

/// A service that runs, as the module counts it.
struct Counted {
    state: State,
    /// Response times, of each class.
    times: Vec<Vec<u32>>,
}

impl Counted {
    /// The state of the service that was selected last; `None` when it does not run.
    fn read(module: &mut Module) -> Result<Option<Self>> {
        let Some(state) = module.state()? else {
            return Ok(None);
        };
        let classes = 0..u32::try_from(state.counts.len())?;
        let times = classes.map(|class| module.times(class)).collect::<Result<_>>()?;
        Ok(Some(Self { state, times }))
    }
}

impl Rows {
    /// Those of a service and its classes: the same rows while it does not run, in which what is counted is empty.
    fn add_service(&mut self, known: &Known, service: &Service, counted: Option<&Counted>) {
        let state = counted.map(|counted| &counted.state);
        self.services.push(service_row(service, state));
        let settings = match state {
            Some(state) => state.settings.clone(),
            None => known.config.settings(service),
        };
        for (index, target) in settings.classes.iter().flatten().enumerate() {
            let counts = state.and_then(|state| state.counts.get(index));
            let times = counted.and_then(|counted| counted.times.get(index));
            let (service, class) = (service.name.as_str(), known.name(index));
            self.classes.push(class_row(service, &class, target, counts, times));
            self.requests.push(request_row(service, &class, counts));
        }
    }

    fn tables(self) -> Vec<FigureTable> {
        let table = |name, about, key, plot, fields, rows| FigureTable {
            name,
            about,
            key,
            plot,
            fields,
            rows,
        };
        let did = "What became of each class's requests";
        let asked = Plot::of("requests");
        let share = Plot {
            field: "share",
            target: Some("target"),
        };
        vec![
            table(
                "services",
                "How the services do",
                1,
                None,
                ServiceNow::FIELDS,
                self.services,
            ),
            table(
                "classes",
                "How the classes do",
                2,
                Some(share),
                ClassNow::FIELDS,
                self.classes,
            ),
            table("requests", did, 2, asked, Requests::FIELDS, self.requests),
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

fn class_row(
    service: &str,
    class: &str,
    target: &Target,
    counts: Option<&Counts>,
    times: Option<&Vec<u32>>,
) -> Vec<Value> {
    let response = |share| Value::from(times.and_then(|times| quantile(times, share)));
    let number = |of: fn(&Counts) -> u32| Value::from(counts.map(of));
    let priority = |counts: &Counts| priority(counts.rule_requests, counts.rule_in_time, target.target);
    ClassNow {
        service: Value::from(service),
        class: Value::from(class),
        target: Value::from(percent(target.target)),
        deadline: Value::from(target.deadline as f64 / 1e3),
        share: Value::from(counts.and_then(|counts| share(counts.window_in_time, counts.window_requests))),
        share_total: Value::from(counts.and_then(|counts| share(counts.in_time, counts.requests))),
        priority: Value::from(counts.and_then(priority)),
        waiting: number(|counts| counts.waiting),
        aside: number(|counts| counts.aside),
        in_flight: number(|counts| counts.in_flight),
        response_p50: response(0.5),
        response_p95: response(0.95),
        response_p99: response(0.99),
    }
    .values()
}

fn request_row(service: &str, class: &str, counts: Option<&Counts>) -> Vec<Value> {
    let number = |of: fn(&Counts) -> u64| Value::from(counts.map(of));
    Requests {
        service: Value::from(service),
        class: Value::from(class),
        packets: number(|counts| counts.packets),
        requests: number(|counts| counts.requests),
        connections: number(|counts| counts.connections),
        in_time: number(|counts| counts.in_time),
        late: number(|counts| counts.late),
        unanswered: number(|counts| counts.unanswered),
        set_aside: number(|counts| counts.set_aside),
        suspected: number(|counts| counts.suspected),
        dropped_cap: number(|counts| counts.dropped_cap),
        dropped_memory: number(|counts| counts.dropped_memory),
        dropped_gone: number(|counts| counts.dropped_gone),
        dropped_repeated: number(|counts| counts.dropped_repeated),
        unscheduled: number(|counts| counts.unscheduled),
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
mod tests;
