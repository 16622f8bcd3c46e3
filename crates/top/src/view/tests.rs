//! Recorded sessions: what somebody sees at each step.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::*;
use crate::model::Key;
use tarn_watch::testing::{Host, session};

fn watched(steps: usize) -> Model {
    let mut model = Model::default();
    for host in session().into_iter().take(steps) {
        model.add(host.map(|host| host.sample()));
    }
    model
}

fn buffer(model: &mut Model, styles: &Styles, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, styles, frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// What is on a screen of this size.
fn screen(model: &mut Model, width: u16, height: u16) -> String {
    let buffer = buffer(model, &Styles::new(true, true), (width, height));
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

/// Compares a whole screen with the one that was recorded.
#[track_caller]
fn assert_shows(model: &mut Model, recorded: &str) {
    let shown = screen(model, 80, 24);
    assert_eq!(shown, recorded, "\n{shown}");
}

fn press(model: &mut Model, keys: &[Key]) {
    keys.iter().for_each(|key| model.press(*key));
}

/// Before the agent has answered for the first time the screen says that it waits, and does not look dead.
#[test]
fn a_screen_without_figures_says_so() {
    let mut model = Model::default();
    assert!(screen(&mut model, 80, 24).starts_with("tarn  reading the figures\n"));
    model.silent_s = Some(9);
    assert!(screen(&mut model, 80, 24).contains("no figures for 9 s"));
}

/// In the flood: what does most, what is dropped, and when it began.
#[test]
fn the_overview_shows_a_flood() {
    assert_shows(&mut watched(7), include_str!("screens/flood.txt"));
}

/// An uplink is silent, the figures could not be read for two seconds, and a reading came late: gaps, and no peaks.
#[test]
fn the_overview_shows_what_came_back() {
    assert_shows(&mut watched(12), include_str!("screens/after.txt"));
}

/// Figures that cannot be read now: the last ones stay, and why is on top.
#[test]
fn a_failed_reading_is_told_and_ends_nothing() {
    let mut model = watched(10);
    let shown = screen(&mut model, 80, 24);
    assert!(
        shown.contains("cannot read the figures: the journal cannot be read") && shown.contains("packets/s"),
        "{shown}"
    );
}

#[test]
fn a_stage_shows_its_tables_first_and_how_they_were() {
    let mut model = watched(12);
    press(&mut model, &[Key::End, Key::Enter]);
    assert_eq!(model.opened(), [2]);
    assert_shows(&mut model, include_str!("screens/paths.txt"));
}

/// The share and the target that was promised stand side by side.
#[test]
fn a_class_below_its_target_shows_by_how_much() {
    let mut model = watched(12);
    press(&mut model, &[Key::Down, Key::Enter]);
    assert_shows(&mut model, include_str!("screens/classes.txt"));
}

/// Who attacks is read only while somebody looks; what figures mean only when somebody asks.
#[test]
fn an_open_stage_shows_who_sends_and_explains_itself() {
    let mut model = watched(0);
    for (second, packets) in [(0.0, 10), (1.0, 250)] {
        let host = Host {
            second,
            ..Host::default()
        };
        model.add(Ok(host.sample_with_senders(&[("192.0.2.7", packets), ("192.0.2.8", 3)])));
    }
    press(&mut model, &[Key::Enter]);
    assert_shows(&mut model, include_str!("screens/senders.txt"));
    press(&mut model, &[Key::Explain, Key::End]);
    let shown = screen(&mut model, 80, 60);
    for meaning in ["Devices that are watched", "About how many were dropped"] {
        assert!(shown.contains(meaning), "{shown}");
    }
}

/// Of a thousand rules, those that carry packets now.
#[test]
fn a_table_longer_than_the_screen_shows_what_does_most() {
    let names: Vec<&'static str> = (0..1_000).map(|number| &*format!("eth{number}").leak()).collect();
    let mut model = Model::default();
    for second in [0.0, 1.0] {
        let work = |place: usize| if place >= 995 { place as u64 * second as u64 } else { 0 };
        let queues = names
            .iter()
            .enumerate()
            .map(|(place, name)| (*name, "none", work(place)));
        let host = Host {
            second,
            poll: (queues.collect(), 0),
            ..Host::default()
        };
        model.add(Ok(host.sample()));
    }
    press(&mut model, &[Key::Enter]);
    let shown = screen(&mut model, 80, 24);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[4].starts_with("eth999") && lines[8].starts_with("eth995"),
        "{shown}"
    );
    press(&mut model, &[Key::End]);
    let shown = screen(&mut model, 80, 24);
    assert!(shown.contains("devices  1000 devices"), "{shown}");
    assert!(screen(&mut model, 80, 80).contains("more, which are less busy"));
}

#[test]
fn the_list_has_decisions_and_events_newest_first() {
    let mut model = watched(12);
    press(&mut model, &[Key::Events]);
    assert_shows(&mut model, include_str!("screens/events.txt"));
    press(&mut model, &[Key::Back]);
    assert_eq!(model.screen, Screen::Overview);
}

/// A key too many must not end the program, nor scroll into nothing.
#[test]
fn scrolling_ends_where_the_text_does_and_escape_stays_on_the_overview() {
    let mut model = watched(12);
    press(&mut model, &[Key::Back, Key::Back]);
    assert_eq!(model.screen, Screen::Overview);
    press(&mut model, &[Key::Events, Key::End, Key::PageDown, Key::Down]);
    let end = screen(&mut model, 80, 12);
    assert!(end.contains("wan0 is well again"), "{end}");
    press(&mut model, &[Key::Up]);
    assert_ne!(screen(&mut model, 80, 12), end);
    press(&mut model, &[Key::Home]);
    assert!(screen(&mut model, 80, 12).contains("newest first"));
}

/// Somebody who reads a figure aloud wants it to stay, and nothing to be missing afterwards.
#[test]
fn a_paused_screen_stays_as_it_is_and_misses_nothing() {
    let mut model = watched(4);
    press(&mut model, &[Key::Pause]);
    let before = screen(&mut model, 80, 24);
    assert!(before.contains("(paused)"));
    for host in session().into_iter().skip(4) {
        model.add(host.map(|host| host.sample()));
    }
    assert_eq!(screen(&mut model, 80, 24), before);
    press(&mut model, &[Key::Pause]);
    assert_shows(&mut model, include_str!("screens/after.txt"));
}

/// The selected stage is in sight, with its own history, however low the terminal is; troubles leave room for it.
#[test]
fn a_low_terminal_shows_the_selected_stage() {
    let mut model = Model::default();
    let host = Host {
        troubles: vec![
            "one: does not work, and this is why at some length",
            "two",
            "three",
            "four",
            "five",
            "six",
        ],
        ..Host::default()
    };
    model.add(Ok(host.sample()));
    for height in 5..10 {
        for (keys, name) in [(&[Key::Home], "> poll"), (&[Key::End], "> paths")] {
            press(&mut model, keys);
            let shown = screen(&mut model, 80, height);
            assert!(shown.contains(name), "{height}: {shown}");
        }
    }
    assert!(screen(&mut model, 40, 24).contains("and 4 more: see `tarn status`"));
    for size in [(1, 1), (2, 2), (20, 3), (40, 10), (300, 80)] {
        for keys in [&[Key::Enter][..], &[Key::Events], &[Key::Back, Key::Back]] {
            screen(&mut model, size.0, size.1);
            press(&mut model, keys);
        }
    }
}

/// Names and messages come from others, who may not write on the terminal of root: not in its title, and not over other lines.
#[test]
fn no_text_of_others_is_for_the_terminal_to_obey() {
    let mut model = Model::default();
    for second in [0.0, 1.0] {
        let host = Host {
            second,
            poll: (vec![("\u{1b}]0;x\u{7}", "none", 10)], 0),
            troubles: vec!["\u{1b}[2Jgone\u{9b}1m"],
            ..Host::default()
        };
        model.add(Ok(host.sample()));
    }
    model.add(Err("\u{1b}[31mred".to_owned()));
    for keys in [&[][..], &[Key::Enter], &[Key::Events]] {
        press(&mut model, keys);
        let shown = screen(&mut model, 80, 24);
        let is_foreign = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(is_foreign) && shown.contains('\u{fffd}'), "{shown:?}");
    }
}

/// https://no-color.org: who asks for no colours gets none, and still sees what is bad and what is selected.
#[test]
fn without_colours_nothing_is_coloured() {
    let mut model = watched(9);
    for keys in [&[][..], &[Key::End, Key::Enter]] {
        press(&mut model, keys);
        let buffer = buffer(&mut model, &Styles::new(false, false), (80, 24));
        let is_plain = |cell: &ratatui::buffer::Cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset);
        assert!(buffer.content.iter().all(is_plain));
        assert!(buffer.content.iter().all(|cell| cell.symbol().is_ascii()));
        assert!(
            buffer
                .content
                .iter()
                .any(|cell| cell.modifier.contains(ratatui::style::Modifier::BOLD))
        );
    }
}
