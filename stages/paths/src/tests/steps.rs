//! `tarn up`, `tarn down` and changes of weights that are killed at every step.

use std::collections::BTreeMap;

use super::adopt::{self, ADOPTED};
use super::pins::{marked, pinned};
use super::scene::{BOTH, Scene, TARGETS, await_state};
use crate::history;
use tarn_lab::load::{Arrivals, Ping};
use tarn_lab::testing::trial::{Finish, Subject, Trial, kill_down, kill_up, moments};
use tarn_lab::topology::Namespace;

/// So many different states have to have been met at least.
const STATES: usize = 6;
/// The same where nft is run: that takes most of the time, so that shorter steps are met less often.
const STATES_BESIDE_NFT: usize = 3;
/// The same of a change of the weights of two groups: none, one or both, in the kernel and in the history.
const STATES_OF_WEIGHTS: usize = 3;

/// A host with uplinks.
struct Host {
    scene: Scene,
    /// Who answered before tarn came, and has to answer ever after.
    reached: Vec<&'static str>,
}

impl Host {
    fn of(scene: Scene) -> Self {
        let reached = TARGETS.into_iter().filter(|target| answers(&scene, target)).collect();
        Self { scene, reached }
    }
}

impl Subject for Host {
    fn host(&self) -> &Namespace {
        self.scene.host()
    }

    /// What an administrator sees, and the marks of connections.
    fn look(&self) -> BTreeMap<&'static str, String> {
        let mut look = self.scene.dump();
        look.insert("nft list ruleset", rules(&self.scene));
        look.insert("marked connections", marked(&self.scene).to_string());
        look
    }

    fn step(&self) -> String {
        self.host().ip("nexthop").unwrap() + &rules(&self.scene)
    }

    fn works(&self, up: bool) {
        for target in if up { &TARGETS } else { self.reached.as_slice() } {
            assert!(answers(&self.scene, target), "{target} does not answer");
        }
    }
}

fn rules(scene: &Scene) -> String {
    scene.host().run("nft", &["--stateless", "list", "ruleset"]).unwrap()
}

fn answers(scene: &Scene, target: &str) -> bool {
    let ping = Ping {
        count: 1,
        arrivals: Arrivals::WhenAnswered,
        ..Ping::new(target.parse().unwrap())
    };
    scene.host().enter(|| ping.run()).unwrap().answered_count() == 1
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
    kill_up(&Host::of(Scene::new([0, 0])), BOTH, STATES);
}

/// The same on a host that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_a_down_that_is_killed_at_any_step() {
    kill_down(&Host::of(Scene::new([0, 0])), BOTH, STATES);
}

/// An operator's router would be without its routes, until somebody drives there.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_up_that_is_killed_at_any_step_of_taking_routes_over() {
    kill_up(&Host::of(with_routes()), ADOPTED, STATES);
}

/// The same on a router that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_a_down_that_is_killed_at_any_step_of_giving_routes_back() {
    kill_down(&Host::of(with_routes()), ADOPTED, STATES);
}

/// Rules of nftables, or marks that lead connections nowhere, would stay on a home router.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_up_that_is_killed_at_any_step_of_pinning() {
    kill_up(&Host::of(translating()), &pinned(), STATES_BESIDE_NFT);
}

/// The same on a router that tarn leaves.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_a_down_that_is_killed_at_any_step_of_letting_go() {
    kill_down(&Host::of(translating()), &pinned(), STATES_BESIDE_NFT);
}

/// Traffic would stand still with the agent that died while it moved it, or the next one would take the group for somebody
/// else's.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_survive_an_agent_that_is_killed_at_any_step_of_a_change_of_weights() {
    let change = "tarn paths set --policy proportional";
    let host = Host::of(Scene::new([0, 0]));
    let mut trial = Trial::new(&host, BOTH, history::FILE);
    trial.program.run("up");
    let changes = trial.changes(change);
    trial.program.run("down");
    for (moment, finish) in moments(changes) {
        trial.program.run("up");
        trial.kill(change, moment);
        host.works(true);
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
