//! Which rule a packet meets, and what rules count.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::scene::{FAMILIES, Family, Scene, V4, V6, WHO, ask, at, both, both_from, end, named, numbered};
use super::way::Way;
use crate::overlap;
use crate::rule::samples::rules;
use crate::rule::{Address, Protocol, Rule};
use tarn_lab::topology::{Node, Topology};

/// Rules of both protocols from their text.
fn written(from: &str, to: &str, source: Option<&str>) -> Vec<Rule> {
    rules(&["udp", "tcp"], from, to, source)
}

/// Of the rules for an address, the one with the longest prefix around the client holds, also when others come and go.
pub fn lab_with_the_longest_source_prefix_win(way: Way) {
    let scene = Scene::new(way);
    let prefixes = [
        ["192.168.64.0/24", "192.168.64.128/25", "192.168.64.130/32"],
        ["fd64::/64", "fd64::100/120", "fd64::130/128"],
    ];
    for (round, (family, prefixes)) in FAMILIES.iter().zip(prefixes).enumerate() {
        let asked = at(family.host, 53);
        let servers: Vec<_> = (9000..9004).map(|port| at(family.server, port)).collect();
        servers.iter().for_each(|server| scene.serve("server", *server));
        let all = servers.iter().zip([None].into_iter().chain(prefixes.map(Some)));
        let all = all.flat_map(|(server, source)| written(&asked.to_string(), &server.to_string(), source));
        let all = numbered(10 * round as u32, all);
        if round == 0 {
            scene.up(&all);
        } else {
            scene.change(&all, &[]);
        }
        scene.expect(family.client, asked, &named("server", servers[1]));
        scene.expect(family.other_client, asked, &named("server", servers[3]));
        for (gone, mine, others) in [(3, 1, 2), (2, 1, 1), (1, 0, 0)] {
            scene.change(&[], &all[2 * gone..2 * gone + 2]);
            scene.expect(family.client, asked, &named("server", servers[mine]));
            scene.expect(family.other_client, asked, &named("server", servers[others]));
        }
        scene.change(&all[6..], &[]);
        scene.expect(family.other_client, asked, &named("server", servers[3]));
    }
}

/// A rule for any address of the host means every one of them, and nobody else's; one that names an address goes before.
pub fn lab_for_any_local_address_hold_for_all_of_them(way: Way) {
    let scene = Scene::new(way);
    let mut all = Vec::new();
    for (family, any) in FAMILIES.iter().zip(["0.0.0.0", "::"]) {
        let target = at(family.server, 9000);
        all.push((at(any, 53), target));
        all.push((at(any, 54), target));
        all.push((at(family.host, 54), at(family.other_server, 9000)));
        scene.serve("server", target);
        scene.serve("server", at(family.other_server, 9000));
        scene.serve("server", at(family.other_server, 53));
    }
    scene.up(&both(&all));
    for family in FAMILIES {
        let (target, other) = (at(family.server, 9000), at(family.other_server, 9000));
        for _ in 0..2 {
            scene.expect(family.client, at(family.host, 53), &named("server", target));
            scene.expect(family.client, at(family.host_inside, 53), &named("server", target));
            scene.expect(family.client, at(family.host, 54), &named("server", other));
            scene.expect(family.client, at(family.host_inside, 54), &named("server", target));
            let foreign = at(family.other_server, 53);
            scene.expect(family.client, foreign, &named("server", foreign));
            // The host has no route to these: nobody's address is not its own.
            let nobody = at(
                if foreign.is_ipv4() {
                    "203.0.113.9"
                } else {
                    "2001:db8::9"
                },
                53,
            );
            let told = scene.who(Protocol::Udp, "client", family.client, nobody);
            assert!(told.starts_with('['), "{nobody}: {told}");
        }
    }
}

/// A rule for any address of the host leads to a service of the host itself where nothing is forwarded, too.
pub fn lab_for_any_local_address_hold_without_forwarding(way: Way) {
    let end = |node, interface| end(way, false, node, interface);
    let topology = Topology::new().node(Node::new("client")).node(Node::new("host")).link(
        end("client", "eth0").address("192.168.64.1/24").address("fd64::1/64"),
        end("host", "left").address("192.168.64.2/24").address("fd64::2/64"),
    );
    let scene = Scene::of(way, &topology);
    for sysctl in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        scene.namespace("host").sysctl(sysctl, "0").unwrap();
    }
    let pairs = [("0.0.0.0", V4.host), ("::", V6.host)].map(|(any, host)| (at(any, 53), at(host, 9000)));
    pairs.iter().for_each(|(_, target)| scene.serve("host", *target));
    scene.up(&both(&pairs));
    for (family, (_, target)) in FAMILIES.iter().zip(pairs) {
        for _ in 0..2 {
            scene.expect(family.client, at(family.host, 53), &named("host", target));
        }
    }
}

/// A range of ports leads to the same ports, to as many others one to one, or all to one.
pub fn lab_for_ranges_lead_port_by_port(way: Way) {
    let scene = Scene::new(way);
    let mut all = Vec::new();
    for family in FAMILIES {
        let host = at(family.host, 0).to_string().trim_end_matches('0').to_owned();
        let server = at(family.server, 0).to_string().trim_end_matches('0').to_owned();
        all.extend(written(
            &format!("{host}7000-7006"),
            &format!("{server}7000-7006"),
            None,
        ));
        all.extend(written(&format!("{host}100-106"), &format!("{server}7000-7006"), None));
        all.extend(written(&format!("{host}200-206"), &format!("{server}7003"), None));
        (7000..7007).for_each(|port| scene.serve("server", at(family.server, port)));
    }
    scene.up(&numbered(0, all));
    for family in FAMILIES {
        for (asked, reached) in [
            (7000, 7000),
            (7006, 7006),
            (100, 7000),
            (103, 7003),
            (106, 7006),
            (200, 7003),
            (206, 7003),
        ] {
            scene.expect(
                family.client,
                at(family.host, asked),
                &named("server", at(family.server, reached)),
            );
        }
        for beyond in [6999, 7007, 99, 107, 199, 207] {
            scene.expect(family.client, at(family.host, beyond), "[refused]");
        }
    }
}

/// Two rules, two servers; and a service of the host itself can be a target, at another address or port.
pub fn lab_for_several_targets_lead_to_each(way: Way) {
    let scene = Scene::new(way);
    let mut all = Vec::new();
    for family in FAMILIES {
        let host = |port| at(family.host, port);
        all.push((host(8080), ("server", at(family.server, 8083))));
        all.push((host(8081), ("server", at(family.other_server, 8083))));
        all.push((host(8082), ("host", at(family.host_inside, 9000))));
        all.push((host(8083), ("host", host(9001))));
    }
    all.iter().for_each(|(_, (node, target))| scene.serve(node, *target));
    scene.up(&both(
        &all.iter()
            .map(|(asked, (_, target))| (*asked, *target))
            .collect::<Vec<_>>(),
    ));
    for (asked, (node, target)) in all {
        let client = if asked.is_ipv4() {
            FAMILIES[0].client
        } else {
            FAMILIES[1].client
        };
        for _ in 0..2 {
            scene.expect(client, asked, &named(node, target));
        }
        // The target itself still answers as itself.
        scene.expect(client, target, &named(node, target));
    }
}

/// Without its rule, an address is the host's own again, for clients old and new; with it, the server's.
pub fn lab_that_are_removed_leave_the_host_to_itself(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    for (asked, target) in pairs {
        scene.serve("host", asked);
        scene.serve("server", target);
    }
    let all = both(&pairs);
    scene.up(&all);
    let sockets = FAMILIES.map(|family| scene.udp("client", at(family.client, 0)));
    let expect = |name: &dyn Fn(usize) -> String| {
        for (index, (asked, _)) in pairs.iter().enumerate() {
            assert_eq!(
                ask(&sockets[index], *asked, WHO).unwrap(),
                name(index).into_bytes(),
                "the client that was there"
            );
            scene.expect(FAMILIES[index].client, *asked, &name(index));
        }
    };
    for _ in 0..2 {
        expect(&|index| named("server", pairs[index].1));
        scene.change(&[], &all);
        expect(&|index| named("host", pairs[index].0));
        scene.change(&all, &[]);
    }
}

/// Without its rule, a client that was led to a server may speak to it directly, from the very port: the answers are the
/// server's own.
pub fn lab_that_are_removed_leave_the_server_to_itself(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    let all = both(&pairs);
    scene.up(&all);
    let sockets = FAMILIES.map(|family| scene.udp("client", at(family.client, 0)));
    let expect = |ask_target: bool| {
        for (socket, (asked, target)) in sockets.iter().zip(pairs) {
            let to = if ask_target { target } else { asked };
            assert_eq!(
                ask(socket, to, WHO).unwrap(),
                named("server", target).as_bytes(),
                "{to}"
            );
        }
    };
    expect(false);
    scene.change(&[], &all);
    if way == Way::Nftables {
        // For so long, what comes from there is taken for an answer that was under way.
        std::thread::sleep(std::time::Duration::from_secs(31));
    }
    expect(true);
    scene.change(&all, &[]);
    expect(false);
}

/// A client may know the server itself: it is answered by the server as such, from another port of its own, and from the
/// same one before and after it asked the redirected address.
pub fn lab_leave_clients_of_the_server_itself_alone(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    scene.up(&both(&pairs));
    for (family, (asked, target)) in FAMILIES.iter().zip(pairs) {
        let name = named("server", target);
        scene.expect(family.client, asked, &name);
        scene.expect(family.client, target, &name);
        let socket = scene.udp("client", at(family.client, 5000));
        for address in [target, asked, target, target, asked, asked, target] {
            assert_eq!(ask(&socket, address, WHO).unwrap(), name.as_bytes(), "UDP to {address}");
        }
        for (port, order) in [(5001, [asked, target]), (5002, [target, asked])] {
            for address in order {
                let told = scene.within("client", || {
                    super::serve::ask_over_tcp(at(family.client, port), address, WHO)
                });
                assert_eq!(told, name, "TCP to {address} from port {port}");
            }
        }
    }
}

/// Packets and bytes of a rule are those that its clients sent: no more, no less.
pub fn lab_count_every_packet_once(way: Way) {
    let scene = Scene::new(way);
    let pairs = FAMILIES.map(|family| (at(family.host, 8080), at(family.server, 8083)));
    pairs.iter().for_each(|(_, target)| scene.serve("server", *target));
    let mut all = both(&pairs);
    all.extend(both_from(8, &[(at(FAMILIES[0].host, 8081), pairs[0].1)]));
    scene.up(&all);
    let wire = scene.wire("client", "eth0");
    for (index, (family, (asked, target))) in FAMILIES.iter().zip(pairs).enumerate() {
        let headers = if asked.is_ipv4() { 28 } else { 48 };
        let socket = scene.udp("client", at(family.client, 0));
        let sizes = [0, 1, 100, 1400, 7];
        for size in sizes {
            ask(&socket, asked, &vec![0; size]).unwrap();
            ask(&socket, target, &vec![0; size]).unwrap(); // nobody's rule
        }
        let bytes = sizes.iter().map(|size| (size + headers) as u64).sum();
        let counted = &scene.counters(&all)[2 * index];
        assert_eq!(
            (counted.packets, counted.bytes),
            (sizes.len() as u64, bytes),
            "UDP to {asked}"
        );
        assert!(counted.drops.iter().all(|(_, count)| *count == 0), "{counted:?}");

        wire.drain(Duration::ZERO);
        scene.within("client", || super::tcp::echo(at(family.client, 0), asked, 100_000));
        let sent = wire.drain_sent(Duration::from_millis(300));
        let sent = sent
            .iter()
            .filter_map(|frame| frame.read().map(|read| (frame.bytes.len() - 14, read)));
        let sent: Vec<u64> = sent
            .filter(|(_, read)| read.destination == asked)
            .map(|(len, _)| len as u64)
            .collect();
        let counted = &scene.counters(&all)[2 * index + 1];
        assert_eq!(
            (counted.packets, counted.bytes),
            (sent.len() as u64, sent.iter().sum()),
            "TCP to {asked}"
        );
    }
    let unused = &scene.counters(&all)[4..];
    assert!(
        unused
            .iter()
            .all(|counters| (counters.packets, counters.bytes) == (0, 0)),
        "{unused:?}"
    );
}

/// Very many rules are up in seconds, are met, and are read in seconds: 100,000.
pub fn lab_by_the_hundred_thousand_load_and_list_in_seconds(way: Way) {
    let count = 100_000;
    let scene = Scene::new(way).with_room_for(count + 1024);
    let target = at(FAMILIES[0].server, 8083);
    scene.serve("server", target);
    let template = rules(&["udp"], "172.16.0.0:8080", &target.to_string(), None).remove(0);
    let address = |id: u32| std::net::Ipv4Addr::from_bits(0xac10_0000 + id);
    let all: Vec<Rule> = (0..count)
        .map(|id| Rule {
            id,
            address: Address::Ip(address(id).into()),
            ..template.clone()
        })
        .collect();
    // What is quadratic takes longer: 10^10 steps. nftables needs several times what BPF needs, which a busy host shows.
    let most = Duration::from_secs(if way == Way::Nftables { 15 } else { 5 });
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let began = Instant::now();
        work();
        let took = began.elapsed();
        println!("{what}: {took:?}");
        assert!(took < most, "{what}: {took:?}");
    };
    timed(&format!("{count} rules up"), &mut || scene.up(&all));
    let used = count - 4_567;
    let asked = at(&address(used).to_string(), 8080);
    let reached = |asked| scene.who(Protocol::Udp, "client", FAMILIES[0].client, asked);
    assert_eq!(reached(asked), named("server", target));
    timed("all counters read", &mut || {
        let counters = scene.counters(&all);
        let counted: Vec<u32> = (0..count).filter(|&rule| counters[rule as usize].packets > 0).collect();
        assert_eq!(counted, [used]);
    });
    let one = both_from(count, &[(at(FAMILIES[0].host, 1), target)]);
    timed("a rule added and removed", &mut || {
        scene.change(&one, &[]);
        assert_eq!(reached(at(FAMILIES[0].host, 1)), named("server", target));
        scene.change(&[], &one);
    });
    timed("all rules up again", &mut || scene.up(&all));
    assert_eq!(reached(asked), named("server", target));
}

/// A client that keeps its port is answered from where it asked last, by one rule, by another to the same target, or the
/// target itself: what is remembered of a rule that went does not get between.
pub fn lab_followed_by_others_answer_from_the_address_asked_last(way: Way) {
    let scene = Scene::new(way);
    let target = |family: Family| at(family.server, 8083);
    FAMILIES
        .iter()
        .for_each(|family| scene.serve("server", target(*family)));
    let rule = |port: u16| both_from(0, &FAMILIES.map(|family| (at(family.host, port), target(family))));
    scene.up(&rule(9001));
    let clients = FAMILIES.map(|family| (family, scene.udp("client", at(family.client, 5060))));
    let expect = |asked: &dyn Fn(Family) -> SocketAddr| {
        for (family, socket) in &clients {
            let answer = ask(socket, asked(*family), WHO).unwrap();
            assert_eq!(answer, named("server", target(*family)).into_bytes());
        }
    };
    expect(&|family| at(family.host, 9001));
    scene.change(&[], &rule(9001));
    scene.change(&rule(9002), &[]);
    expect(&|family| at(family.host, 9002));
    scene.change(&[], &rule(9002));
    expect(&target);
    scene.change(&rule(9001), &[]);
    expect(&|family| at(family.host, 9001));
}

/// Two rules that want the same packets have no right answer: refused before anything changes, whatever carries them.
#[test]
fn that_overlap_are_refused() {
    let refused = |one: &str, other: &str, source: Option<&str>| {
        let mut both = rules(&["udp"], one, "10.0.1.2:1", None);
        both.extend(rules(&["udp"], other, "10.0.1.3:1", source));
        !overlap::conflicts(&numbered(0, both)).is_empty()
    };
    assert!(refused("192.168.64.2:80", "192.168.64.2:80", None));
    assert!(refused("192.168.64.2:80-90", "192.168.64.2:90-99", None));
    assert!(!refused("192.168.64.2:80-90", "192.168.64.2:91-99", None));
    assert!(!refused("192.168.64.2:80", "192.168.64.2:80", Some("10.0.0.0/8")));
    assert!(!refused("192.168.64.2:80", "0.0.0.0:80", None));
}
