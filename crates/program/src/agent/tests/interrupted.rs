//! Death at any point, of any process: the next `tarn up` or `tarn down` finishes the work.

use proptest::prelude::*;

use super::*;

const SLOW: &str = r#"
[first]
set = [{ path = "@/a", value = 1 }, { path = "@/b", value = 2 }]
then = "dawdle"
[second]
set = [{ path = "@/c", value = 3 }, { path = "@/d", value = 4 }]
"#;

#[test]
fn an_agent_that_dies_around_a_change_is_cleaned_up_after() {
    for death in ["die-before-the-change", "die-after-the-change"] {
        let host = Host::new();
        host.configure(&TWO_STAGES.replace("[second]", &format!("[second]\nthen = {death:?}")));
        let told = format!("{:#}", host.up().unwrap_err());
        assert!(told.contains("the agent died") && told.contains("SIGKILL"), "{told}");
        host.assert_untouched();
    }
}

#[test]
fn an_agent_that_dies_while_it_takes_over_loses_nothing_of_before() {
    let host = Host::new();
    host.configure(TWO_STAGES);
    host.up().unwrap();
    let changed = TWO_STAGES.replace("value = 3", "value = 9");
    host.configure(&changed.replace("[second]", "[second]\nthen = \"die-after-the-change\""));
    host.up().unwrap_err();
    assert_eq!(host.values(), "1 2 3 0");
    host.configure(&changed);
    host.up().unwrap();
    assert_eq!(host.values(), "1 2 9 0");
    host.down().unwrap();
    host.assert_untouched();
}

#[test]
fn an_interrupted_up_is_put_back_by_its_agent() {
    let host = Host::new();
    host.configure(SLOW);
    let up = host.spawn("up");
    wait_until("the first value is set", || host.values().starts_with('1'));
    kill_child(up);
    wait_until("it is put back", || !host.path().join("run").exists());
    host.assert_untouched();
}

/// Kills `tarn up` and its agent once the first value is set.
fn kill_everything(host: &Host) {
    let up = host.spawn("up");
    wait_until("the first value is set", || host.values().starts_with('1'));
    let agent = host.agent().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent.pid as i32), Signal::SIGSTOP).unwrap();
    kill_child(up);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent.pid as i32), Signal::SIGKILL).unwrap();
    wait_until("the agent is gone", || host.agent().is_none());
    assert!(host.values().starts_with('1'));
}

#[test]
fn when_everything_is_killed_down_finishes() {
    let host = Host::new();
    host.configure(SLOW);
    kill_everything(&host);
    let told = host.status();
    assert!(told.contains("a `tarn up` was interrupted"), "{told}");
    host.down().unwrap();
    host.assert_untouched();
}

#[test]
fn when_everything_is_killed_up_finishes() {
    let host = Host::new();
    host.configure(SLOW);
    kill_everything(&host);
    host.configure(TWO_STAGES);
    host.up().unwrap();
    assert_eq!(host.values(), "1 2 3 0");
    host.down().unwrap();
    host.assert_untouched();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verbs_killed_at_any_moment_lose_nothing(steps in proptest::collection::vec((any::<bool>(), 0u64..15_000), 1..6)) {
        let host = Host::new();
        host.configure(TWO_STAGES);
        for (up, microseconds) in steps {
            let child = host.spawn(if up { "up" } else { "down" });
            std::thread::sleep(Duration::from_micros(microseconds));
            kill_child(child);
        }
        host.up().unwrap();
        prop_assert_eq!(host.values(), "1 2 3 0");
        host.down().unwrap();
        host.assert_untouched();
    }
}
