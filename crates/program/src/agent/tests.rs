//! The life of the agent, in processes of its own: what a user would lose if it, or a verb, died at the wrong moment.

use nix::sys::signal::Signal;

use super::*;
use crate::testing::{Host, kill_child, wait_until};
use tarn_base::error::exit_code;
use tarn_frame::agent::LoopState;
use tarn_frame::tidy::tidy;

mod interrupted;
mod lab;
mod processes;
mod service;

const TWO_STAGES: &str = r#"
[first]
set = [{ path = "@/a", value = 1 }, { path = "@/b", value = 2 }]
[second]
set = [{ path = "@/c", value = 3 }]
"#;

#[test]
fn up_and_down_leave_the_host_as_it_was() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    assert_eq!(host.up().unwrap(), "first is up\nsecond is up\n");
    assert_eq!(host.values(), "1 2 3 0");
    assert!(host.status().contains("the agent runs as process"));
    assert_eq!(host.down().unwrap(), "down: 3 changes put back\n");
    host.assert_untouched();
    assert_eq!(host.down().unwrap(), "nothing is up in this network namespace\n");
    assert_eq!(host.status(), "nothing is up in this network namespace\n");
    host.assert_untouched();
}

#[test]
fn a_stage_that_fails_takes_back_those_before_it() {
    let host = Host::new();
    host.configure(&TWO_STAGES.replace("[second]", "[second]\nthen = \"fail\""));
    let error = host.up().unwrap_err();
    assert_eq!(exit_code(&error), 1);
    assert_eq!(
        tarn_base::error::paragraph(&error),
        "second could not be brought up: told to fail"
    );
    host.assert_untouched();
}

#[test]
fn a_host_that_lacks_something_is_told_before_anything_changes() {
    let host = Host::new();
    host.configure(&TWO_STAGES.replace("[second]", "[second]\nmissing = \"grow some\""));
    let error = host.up().unwrap_err();
    assert_eq!(exit_code(&error), 3);
    assert_eq!(
        tarn_base::error::paragraph(&error),
        "second cannot run here: wings: grow some"
    );
    host.assert_untouched();
}

#[test]
fn a_configuration_that_is_wrong_changes_nothing() {
    let host = Host::new();
    for (text, told) in [
        ("", "configures no stage"),
        ("[frist]\n", "did you mean `first`"),
        ("[first\n", "not valid TOML"),
    ] {
        host.configure(text);
        let error = host.up().unwrap_err();
        assert_eq!(exit_code(&error), 2, "{error:#}");
        assert!(format!("{error:#}").contains(told), "{error:#}");
    }
    host.assert_untouched();
}

#[test]
fn what_is_up_outlives_the_agent_and_is_adopted_by_the_next_one() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let before = host.agent().unwrap();
        host.signal_agent(signal);
        assert_eq!(host.values(), "1 2 3 0");
        let told = host.status();
        assert!(told.starts_with("trouble: the agent is not running"), "{told}");
        assert!(told.contains("first: up") && told.contains("changes      2"), "{told}");
        host.up().unwrap();
        assert_ne!(host.agent().unwrap().pid, before.pid);
        assert_eq!(
            Journal::open(&host.frame().state).unwrap().changes("first").count(),
            2,
            "nothing is done twice"
        );
    }
    host.down().unwrap();
    host.assert_untouched();
}

#[test]
fn without_an_agent_down_works_too() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    host.signal_agent(Signal::SIGKILL);
    host.down().unwrap();
    host.assert_untouched();
}

/// A verb that comes when its stage is gone must not take away what other stages need to be put back.
#[test]
fn a_state_directory_that_is_needed_is_not_tidied_away() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    let state = host.frame().state;
    for signal in [None, Some(Signal::SIGKILL)] {
        signal.into_iter().for_each(|signal| host.signal_agent(signal));
        tidy(&state, &state.lock_for("test").unwrap()).unwrap();
        assert_eq!(Journal::open(&state).unwrap().stages(), ["first", "second"]);
    }
    host.down().unwrap();
    tidy(&state, &state.lock_for("test").unwrap()).unwrap();
    host.assert_untouched();
}

#[test]
fn a_second_up_takes_over_and_changes_only_what_is_different() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    let before = host.agent().unwrap();
    host.configure("[first]\nset = [{ path = \"@/a\", value = 7 }]\n");
    let kept = ["first", "second"].map(|stage| host.frame().state.path().join(stage));
    kept.iter().for_each(|file| std::fs::write(file, "").unwrap());
    host.up().unwrap();
    assert_eq!(
        kept.each_ref().map(|file| file.exists()),
        [true, false],
        "what the stage kept is gone too"
    );
    assert_ne!(host.agent().unwrap().pid, before.pid);
    assert_eq!(
        host.values(),
        "7 2 0 0",
        "the second stage is no longer configured and was put back"
    );
    host.down().unwrap();
    host.assert_untouched();
}

#[test]
fn an_up_that_fails_does_not_take_down_what_an_earlier_one_set_up() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    host.configure(&TWO_STAGES.replace("value = 3 }]", "value = 9 }]\nthen = \"fail\""));
    let told = format!("{:#}", host.up().unwrap_err());
    assert!(told.contains("is up still, without an agent"), "{told}");
    assert_eq!(host.values(), "1 2 3 0");
    host.down().unwrap();
    host.assert_untouched();
}

#[test]
fn the_administrator_wins() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    host.set("b", "42");
    host.up().unwrap();
    assert_eq!(host.values(), "1 42 3 0");
    let told = host.down().unwrap();
    assert_eq!(
        told,
        "down: 2 changes put back; 1 was changed by someone else since and left alone\n"
    );
    assert_eq!(host.values(), "0 42 0 0");
}

#[test]
fn many_ups_at_once_leave_one_agent_and_a_whole_state() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    let ups: Vec<_> = (0..4).map(|_| host.spawn("up")).collect();
    for mut up in ups {
        assert!(up.wait().unwrap().success());
    }
    assert_eq!(host.values(), "1 2 3 0");
    assert!(host.agent().is_some());
    host.down().unwrap();
    host.assert_untouched();
}

#[test]
fn an_agent_that_hangs_is_ended_all_the_same() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    let pid = nix::unistd::Pid::from_raw(host.agent().unwrap().pid as i32);
    nix::sys::signal::kill(pid, Signal::SIGSTOP).unwrap();
    let told = host.status();
    assert!(told.starts_with("trouble: the agent does not answer"), "{told}");
    host.down().unwrap();
    host.assert_untouched();
}

#[test]
fn a_loop_that_never_ends_does_not_keep_the_agent_from_ending() {
    let host = Host::new();
    host.configure(&TWO_STAGES.replace("[second]", "[second]\nthen = \"never-end\""));
    host.up().unwrap();
    host.signal_agent(Signal::SIGTERM);
    assert_eq!(host.values(), "1 2 3 0");
}

#[test]
fn a_loop_that_fails_is_told_of_and_the_rest_goes_on() {
    let host = Host::new();
    host.configure(&TWO_STAGES.replace("[second]", "[second]\nthen = \"fail-in-the-loop\""));
    host.up().unwrap();
    wait_until("the loop has failed", || {
        host.agent().unwrap().loops.iter().any(|entry| entry.restarts > 0)
    });
    let agent = host.agent().unwrap();
    let first = agent.loops.iter().find(|entry| entry.stage == "first").unwrap();
    assert_eq!((first.state, first.restarts), (LoopState::Running, 0));
    let told = host.status();
    assert!(
        told.contains("its loop failed") && told.contains("told to fail"),
        "{told}"
    );
    let log = std::fs::read_to_string(host.frame().state.path().join("log")).unwrap();
    assert!(log.contains("second: told to fail"), "{log}");
}

#[test]
fn the_agent_keeps_nothing_of_the_terminal_it_was_started_from() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    let mut up = host.command("up").stderr(write).spawn().unwrap();
    assert!(up.wait().unwrap().success());
    // Whoever reads what `tarn up` prints comes to its end, though the agent lives on.
    let mut told = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(read), &mut told).unwrap();
    let agent = nix::unistd::Pid::from_raw(host.agent().unwrap().pid as i32);
    assert_eq!(nix::unistd::getsid(Some(agent)).unwrap(), agent);
}

/// A process that a loop starts inherits it, and would keep the pipe open for as long as it lives.
#[test]
fn loops_begin_when_the_agent_has_left_the_terminal() {
    let host = Host::new();
    host.configure(&TWO_STAGES.replace("[second]", "[second]\nthen = \"tell-standard-error\""));
    let (_read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    assert!(host.command("up").stderr(write).status().unwrap().success());
    let path = host.frame().state.path().join("log");
    let line = || {
        let log = std::fs::read_to_string(&path).unwrap();
        log.lines().find(|line| line.contains(" loop: ")).map(str::to_owned)
    };
    wait_until("the loop has written a line", || line().is_some());
    assert!(line().unwrap().ends_with(" loop: /dev/null"), "{line:?}", line = line());
}
