//! What the kernel makes of our messages, as iproute2 shows it.

use serde_json::{Value, json};

use super::*;
use tarn_kernel::features::{Host, Release};
use tarn_kernel::route;
use tarn_lab::topology::{End, Network, Node, Topology};

fn network() -> Network {
    let end = |node, number: u8| {
        End::new(node, &format!("wan{number}"))
            .address(&format!("10.{number}.0.{}/24", if node == "host" { 2 } else { 1 }))
            .address(&format!("fd0{number}::{}/64", if node == "host" { 2 } else { 1 }))
    };
    Topology::new()
        .node(Node::new("host"))
        .node(Node::new("far"))
        .link(end("host", 1), end("far", 1))
        .link(end("host", 2), end("far", 2))
        .build()
        .unwrap()
}

fn index(network: &Network, device: &str) -> u32 {
    let all = || tarn_kernel::links::carrying();
    network.namespace("host").unwrap().enter(all).unwrap()[device]
}

fn shown(network: &Network, id: u32) -> Value {
    let host = network.namespace("host").unwrap();
    let text = host.ip(&format!("-d -j nexthop show id {id}")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[0].clone()
}

fn single(id: u32, device: u32, gateway: &str) -> Nexthop {
    Nexthop {
        id,
        device,
        gateway: Some(gateway.parse().unwrap()),
        is_ipv6: false,
        is_onlink: false,
    }
}

fn group(weights: [u32; 2]) -> Group {
    let members = [7, 8]
        .into_iter()
        .zip(weights)
        .map(|(id, weight)| Member { id, weight });
    Group {
        id: 70,
        members: members.collect(),
        buckets: 64,
        idle: Duration::from_secs(5),
    }
}

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_nexthops_and_groups_are_what_ip_shows() {
    let network = network();
    let (one, two) = (index(&network, "wan1"), index(&network, "wan2"));
    let host = network.namespace("host").unwrap();
    let set = |weights| {
        host.enter(|| {
            let mut netlink = route::open()?;
            set(&mut netlink, &single(7, one, "10.1.0.1"))?;
            set(&mut netlink, &single(8, two, "fd02::1"))?;
            set_group(&mut netlink, &group(weights))?;
            Ok(find(&mut netlink, 70)?.unwrap())
        })
        .unwrap()
    };
    let found = set([1, 256]);
    assert_eq!(found.members, group([1, 256]).members);
    assert!(found.is_ours() && found.buckets == Some(64));
    let seven = shown(&network, 7);
    assert_eq!(
        (&seven["gateway"], &seven["dev"], &seven["protocol"]),
        (&json!("10.1.0.1"), &json!("wan1"), &json!("116"))
    );
    assert_eq!(shown(&network, 8)["gateway"], "fd02::1");
    let shown_group = shown(&network, 70);
    // A weight of 1 is not shown.
    assert_eq!(shown_group["group"], json!([{"id": 7}, {"id": 8, "weight": 256}]));
    assert_eq!(shown_group["type"], "resilient");
    let arguments = &shown_group["resilient_args"];
    assert_eq!(
        (&arguments["buckets"], &arguments["idle_timer"]),
        (&json!(64), &json!(5))
    );
    // And again with others: the number of buckets is the same, and nothing has to be removed first.
    assert_eq!(set([3, 200]).members, group([3, 200]).members);
}

/// The kernel's version does not tell: Debian's 6.1 has what mainline has since 6.12.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_great_weights_are_taken_where_the_kernel_says_so() {
    let network = network();
    let (one, two) = (index(&network, "wan1"), index(&network, "wan2"));
    let outcome = network.namespace("host").unwrap().enter(|| {
        let mut netlink = route::open()?;
        let takes = takes_great_weights(&mut netlink, [98, 99])?;
        assert_eq!((find(&mut netlink, 98)?, find(&mut netlink, 99)?), (None, None));
        set(&mut netlink, &single(7, one, "10.1.0.1"))?;
        set(&mut netlink, &single(8, two, "10.2.0.1"))?;
        let set = set_group(&mut netlink, &group([1, WEIGHT_MOST]));
        let found = find(&mut netlink, 70)?.map(|found| found.members);
        Ok((takes, set.map_err(|error| refusal(&error)), found))
    });
    let (takes, set, found) = outcome.unwrap();
    let expected = match takes {
        true => (Ok(()), Some(group([1, WEIGHT_MOST]).members)),
        false => (Err(Some(Errno::EINVAL)), None),
    };
    assert_eq!((set, found), expected);
    let new = Release {
        major: 6,
        minor: 12,
        patch: 0,
    };
    assert!(takes || !Host::this().kernel_since(new).is_present());
}

/// What our own decoder makes of our own encoder's work would hide a mistake of both: flows would be shared by other weights than
/// those decided. An `ip` before 6.12 knows the low byte only; the bytes on the wire are looked at there, as the kernel's header
/// has them.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_great_weights_are_what_ip_shows() {
    const WEIGHT: u32 = 0x1234 + 1;
    let network = network();
    let (one, two) = (index(&network, "wan1"), index(&network, "wan2"));
    let host = network.namespace("host").unwrap();
    let answer = host.enter(|| {
        let mut netlink = route::open()?;
        if !takes_great_weights(&mut netlink, [98, 99])? {
            return Ok(None);
        }
        set(&mut netlink, &single(7, one, "10.1.0.1"))?;
        set(&mut netlink, &single(8, two, "10.2.0.1"))?;
        set_group(&mut netlink, &group([1, WEIGHT]))?;
        netlink
            .request(RTM_GETNEXTHOP, libc::NLM_F_ACK as u16, &by_number(70))
            .map(Some)
    });
    let Some(answer) = answer.unwrap() else { return };
    let member = [&8_u32.to_ne_bytes()[..], &[0x34, 0x12, 0, 0]].concat();
    let bytes = &answer[0].payload;
    assert!(bytes.windows(member.len()).any(|window| window == member), "{bytes:x?}");
    let version = host.ip("-V").unwrap();
    let (_, version) = version.trim().split_once("iproute2-").unwrap();
    let mut numbers = version
        .split(['.', ','])
        .map(|number| number.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) >= (Some(6), Some(12)) {
        assert_eq!(
            shown(&network, 70)["group"],
            json!([{"id": 7}, {"id": 8, "weight": WEIGHT}])
        );
    }
}

/// With the weight of what happened to be in the kernel's memory, a group would be taken for changed by somebody else.
#[test]
fn what_an_old_kernel_reserves_is_no_weight() {
    let told = decode_member(&[7, 0, 0, 0, 9, 0xa5, 0x5a, 0xa5]).unwrap();
    let weight = |most| told.weighed(most).weight;
    assert_eq!((weight(WEIGHT_MOST_OLD), weight(WEIGHT_MOST)), (10, 0xa509 + 1));
    let greatest = Member {
        id: 7,
        weight: WEIGHT_MOST_OLD,
    };
    assert_eq!(greatest.weighed(WEIGHT_MOST_OLD), greatest);
}

/// A gateway in no network of the host's is refused without the flag.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_a_gateway_on_the_link_is_what_ip_shows() {
    let network = network();
    let one = index(&network, "wan1");
    let onlink = Nexthop {
        is_onlink: true,
        ..single(7, one, "10.99.0.1")
    };
    let six = Nexthop {
        is_onlink: true,
        ..single(8, one, "2001:db8::1")
    };
    let found = network.namespace("host").unwrap().enter(|| {
        let mut netlink = route::open()?;
        set(&mut netlink, &onlink)?;
        set(&mut netlink, &six)?;
        find(&mut netlink, 7)
    });
    assert_eq!(found.unwrap().unwrap().flags & ONLINK, ONLINK);
    for (id, gateway) in [(7, "10.99.0.1"), (8, "2001:db8::1")] {
        let shown = shown(&network, id);
        assert_eq!(
            (&shown["gateway"], &shown["dev"], &shown["flags"]),
            (&json!(gateway), &json!("wan1"), &json!(["onlink"]))
        );
    }
}

/// A refusal has to say what is wrong, in the kernel's words.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_a_gateway_that_is_not_behind_the_device_is_refused_with_reason() {
    let network = network();
    let one = index(&network, "wan1");
    let outcome = network.namespace("host").unwrap().enter(|| {
        let mut netlink = route::open()?;
        let refused = set(&mut netlink, &single(7, one, "10.99.0.1")).unwrap_err();
        Ok((refused.to_string(), remove(&mut netlink, 7)?, find(&mut netlink, 7)?))
    });
    let (told, removed, found) = outcome.unwrap();
    assert!(told.contains("gateway"), "{told}");
    assert_eq!((removed, found), (false, None));
}
