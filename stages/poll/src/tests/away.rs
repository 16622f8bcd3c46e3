//! A card whose fate was decided while it was in another namespace.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//!   init
//!   where eth0 is meanwhile
//! ```

use std::time::Duration;

use tarn_kernel::sysfs::Sysfs;
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use super::devices::{AWAY, ends_calm, give_back, holder, take_away};
use super::life::{seen, seen_of};
use super::{flooded, is_left_alone, status, wait_until};
use crate::proof::rig::Rig;

fn set_threaded(namespace: &Namespace, device: &str, value: &str) {
    let path = format!("class/net/{device}/threaded");
    let write = || Sysfs::of_this_namespace()?.write(&path, value);
    namespace.enter(write).unwrap();
}

/// Who had a calm card meanwhile has made it threaded, and gives it back so: nobody of tarn has, and nobody of tarn changes it.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_that_come_back_with_somebody_s_threads_are_left_alone() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let (host, init) = (rig.host().unwrap(), Namespace::of_init().unwrap());
    let program = Program::new(host, "[poll]\n");
    program.run("up");
    wait_until("it is watched", Duration::from_secs(5), || {
        status(&program)["watched"][0]["device"] == "eth0"
    });
    host.ip(&format!("link set eth0 netns {} name {AWAY}", holder(&init)))
        .unwrap();
    init.ip(&format!("link set {AWAY} up")).unwrap();
    wait_until("it is gone", Duration::from_secs(5), || {
        status(&program)["devices"] == 0
    });
    set_threaded(&init, AWAY, "1");
    give_back(&rig, &init, AWAY);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(status(&program)["devices"], 0, "{}", status(&program));
    program.run("down");
    assert_eq!(seen(host).threaded, "1");
    set_threaded(host, "eth0", "0");
}

/// It went with tarn's threads, and is in the configuration no more when it comes back: softirqs receive from it, at the latest after
/// `down`.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_that_are_dropped_while_away_are_put_back() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let init = Namespace::of_init().unwrap();
    let program = flooded(&rig);
    take_away(&rig, &init);
    assert_eq!(seen_of(&init, AWAY).threaded, "1", "it takes its threads with it");
    program.configure("[poll]\ndevices = [\"other0\"]\n");
    program.run("up");
    rig.flood(false).unwrap_or_default();
    give_back(&rig, &init, AWAY);
    std::thread::sleep(Duration::from_secs(3));
    let now = seen(rig.host().unwrap());
    println!("{now:?}");
    assert!(!now.goes_first(), "{now:?}");
    ends_calm(&rig, &program);
}
