//! What a user would lose: an uplink that is only full to a verdict of death, and a call to moves to and fro.

use super::*;

/// As `path`, with a queue before it: from `from` to `to` traffic fills it up at this rate, to `most`, and it stays full.
fn filled(path: Path, [from, to]: [Duration; 2], rate: f64, most: Duration) -> Path {
    Box::new(move |now, number| {
        let is_full = now >= from && now < to;
        let queue = now.saturating_sub(from).mul_f64(rate).min(most);
        path(now, number).map(|time| if is_full { time + queue } else { time })
    })
}

fn reasons(simulation: &Simulation, is: impl Fn(&Reason) -> bool) -> usize {
    simulation
        .decisions
        .iter()
        .filter(|(_, decision)| is(&decision.reason))
        .count()
}

/// A transfer doubles what it sends each round trip, until the queue is full of it.
#[test]
fn an_uplink_whose_queue_fills_up_is_slow_and_not_dead() {
    let asked_often = Settings {
        rate: Some(20),
        ..Settings::default()
    };
    // By default, the next probe may be as far off.
    let asked_seldom = Settings::default();
    let queues = [(0.3, ms(300)), (1.0, ms(700)), (1.0, ms(1500))];
    for ((rate, most), (settings, soon)) in queues
        .into_iter()
        .flat_map(|queue| [(queue, (asked_often, s(61))), (queue, (asked_seldom, s(61) + INTERVAL))])
    {
        let path = filled(steady(ms(20), ms(2), 1), [s(60), s(90)], rate, most);
        let mut simulation = Simulation::new(settings, vec![path, steady(ms(30), ms(1), 2)]);
        simulation.run_until(s(120));
        let is_dead = |reason: &Reason| matches!(reason, Reason::Silent(_));
        assert_eq!(reasons(&simulation, is_dead), 0, "{most:?}: {:?}", simulation.decisions);
        let (left, next) = simulation.moves()[0];
        assert!(next == 1 && left < soon, "{most:?}: {:?}", simulation.decisions);
        // It is not punished as one that dies again and again.
        assert!(simulation.judge.uplinks[0].is_usable());
    }
}

/// All of a sudden, nobody can tell late answers from lost ones: the uplink is left, but when they come, it was not dead.
#[test]
fn a_sudden_delay_is_left_as_soon_as_a_death_and_does_not_count_as_one() {
    let mut path = steady(ms(20), ms(1), 1);
    for spike in 0..10 {
        path = filled(path, [s(60 + 60 * spike), s(60 + 60 * spike) + ms(400)], 1e6, ms(400));
    }
    let mut simulation = Simulation::new(Settings::default(), vec![path, steady(ms(30), ms(1), 2)]);
    simulation.run_until(s(60) + ms(200));
    assert_eq!(simulation.main(), 1);
    simulation.run_until(s(75));
    assert!(
        simulation.judge.uplinks[0].is_fine(simulation.now),
        "well again after {:?}",
        Settings::default().back_after
    );
    simulation.run_until(s(660));
    let is_dead = |reason: &Reason| matches!(reason, Reason::Silent(_));
    assert_eq!(reasons(&simulation, is_dead), 0, "{:?}", simulation.decisions);
}

/// The traffic fills the queue of the uplink that it uses, within a moment.
#[test]
fn traffic_that_fills_every_uplink_does_not_chase_itself() {
    use std::cell::Cell;
    use std::rc::Rc;
    for sudden in [ms(0), ms(300)] {
        let main = Rc::new(Cell::new((0, Duration::ZERO)));
        let path = |index: usize| -> Path {
            let main = Rc::clone(&main);
            let base = steady(ms(20 + 2 * index as u64), ms(2), index as u64);
            Box::new(move |now, number| {
                let (used, since) = main.get();
                let full = (sudden + (now - since)).min(ms(600));
                base(now, number).map(|time| {
                    if used == index && now > s(60) {
                        time + full
                    } else {
                        time
                    }
                })
            })
        };
        let mut simulation = Simulation::new(Settings::default(), vec![path(0), path(1)]);
        while simulation.now < s(180) {
            let until = simulation.now + ms(5);
            simulation.run_until(until);
            if simulation.main() != main.get().0 {
                main.set((simulation.main(), until));
            }
        }
        let moves = simulation.moves();
        for (at, _) in &moves {
            let minute = moves
                .iter()
                .filter(|(other, _)| *other >= *at && *other < *at + s(60))
                .count();
            assert!(minute <= 4, "{sudden:?}: {:?}", simulation.decisions);
        }
        assert!(!moves.is_empty(), "{sudden:?}");
    }
}

/// The budget for late uplinks is not spent by dead ones.
#[test]
fn one_uplink_after_the_other_is_left_in_time_when_they_die() {
    let path = |index: u64| dead(steady(ms(20 + index), ms(1), index), s(60 + 3 * index), s(300));
    let paths = (0..6).map(path).chain([steady(ms(40), ms(1), 9)]).collect();
    let mut simulation = Simulation::new(Settings::default(), paths);
    for index in 0..6 {
        simulation.run_until(s(60 + 3 * index) + ms(205));
        assert_eq!(simulation.main(), index as usize + 1, "{:?}", simulation.decisions);
    }
}
