//! What packet captures show of a redirected flow: as the README says, on the host one half of it.

use std::time::Duration;

use super::packet::UDP;
use super::scene::{Scene, V4, WHO, ask, at, both, named};
use super::way::Way;

/// An interface, captured as tcpdump does.
const CAPTURED: [(&str, &str); 4] = [
    ("client", "eth0"),
    ("host", "left"),
    ("host", "right"),
    ("server", "eth0"),
];

/// Who runs tcpdump because something is amiss must know what it does not show, and where the rest can be seen.
#[test]
#[ignore = "needs the lab"]
fn lab_redirect_captures_on_the_host_show_what_came_in() {
    let scene = Scene::new(Way::Tc);
    let (client, asked, target) = (at(V4.client, 5000), at(V4.host, 8080), at(V4.server, 8083));
    scene.serve("server", target);
    scene.up(&both(&[(asked, target)]));
    let socket = scene.udp("client", client);
    let answered = |_| {
        assert_eq!(ask(&socket, asked, WHO).unwrap(), named("server", target).into_bytes());
        std::thread::sleep(Duration::from_millis(20));
    };
    // Until neighbours are known, packets go by the stack.
    (0..3).for_each(answered);
    let wires = CAPTURED.map(|(node, device)| [scene.wire(node, device), scene.wire(node, device)]);
    (0..3).for_each(answered);
    let (request, answer) = ((client, asked), (asked, client));
    let (rewritten, unrewritten) = ((client, target), (target, client));
    // Per interface: what came in, and what left.
    let expected = [
        [vec![answer], vec![request]],
        [vec![request], vec![]],
        [vec![unrewritten], vec![]],
        [vec![rewritten], vec![unrewritten]],
    ];
    for (captured, ([received, sent], expected)) in CAPTURED.iter().zip(wires.iter().zip(expected)) {
        let patience = Duration::from_millis(100);
        let shown = [received.drain(patience), sent.drain_sent(patience)].map(|frames| {
            let read = frames.iter().filter_map(super::wire::Frame::read);
            let udp = read.filter(|read| read.protocol == UDP);
            let mut ends: Vec<_> = udp.map(|read| (read.source, read.destination)).collect();
            ends.dedup();
            ends
        });
        assert_eq!(shown, expected, "{captured:?}");
    }
}
