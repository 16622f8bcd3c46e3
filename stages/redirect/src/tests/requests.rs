//! Requests and answers: who is reached, and whom the client sees answering.

use super::scene::{FAMILIES, Scene, at, both, named, near};
use super::way::Way;

/// A client would throw away an answer from an address that it did not speak to.
pub fn lab_are_answered_from_the_address_asked(way: Way) {
    for offload in [true, false] {
        let scene = Scene::of(way, &near(way, offload));
        let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
        pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
        scene.up(&both(&pairs));
        for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
            // The first packet decides, those after it use what was decided.
            for _ in 0..3 {
                scene.expect(family.client, asked, &named("server", target));
            }
        }
    }
}
