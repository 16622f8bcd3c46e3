//! `tarn up`, `tarn down` and changes of weights that are killed at every step.

use super::adopt::{self, ADOPTED};
use super::pins::pinned;
use super::scene::{BOTH, Scene, TARGETS, await_state};
use super::trial::{Finish, Trial, moments};
use crate::history;

/// Where every change is told of that a verb makes.
const JOURNAL: &str = "journal";
/// So many different states have to have been met at least.
const STATES: usize = 6;
/// The same where nft is run: that takes most of the time, so that shorter steps are met less often.
const STATES_BESIDE_NFT: usize = 3;
/// The same of a change of the weights of two groups: none, one or both, in the kernel and in the history.
const STATES_OF_WEIGHTS: usize = 3;

fn kill_up(scene: &Scene, configuration: &str, states: usize) {
    let mut trial = Trial::new(scene, configuration, JOURNAL);
    let changes = trial.changes("up");
    trial.finish(Finish::Down);
    for (moment, finish) in moments(changes) {
        trial.kill("up", moment);
        trial.finish(finish);
    }
    trial.assert_met(states);
}

fn kill_down(scene: &Scene, configuration: &str, states: usize) {
    let mut trial = Trial::new(scene, configuration, JOURNAL);
    trial.program.run("up");
    let changes = trial.changes("down");
    for (moment, finish) in moments(changes) {
        trial.program.run("up");
        trial.kill("down", moment);
        trial.finish(finish);
    }
    trial.assert_met(states);
}

/// A host with multipath routes, which are to be taken over.
fn with_routes() -> Scene {
    let scene = Scene::new([0, 0]);
    adopt::add(&scene, &adopt::ROUTES);
    scene
}

/// A router that goes by its second uplink until tarn comes.
fn translating() -> Scene {
    let scene = Scene::router([0, 0]);
    for way in ["via 10.2.0.1", "via fd02::1"] {
        let route = format!("route add default {way} dev wan2 metric 50");
        scene.host().ip(&route).unwrap();
    }
    scene
}

/// Half of tarn's routes would stay on a host whose memory was short when tarn came up.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_up_that_is_killed_at_any_step() {
    kill_up(&Scene::new([0, 0]), BOTH, STATES);
}

/// The same on a host that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_a_down_that_is_killed_at_any_step() {
    kill_down(&Scene::new([0, 0]), BOTH, STATES);
}

/// An operator's router would be without its routes, until somebody drives there.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_up_that_is_killed_at_any_step_of_taking_routes_over() {
    kill_up(&with_routes(), ADOPTED, STATES);
}

/// The same on a router that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_a_down_that_is_killed_at_any_step_of_giving_routes_back() {
    kill_down(&with_routes(), ADOPTED, STATES);
}

/// Rules of nftables, or marks that lead connections nowhere, would stay on a home router.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_up_that_is_killed_at_any_step_of_pinning() {
    kill_up(&translating(), &pinned(), STATES_BESIDE_NFT);
}

/// The same on a router that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_a_down_that_is_killed_at_any_step_of_letting_go() {
    kill_down(&translating(), &pinned(), STATES_BESIDE_NFT);
}

/// Traffic would stand still with the agent that died while it moved it, or the next one would take the group for somebody
/// else's.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_agent_that_is_killed_at_any_step_of_a_change_of_weights() {
    let change = "tarn paths set --policy proportional";
    let scene = Scene::new([0, 0]);
    let mut trial = Trial::new(&scene, BOTH, history::FILE);
    trial.program.run("up");
    let changes = trial.changes(change);
    trial.program.run("down");
    for (moment, finish) in moments(changes) {
        trial.program.run("up");
        trial.kill(change, moment);
        trial.reaches(&TARGETS);
        if finish == Finish::UpAgain {
            trial.program.run("up");
            for to in ["default", "::/0"] {
                await_state(&trial.program, to, "wan2", "standby");
            }
        }
        trial.finish(finish);
    }
    trial.assert_met(STATES_OF_WEIGHTS);
}
