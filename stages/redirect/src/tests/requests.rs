//! Requests and answers: who is reached, and whom the client sees answering.

use super::scene::{BRIDGE, FAMILIES, Scene, at, both, bridged, named, near};
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

/// The clients of a home router or of containers are behind a bridge, of which each port is a device of its own: what is redirected
/// is seen once all the same. Also when the bridge is made while the rules are in force.
pub fn lab_from_behind_a_bridge_are_answered(way: Way) {
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    for is_there in [true, false] {
        let topology = if is_there { bridged(way) } else { near(way, false) };
        let scene = Scene::of(way, &topology);
        pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
        scene.up_before(&both(&pairs), || {
            if !is_there {
                let host = scene.namespace("host");
                host.ip("address flush dev left").unwrap();
                BRIDGE.iter().for_each(|command| drop(host.ip(command).unwrap()));
            }
        });
        for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
            for _ in 0..3 {
                scene.expect(family.client, asked, &named("server", target));
            }
        }
    }
}
