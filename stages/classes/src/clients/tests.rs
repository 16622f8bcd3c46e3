//! What clients would lose if the maps were wrong: their class, or that of their neighbours.

use super::*;
use crate::config::tests::{BY_NETWORK, config};
use tarn_lab::debug;

fn client(network: &str, class: usize) -> Client {
    Client {
        network: network.parse().unwrap(),
        class,
        timeout: None,
    }
}

fn bound(address: &str, begins: bool, class: usize) -> Bound {
    Bound {
        address: address.parse().unwrap(),
        begins,
        class,
        timeout: None,
    }
}

/// The kernel hands bounds on from the last to the first.
#[test]
fn networks_that_lie_side_by_side_stay_apart() {
    let bounds = vec![
        bound("224.0.0.0", true, 3),
        bound("10.0.2.0", false, 0),
        bound("10.0.1.0", true, 1),
        bound("10.0.1.0", false, 0),
        bound("10.0.0.0", true, 2),
    ];
    let expected = [
        client("10.0.0.0/24", 2),
        client("10.0.1.0/24", 1),
        client("224.0.0.0/3", 3),
    ];
    assert_eq!(networks(bounds), expected);
}

#[test]
fn only_ports_of_the_service_are_looked_up() {
    let text = BY_NETWORK.replace("\"tcp/80\"", "\"udp/90-100\", \"tcp/80\", \"tcp/95-110\", \"udp/80\"");
    let rule = |family: &str, key: &str, map: &str, comment: &str| {
        format!(
            "add rule inet tarn_classes input th dport {{ 80, 90-110 }} meta nfproto {family} \
             meta priority set {key} saddr map @{map} accept comment \"{comment}\"\n"
        )
    };
    let networks = [
        rule("ipv4", "ip", "networks4", "tarn"),
        rule("ipv6", "ip6", "networks6", "tarn"),
    ];
    let expected = format!("flush chain inet tarn_classes input\n{}", networks.concat());
    assert_eq!(ports_script(TABLE, &config(&text), false), expected);
    // Rules that are inserted stand before the others.
    let addresses = [
        rule("ipv4", "ip", "addresses4", "tarn addresses"),
        rule("ipv6", "ip6", "addresses6", "tarn addresses"),
    ];
    let expected = expected + &addresses.concat().replace("add rule", "insert rule");
    assert_eq!(ports_script(TABLE, &config(&text), true), expected);
}

#[test]
fn a_client_can_be_added_by_hand() {
    let timeout = Some(Duration::from_secs(1800));
    let client = Client {
        timeout,
        ..client("192.0.2.0/24", 10)
    };
    let expected = "nft 'add element inet tarn_classes networks4 { 192.0.2.0/24 timeout 1800s : 7461:a }'";
    assert_eq!(command(&client), expected);
}

/// The table, in a network namespace of this thread's own.
fn with_table(then: impl FnOnce() + Send) {
    let enter = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let script = table_script(TABLE, 3_000_000) + &ports_script(TABLE, &config(BY_NETWORK), false);
        Nft::find().unwrap().apply(&script).unwrap();
        then();
    };
    std::thread::scope(|scope| scope.spawn(enter).join().unwrap());
}

fn class_of(address: &str) -> Option<usize> {
    let found = class_at(&address.parse().unwrap()).unwrap();
    found.map(|(_, class, _)| class)
}

fn add(clients: &[Client]) -> Result<()> {
    let change = Change {
        add: clients.to_vec(),
        ..Change::default()
    };
    change.apply()
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_classes_of_clients_are_added_changed_and_taken_away() {
    with_table(|| {
        assert!(has_table().unwrap());
        judge(&Nft::find().unwrap()).unwrap();
        assert!(!asks_for_addresses().unwrap() && !hold_addresses().unwrap());
        let clients = [
            client("10.0.0.0/24", 0),
            client("10.0.1.0/24", 1),
            client("10.0.2.7", 2),
            client("255.255.255.255", 3),
            client("2001:db8::/32", 4),
        ];
        let config = config(BY_NETWORK);
        let first = Change {
            add: clients[..2].to_vec(),
            ..Change::default()
        };
        first.apply_and_ask(&config).unwrap();
        assert!(!asks_for_addresses().unwrap() && !hold_addresses().unwrap());
        let second = Change {
            add: clients[2..].to_vec(),
            ..Change::default()
        };
        second.apply_and_ask(&config).unwrap();
        assert!(asks_for_addresses().unwrap() && hold_addresses().unwrap());
        assert_eq!(all().unwrap(), clients);
        assert_eq!((class_of("10.0.1.200"), class_of("10.0.3.1")), (Some(1), None));
        // As nftables itself sees them.
        let listed = Nft::find().unwrap();
        listed
            .apply("delete element inet tarn_classes addresses4 { 10.0.2.7 }\n")
            .unwrap();
        add(&[client("10.0.2.7", 2)]).unwrap();

        let timeout = Some(Duration::from_secs(1000));
        add(&[Client {
            timeout,
            ..client("10.0.2.7", 0)
        }])
        .unwrap();
        let found = all()
            .unwrap()
            .into_iter()
            .find(|found| found.network == clients[2].network)
            .unwrap();
        assert_eq!(found.class, 0);
        assert!(
            found.timeout.is_some_and(|left| left <= Duration::from_secs(1000)),
            "{found:?}"
        );

        let change = Change {
            remove: clients.to_vec(),
            add: vec![client("10.0.0.0/16", 3)],
        };
        change.apply().unwrap();
        assert_eq!(all().unwrap(), [client("10.0.0.0/16", 3)]);
        change.reversed().apply().unwrap();
        assert_eq!(all().unwrap(), clients);
        forget_all().unwrap();
        assert_eq!(all().unwrap(), []);
    });
}

#[test]
#[ignore = "needs the lab"]
fn lab_classes_that_contradict_each_other_are_refused_and_nothing_changes() {
    with_table(|| {
        let clients = [client("10.0.0.0/16", 0), client("11.0.5.0/24", 1)];
        add(&clients).unwrap();
        let told = add(&[client("12.0.0.0/8", 2), client("10.0.3.0/24", 1)])
            .unwrap_err()
            .to_string();
        assert!(
            told.contains("10.0.3.0/24 lies in a network of class 0 that begins at 10.0.0.0"),
            "{told}"
        );
        for overlapping in ["11.0.0.0/8", "10.0.0.0/24", "10.0.0.0/8", "11.0.5.0/25"] {
            let told = add(&[client("12.0.0.0/8", 2), client(overlapping, 1)])
                .unwrap_err()
                .to_string();
            assert!(told.contains("overlaps"), "{overlapping}: {told}");
        }
        assert_eq!(all().unwrap(), clients);
        // What is not there any more is no reason to keep the rest.
        let change = Change {
            remove: vec![client("99.0.0.0/8", 0), clients[0]],
            ..Change::default()
        };
        change.apply().unwrap();
        assert_eq!(all().unwrap(), clients[1..]);
    });
}

/// Who logs in from a network that has a class gets another one, and has the network's again afterwards.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_of_an_address_go_before_those_of_its_network() {
    with_table(|| {
        let networks = [client("10.0.0.0/8", 2), client("2001:db8::/32", 3)];
        let addresses = [
            client("10.0.0.0", 0),
            client("10.255.255.255", 1),
            client("2001:db8::1", 0),
        ];
        add(&networks).unwrap();
        add(&addresses).unwrap();
        let at = ["10.0.0.0", "10.0.0.1", "10.255.255.255", "2001:db8::1", "2001:db8::2"];
        assert_eq!(at.map(class_of), [Some(0), Some(2), Some(1), Some(0), Some(3)]);
        // An address before its network, for the network may begin with it.
        let mut listed = [addresses[0], networks[0], addresses[1], networks[1], addresses[2]];
        listed.sort_by_key(|client| client.network);
        assert_eq!(all().unwrap(), listed);
        add(&[client("10.0.0.0", 4)]).unwrap();
        assert_eq!(class_of("10.0.0.0"), Some(4));
        let change = Change {
            remove: [&addresses[..], &networks[1..]].concat(),
            ..Change::default()
        };
        change.apply().unwrap();
        assert_eq!(at.map(class_of), [Some(2), Some(2), Some(2), None, None]);
        assert_eq!(all().unwrap(), networks[..1]);
        // One address of a network is not the network.
        let other = Change {
            remove: vec![client("10.0.0.0", 2)],
            ..Change::default()
        };
        other.apply().unwrap();
        assert_eq!(all().unwrap(), networks[..1]);
    });
}

/// A quarter of a million, because the guest's memory has no room for more on 6.1; a debug kernel has it for fewer.
#[test]
#[ignore = "needs the lab"]
fn lab_classes_of_very_many_networks_are_loaded_at_once() {
    with_table(|| {
        let network = |index: u32| {
            let first = 0x0a00_0000 + index * 16;
            let ends = [first, first + 15].map(|bits| IpAddr::V4(std::net::Ipv4Addr::from_bits(bits)));
            Network {
                first: ends[0],
                last: ends[1],
            }
        };
        let count = if debug::is_here() { 5_000 } else { 250_000 };
        let clients: Vec<Client> = (0..count)
            .map(|index| Client {
                network: network(index),
                class: index as usize % 5,
                timeout: None,
            })
            .collect();
        let begin = std::time::Instant::now();
        add(&clients).unwrap();
        println!("{count} networks: {:?}", begin.elapsed());
        let begin = std::time::Instant::now();
        add(&[client("192.0.2.1", 1)]).unwrap();
        add(&[client("192.0.2.1", 2)]).unwrap();
        println!("one more beside them, twice: {:?}", begin.elapsed());
        assert_eq!(
            (class_of("10.0.0.17"), class_of("192.0.2.1"), class_of("192.0.2.2")),
            (Some(1), Some(2), None)
        );
    });
}
