use super::*;
use crate::config::tests::{BY_NETWORK, config};
use crate::module::Settings;
use tarn_base::figures::testing::assert_whole;

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
    let row = class_row("tcp/80", "gold", &target, Some(&COUNTS), Some(&vec![0, 1]));
    assert_eq!(row.len(), ClassNow::FIELDS.len());
    assert_eq!((&row[3], &row[10]), (&Value::from(4000.0), &Value::from(1.5)));
    assert_eq!(
        request_row("tcp/80", "gold", Some(&COUNTS)).len(),
        Requests::FIELDS.len()
    );
}

/// A program's loop over the classes would fail, or find none, whenever somebody has stopped the scheduling.
#[test]
fn the_form_is_the_same_while_nothing_is_scheduled() {
    let known = Known {
        config: config(BY_NETWORK),
        stopped: true,
        names_clients: false,
        resets: 0,
    };
    let service = &known.config.services[0];
    let settings = known.config.settings(service);
    let classes = settings.classes.as_ref().unwrap().len();
    // Shares are there where something was asked.
    let answered = Counts {
        requests: 10,
        in_time: 9,
        window_requests: 10,
        window_in_time: 9,
        ..COUNTS
    };
    let counted = Counted {
        state: State {
            settings,
            in_flight: 0,
            places: 0,
            limit: 4,
            overdue: Duration::ZERO,
            service: Duration::ZERO,
            counts: vec![answered; classes],
        },
        times: vec![vec![1]; classes],
    };
    let figures = |counted| {
        let mut rows = Rows::default();
        rows.add_service(&known, service, counted);
        let tables = rows.tables();
        let values = scheduling(&known, counted.is_some(), None);
        let figures = Figures {
            fields: Scheduling::FIELDS,
            values,
            tables,
            headline: Some(WORST),
            alarms: &[],
        };
        assert_whole(&figures);
        figures
    };
    let (running, stopped) = (figures(Some(&counted)).json(), figures(None).json());
    let keys = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&stopped), keys(&running));
    for table in ["services", "classes", "requests"] {
        let all = |json: &Value| json[table].as_array().unwrap().iter().map(keys).collect::<Vec<_>>();
        assert_eq!(all(&stopped), all(&running), "{table}");
        assert!(!all(&stopped).is_empty(), "{table}");
    }
    for figure in ["service", "class", "target", "deadline"] {
        assert_eq!(stopped["classes"][1][figure], running["classes"][1][figure]);
    }
    assert_eq!(
        (&running["requests"][0]["late"], &running["classes"][0]["waiting"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        (&stopped["requests"][0]["late"], &stopped["classes"][0]["waiting"]),
        (&Value::Null, &Value::Null)
    );
}
