//! The rule and the words, without HAProxy.

use std::time::Duration;

use super::rule::Shares;
use super::runtime::Counted;
use super::snippet::{entries, text};
use crate::config::Proxied;

fn counted(requests: u64, in_time: u64) -> Counted {
    Counted {
        requests,
        in_time,
        late: 0,
    }
}

const DEADLINES: [Duration; 3] = [Duration::from_millis(40); 3];
const WINDOW: Duration = Duration::from_secs(16);

fn second(second: u64) -> Duration {
    Duration::from_secs(second)
}

/// Shares of classes with these targets, of which HAProxy has counted nothing yet.
fn shares(targets: &[u32]) -> Shares {
    let mut shares = Shares::new(targets.to_vec(), WINDOW, second(0));
    shares.count(&vec![counted(0, 0); targets.len()], second(0));
    shares
}

/// Gold would be served last, and its customers would leave.
#[test]
fn who_is_furthest_behind_its_target_is_first() {
    let mut shares = shares(&[9000, 5000, 1000]);
    shares.count(&[counted(100, 85), counted(100, 50), counted(100, 9)], second(0));
    // 0.94, 1 and 0.9 of their targets.
    assert_eq!(shares.places(&DEADLINES, second(0)), [1, 2, 0]);
}

/// Before anything is known the better class comes first, and so does one that nobody was answered of.
#[test]
fn the_better_class_is_first_where_nothing_else_decides() {
    let mut shares = shares(&[9000, 5000, 1000]);
    assert_eq!(shares.places(&DEADLINES, second(0)), [0, 1, 2]);
    shares.count(&[counted(10, 9), counted(0, 0), counted(10, 0)], second(0));
    assert_eq!(shares.places(&DEADLINES, second(0)), [2, 0, 1]);
}

/// What happened before the window says nothing about how the classes do now.
#[test]
fn the_window_forgets_what_is_old() {
    let mut shares = shares(&[5000, 5000]);
    shares.count(&[counted(100, 0), counted(100, 100)], second(0));
    assert_eq!(shares.places(&DEADLINES, second(0)), [0, 1]);
    for now in 1..=14 {
        shares.count(&[counted(100, 0), counted(100, 100)], second(now));
    }
    shares.count(&[counted(110, 10), counted(110, 100)], second(15));
    assert_eq!(shares.sums(), [counted(110, 10), counted(110, 100)]);
    shares.count(&[counted(110, 10), counted(110, 100)], second(16));
    assert_eq!(shares.sums(), [counted(10, 10), counted(10, 0)]);
    assert_eq!(shares.places(&DEADLINES, second(16)), [1, 0]);
    shares.count(&[counted(110, 10), counted(110, 100)], second(1000));
    assert_eq!(shares.sums(), [counted(0, 0); 2]);
}

/// A HAProxy that was started again counts from 0: nothing is lost, and nothing counts twice.
#[test]
fn counters_that_begin_anew_are_those_of_another_haproxy() {
    let mut shares = shares(&[5000]);
    for now in [counted(100, 50), counted(110, 55), counted(7, 3)] {
        shares.count(&[now], second(0));
    }
    assert_eq!(shares.sums(), [counted(117, 58)]);
}

/// An agent that was started again goes on; HAProxy may have counted for a year before tarn came.
#[test]
fn shares_go_on_in_the_next_agent_and_do_not_begin_with_a_year() {
    let mut former = shares(&[9000, 5000]);
    former.count(&[counted(100, 90), counted(100, 10)], second(1));
    let kept = serde_json::to_string(&former).unwrap();
    let mut next = Shares::new(vec![8000, 5000], WINDOW, second(3));
    next.resume(serde_json::from_str(&kept).unwrap());
    next.count(&[counted(110, 90), counted(100, 10)], second(3));
    assert_eq!(next.sums(), [counted(110, 90), counted(100, 10)]);
    assert_eq!(next.places(&DEADLINES, second(3)), [1, 0]);
    let mut fresh = Shares::new(vec![8000, 5000, 1], WINDOW, second(3));
    fresh.resume(former);
    fresh.count(&[counted(1_000_000, 0); 3], second(3));
    assert_eq!(fresh.sums(), [counted(0, 0); 3]);
}

/// One client of the last class would hold the service for ever: with requests that take longer than the deadline its class is always
/// furthest behind.
#[test]
fn a_class_that_priority_does_not_help_is_not_always_the_first() {
    let (mut slow, mut silent) = (shares(&[9000, 5000]), shares(&[9000, 5000]));
    let mut first = [0; 2];
    for tenth in 0..3000 {
        let now = Duration::from_millis(100 * tenth);
        let gold = counted(10 * tenth, 8 * tenth);
        let late = Counted {
            requests: 2 * tenth,
            in_time: 0,
            late: 2 * tenth,
        };
        slow.count(&[gold, late], now);
        silent.count(&[gold, counted(2 * tenth, 0)], now);
        first[0] += u64::from(slow.places(&DEADLINES, now)[1] == 0);
        first[1] += u64::from(silent.places(&DEADLINES, now)[1] == 0);
    }
    // A second or less, after one second, four, 16, and at last every 128.
    assert!(first.iter().all(|turns| (10..=75).contains(turns)), "{first:?} of 3000");
}

/// Its customers asked while the service stood still, and would be served last for as long as it did.
#[test]
fn the_first_class_is_not_blamed_for_an_outage() {
    let mut shares = shares(&[9000, 5000]);
    let (mut asked, mut answered, mut last) = (0, 0, 0);
    for tenth in 0..1200_u64 {
        let now = Duration::from_millis(100 * tenth);
        let stands_still = (300..600).contains(&tenth);
        asked += 10;
        answered += if stands_still { 0 } else { 8 };
        shares.count(&[counted(asked, answered), counted(asked, answered)], now);
        shares.places(&DEADLINES, now);
        last += u64::from(shares.is_behind(0, now) && !stands_still);
    }
    assert!(last <= 20, "the last for {last} tenths of a second after it");
}

/// An idle class is before all others; those behind it are judged all the same.
#[test]
fn an_idle_class_hides_nobody() {
    let mut shares = shares(&[9000, 7000, 5000]);
    let mut first = 0;
    for tenth in 0..600 {
        let now = Duration::from_millis(100 * tenth);
        let late = Counted {
            requests: 2 * tenth,
            in_time: 0,
            late: 2 * tenth,
        };
        shares.count(&[counted(0, 0), counted(10 * tenth, 6 * tenth), late], now);
        let places = shares.places(&DEADLINES, now);
        first += u64::from(places[2] < places[1]);
    }
    assert!(first < 120, "before the class that can be helped in {first} of 600");
}

/// What waited long before a class became the first was late for the queue, and not by itself.
#[test]
fn what_has_waited_before_is_not_held_against_a_class() {
    let deadlines = [Duration::from_millis(100), Duration::from_secs(2)];
    let mut shares = shares(&[9000, 5000]);
    for tenth in 0..300_u64 {
        let now = Duration::from_millis(100 * tenth);
        // Gold's backlog: late for two seconds, and in time from then on.
        let late = 10 * tenth.min(20);
        let gold = Counted {
            requests: 10 * tenth,
            in_time: 10 * tenth - late,
            late,
        };
        shares.count(&[gold, counted(10 * tenth, 9 * tenth)], now);
        shares.places(&deadlines, now);
        assert!(!shares.is_behind(0, now), "at {now:?}");
    }
}

/// `tarn classes stop`, and `start` an hour later: nobody was served by any order in between.
#[test]
fn what_is_counted_while_nobody_steers_is_left_out() {
    let mut shares = shares(&[9000, 5000]);
    shares.count(&[counted(10, 9), counted(10, 5)], second(1));
    shares.count(&[counted(10, 9), counted(9000, 5)], second(3601));
    shares.count(&[counted(20, 19), counted(9000, 5)], second(3602));
    assert_eq!(shares.sums(), [counted(10, 10), counted(0, 0)]);
}

/// A class that asks for more than the service can do keeps its place: what it gets is in time.
#[test]
fn a_class_that_is_refused_most_of_its_requests_is_not_punished() {
    let mut shares = shares(&[9000, 5000]);
    for tenth in 0..300 {
        let now = Duration::from_millis(100 * tenth);
        shares.count(&[counted(100 * tenth, 10 * tenth), counted(tenth, tenth)], now);
        assert_eq!(shares.places(&DEADLINES, now), [0, 1]);
    }
}

/// HAProxy takes the lowest priority first, and counts microseconds.
#[test]
fn a_map_has_each_class_s_priority_and_deadline() {
    let found = entries(&[1, 0], &[Duration::from_millis(40), Duration::from_secs(1)]);
    let found: Vec<String> = found.iter().map(|(key, value)| format!("{key} {value}")).collect();
    assert_eq!(found, ["p0 2", "p1 1", "d0 40000", "d1 1000000"]);
}

/// What is printed is copied to a file that others read, too.
#[test]
fn what_haproxy_s_configuration_needs_fits_in_a_terminal() {
    let service = Proxied {
        name: "shop".to_owned(),
        socket: "/run/haproxy/admin.sock".into(),
        maps: "/etc/haproxy/tarn".into(),
        deadlines: vec![Duration::from_millis(40); 3],
    };
    let text = text(&service);
    assert!(text.contains("\n    timeout queue 32ms") && text.contains("map_ip_int(/etc/haproxy/tarn/shop.clients,2)"));
    let comments = text.lines().filter(|line| line.starts_with('#'));
    assert_eq!(comments.filter(|line| line.len() > 100).count(), 0, "{text}");
}
