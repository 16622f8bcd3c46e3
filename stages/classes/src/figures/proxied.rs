//! The rows of services behind HAProxy: what it counts, and what the agent makes of it.

use std::time::Duration;

use super::{ClassNow, Requests, Rows, ServiceNow, priority, share};
use crate::config::{Config, Proxied, percent};
use crate::haproxy::report::Report;
use crate::haproxy::rule::Shares;
use crate::haproxy::runtime::Counted;
use tarn_base::figures::Value;

/// A report that is older comes from an agent that has ended, or hangs.
const OLD: Duration = Duration::from_secs(10);

/// Adds the rows, and returns why one of the services is not steered. `report` is the agent's last one, `now` on the same clock.
pub(super) fn add(rows: &mut Rows, config: &Config, report: Option<&Report>, now: Duration) -> Option<String> {
    let mut trouble = None;
    let report = report.filter(|report| now < report.at + OLD);
    for service in &config.proxied {
        rows.services.push(service_row(service));
        let found = report.and_then(|report| report.services.get(&service.name));
        let nobody = "the agent does not steer HAProxy, which serves by the order that it was given last: `tarn up`";
        let why = match found {
            None => Some(format!("{}: {nobody}", service.name)),
            Some((_, trouble)) => trouble.clone(),
        };
        trouble = trouble.or(why);
        let shares = found.map(|(shares, _)| shares);
        rows.add_proxied(config, service, shares);
    }
    trouble
}

impl Rows {
    fn add_proxied(&mut self, config: &Config, service: &Proxied, shares: Option<&Shares>) {
        let sums = shares.map(Shares::sums).unwrap_or_default();
        let totals = shares.map(Shares::totals).unwrap_or_default();
        for (index, class) in config.classes.iter().enumerate() {
            let (sum, total) = (sums.get(index).copied(), totals.get(index).copied());
            self.classes.push(
                ClassNow {
                    service: Value::from(service.name.as_str()),
                    class: Value::from(class.name.as_str()),
                    target: Value::from(percent(class.target)),
                    deadline: Value::from(service.deadlines[index].as_secs_f64() * 1e6),
                    share: Value::from(sum.and_then(|sum| share(sum.in_time, sum.requests))),
                    share_total: Value::from(total.and_then(|total| share(total.in_time, total.requests))),
                    priority: Value::from(sum.and_then(|sum| priority(sum.requests, sum.in_time, class.target))),
                    waiting: Value::Null,
                    aside: Value::Null,
                    in_flight: Value::Null,
                    response_p50: Value::Null,
                    response_p95: Value::Null,
                    response_p99: Value::Null,
                }
                .values(),
            );
            self.requests.push(request_row(&service.name, &class.name, total));
        }
    }
}

fn service_row(service: &Proxied) -> Vec<Value> {
    ServiceNow {
        service: Value::from(service.name.as_str()),
        ports: Value::from("HAProxy's"),
        protocol: Value::from("http"),
        limit: Value::Null,
        limit_set: Value::from("maxconn"),
        in_flight: Value::Null,
        places: Value::Null,
        overdue: Value::Null,
        service_time: Value::Null,
    }
    .values()
}

fn request_row(service: &str, class: &str, counted: Option<Counted>) -> Vec<Value> {
    let number = |of: fn(Counted) -> u64| Value::from(counted.map(of));
    Requests {
        service: Value::from(service),
        class: Value::from(class),
        packets: Value::Null,
        requests: number(|counted| counted.requests),
        connections: Value::Null,
        in_time: number(|counted| counted.in_time),
        late: number(|counted| counted.late),
        unanswered: Value::Null,
        set_aside: Value::Null,
        suspected: Value::Null,
        dropped_cap: Value::Null,
        dropped_memory: Value::Null,
        dropped_gone: Value::Null,
        dropped_repeated: Value::Null,
        unscheduled: Value::Null,
    }
    .values()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::tests::config;

    const SHOP: &str = "\
[classes]
deadline = \"40ms\"

[[classes.service]]
name = \"shop\"
through = \"haproxy\"

[[classes.class]]
name = \"gold\"
target = 90

[[classes.class]]
name = \"rest\"
target = 50
";

    fn report(at: u64, trouble: Option<&str>) -> Report {
        let second = Duration::from_secs(1);
        let mut shares = Shares::new(vec![9000, 5000], second * 10, second);
        let counted = |requests, in_time| Counted {
            requests,
            in_time,
            late: 0,
        };
        shares.count(&[counted(1000, 0), counted(0, 0)], second);
        shares.count(&[counted(1010, 9), counted(0, 0)], second);
        let services = [("shop".to_owned(), (shares, trouble.map(str::to_owned)))];
        Report {
            at: Duration::from_secs(at),
            services: HashMap::from(services),
        }
    }

    /// What the agent wrote before it was killed says nothing about now.
    #[test]
    fn shares_are_those_of_a_report_that_is_young() {
        let config = config(SHOP);
        let mut rows = Rows::default();
        let found = add(&mut rows, &config, Some(&report(5, None)), Duration::from_secs(6));
        assert_eq!(found, None);
        assert_eq!(
            (&rows.classes[0][4], &rows.classes[0][5]),
            (&Value::from(90.0), &Value::from(0.89))
        );
        assert_eq!(
            (&rows.classes[1][4], &rows.requests[0][3]),
            (&Value::Null, &Value::from(1010))
        );
        let found = add(&mut rows, &config, Some(&report(5, None)), Duration::from_secs(16));
        assert!(found.is_some_and(|text| text.contains("does not steer")));
        assert_eq!(rows.classes[2][4], Value::Null);
    }

    /// Whoever looks for why gold is slow finds it here.
    #[test]
    fn what_keeps_haproxy_from_being_steered_is_shown() {
        let found = add(
            &mut Rows::default(),
            &config(SHOP),
            Some(&report(5, Some("shop: away"))),
            Duration::from_secs(6),
        );
        assert_eq!(found.as_deref(), Some("shop: away"));
    }
}
