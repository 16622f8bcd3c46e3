//! What changes while a flood goes on, and who else is there.

use std::time::Duration;

use tarn_kernel::modules;
use tarn_lab::testing::{Program, is_thorough, sign_of_life};

use super::life::seen;
use super::weights::weights;
use super::{flooded, is_left_alone, status, wait_until};
use crate::module::MODULE;
use crate::proof::rig::Rig;

/// Brings it up and down, each time with a flood that begins before or after `up`.
fn up_and_down_during_a_storm(is_flooded_before: bool) {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let host = rig.host().unwrap();
    let before = seen(host);
    let program = Program::new(host, "[poll]\n");
    rig.begin(21, 9).unwrap();
    for round in 0..if is_thorough() { 100 } else { 2 } {
        sign_of_life(round);
        if is_flooded_before {
            rig.flood(true).unwrap();
        }
        program.run("up");
        if is_flooded_before {
            // The card has forgotten its address.
            rig.flood(false).unwrap();
        }
        rig.flood(true).unwrap();
        // The agent shares the CPU with a stock kernel's flood until its loops begin.
        wait_until("it sheds", Duration::from_secs(3), || {
            status(&program)["shed_source"].as_u64().unwrap() > 1_000
        });
        program.run("down");
        let now = seen(host);
        assert_eq!((&now.threaded, now.xdp), (&before.threaded, before.xdp));
        rig.flood(false).unwrap();
    }
}

/// Nobody could stop it when it is needed.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_down_during_a_storm_leaves_nothing_behind() {
    up_and_down_during_a_storm(false);
}

/// Nobody could start it when it is needed.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_up_and_down_during_a_storm_leave_nothing_behind() {
    up_and_down_during_a_storm(true);
}

/// Containers and their host have a tarn each, and one module.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_of_two_namespaces_are_kept_apart() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
    let timely = |weight: u32| format!("[poll]\nprofile = \"timely\"\nweight = {weight}\n");
    let (one, other) = (Program::new(host, &timely(16)), Program::new(client, &timely(8)));
    one.run("up");
    other.run("up");
    let patience = Duration::from_secs(5);
    wait_until("each has its weight", patience, || {
        weights(host) == [16] && weights(client) == [8]
    });
    one.run("down");
    assert!(modules::is_loaded(MODULE.name), "the other needs it");
    assert_eq!((seen(host).threaded.as_str(), weights(client)), ("0", vec![8]));
    assert_eq!(seen(client).threaded, "1");
    other.run("down");
    assert!(!modules::is_loaded(MODULE.name));
    assert_eq!(seen(client).threaded, "0");
}

/// Storms that last.
mod lab_long {
    use super::*;

    /// A device that gets another name is the same one.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_that_are_renamed_during_a_storm_are_put_back() {
        if is_left_alone() {
            return;
        }
        let rig = Rig::new().unwrap();
        let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
        let program = flooded(&rig);
        host.ip("link set eth0 name wan0").unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let answer = client
            .run("ping", &["-q", "-c", "20", "-i", "0.01", "-W", "1", "10.8.0.1"])
            .unwrap();
        assert!(answer.contains("20 received"), "{answer}");
        let status = status(&program);
        assert_eq!(status["watched"][0]["device"], "wan0", "{status}");
        assert_eq!(status["watched"][0]["storms"], 1, "{status}");
        program.run("down");
        host.ip("link set wan0 name eth0").unwrap();
        let now = seen(host);
        assert_eq!((now.threaded.as_str(), now.xdp), ("0", None));
    }
}
