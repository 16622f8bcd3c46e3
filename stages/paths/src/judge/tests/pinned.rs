//! What a user would lose: a download to a spike of delay, or a call to an uplink that is dead.

use super::*;

/// When each uplink's connections were let go, within five minutes.
fn let_go(paths: Vec<Path>) -> Vec<(Duration, usize)> {
    let_go_by(Settings::default(), paths)
}

fn let_go_by(settings: Settings, paths: Vec<Path>) -> Vec<(Duration, usize)> {
    let mut simulation = Simulation::new(settings, paths);
    simulation.judge = simulation.judge.pinned(true);
    let mut found = Vec::new();
    while simulation.now < s(300) {
        let until = simulation.now + ms(5);
        simulation.run_until(until);
        for index in simulation.judge.lost(until) {
            simulation.judge.has_let_go(index);
            found.push((until, index));
        }
    }
    found
}

#[test]
fn connections_survive_spikes() {
    let spikes = spiky(steady(ms(20), ms(1), 1), ms(400), 10, 7);
    assert_eq!(let_go(vec![spikes, steady(ms(30), ms(1), 2)]), []);
    let spikes = spiky(steady(ms(20), ms(1), 1), ms(400), 10, 7);
    let settings = Settings {
        rate: Some(1),
        ..Settings::default()
    };
    assert_eq!(let_go_by(settings, vec![spikes, steady(ms(30), ms(1), 2)]), []);
}

/// An agent that begins knows nothing of an uplink by satellite, on which an earlier one has left connections.
#[test]
fn connections_survive_an_agent_that_has_just_begun() {
    assert_eq!(let_go(vec![steady(ms(20), ms(1), 1), steady(ms(800), ms(20), 2)]), []);
}

#[test]
fn connections_are_let_go_when_one_of_two_dead_uplinks_comes_back() {
    let paths = vec![
        dead(steady(ms(20), ms(1), 1), s(60), s(300)),
        dead(steady(ms(30), ms(1), 2), s(60), s(80)),
    ];
    let found = let_go(paths);
    let [(when, 0)] = found[..] else { panic!("{found:?}") };
    assert!((s(80)..s(83)).contains(&when), "{when:?}");
}

#[test]
fn connections_of_a_dead_uplink_are_let_go_once_a_death() {
    let first = dead(steady(ms(20), ms(1), 1), s(60), s(100));
    let path = dead(first, s(200), s(300));
    let found = let_go(vec![path, steady(ms(30), ms(1), 2)]);
    let [(one, 0), (other, 0)] = found[..] else {
        panic!("{found:?}")
    };
    for (when, died) in [(one, s(60)), (other, s(200))] {
        assert!((died + ms(900)..died + ms(1300)).contains(&when), "{when:?}");
    }
}

/// Who is asked may be down, while all else is up.
#[test]
fn connections_stay_where_no_uplink_is_better() {
    let path = |seed| dead(steady(ms(20), ms(1), seed), s(60), s(300));
    assert_eq!(let_go(vec![path(1), path(2)]), []);
}

/// Who is asked has been away for a while, and answers again by one uplink a moment before the other: downloads and calls on that
/// one would be cut, though nothing was ever wrong with it.
#[test]
fn connections_stay_on_all_uplinks_when_targets_answer_again() {
    for (one, other) in [(20, 60), (60, 20), (20, 400)] {
        let path = |delay, seed| dead(steady(ms(delay), ms(1), seed), s(60), s(90));
        assert_eq!(let_go(vec![path(one, 1), path(other, 2)]), [], "{one} and {other} ms");
    }
}

/// A download can wait for its uplink to come back, but not for ever, and not where no other uplink is better.
#[test]
fn an_uplink_is_given_up_after_a_while_and_until_it_comes_back() {
    let given_up = |reset_after: Duration, others_end: Duration| {
        // Asked often, what comes back is known at once.
        let settings = Settings {
            reset_after,
            rate: Some(20),
            ..Settings::default()
        };
        let paths = vec![
            dead(steady(ms(20), ms(1), 1), s(60), s(120)),
            dead(steady(ms(30), ms(1), 2), s(60), others_end),
        ];
        let mut simulation = Simulation::new(settings, paths);
        simulation.judge = simulation.judge.pinned(true);
        let mut found = Vec::new();
        while simulation.now < s(200) {
            let until = simulation.now + ms(100);
            simulation.run_until(until);
            simulation.judge.lost(until);
            found.extend(
                simulation
                    .judge
                    .given_up(until)
                    .map(|uplink| (until, uplink.name.clone())),
            );
        }
        let (first, last) = (found.first()?.clone(), found.last()?.clone());
        assert!(found.iter().all(|(_, name)| name == "wan0"));
        Some((first.0.as_secs(), last.0.as_secs()))
    };
    assert_eq!(given_up(s(30), s(60)), Some((91, 120)));
    assert_eq!(
        given_up(s(30), s(80)),
        Some((111, 120)),
        "from the moment that there is another one"
    );
    assert_eq!(given_up(s(30), s(120)), None, "nobody answers by any");
    assert_eq!(given_up(s(0), s(60)), None);
}

#[test]
fn without_pins_nothing_has_to_be_let_go() {
    let mut simulation = Simulation::new(
        Settings::default(),
        vec![dead(steady(ms(20), ms(1), 1), s(20), s(60)), steady(ms(30), ms(1), 2)],
    );
    simulation.run_until(s(40));
    assert_eq!(simulation.judge.lost(s(40)), Vec::<usize>::new());
}
