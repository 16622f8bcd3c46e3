//! Coming up where someone was before.

use super::scene::{Scene, ask, numbered};
use super::*;
use crate::rule::samples::{rules, udp};
use tarn_frame::journal::Undone;
use tarn_kernel::nft::delete_table;

/// An agent that comes after another finds everything in place, and what changed in the file is all that changes.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_adopts_what_an_earlier_agent_left() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:53", "10.0.1.3:53", "10.0.1.2:54"]);
    let set = numbered(vec![
        udp("192.168.64.2:53", "10.0.1.2:53", None),
        udp("192.168.64.2:54", "10.0.1.2:54", None),
        udp("192.168.64.2:55-60", "10.0.1.2:54", None),
    ]);
    scene.up(&set);
    let (kept, moved) = (
        scene.client("client", "192.168.64.1", "192.168.64.2:54"),
        scene.client("client", "192.168.64.1", "192.168.64.2:53"),
    );
    assert_eq!(
        (ask(&kept), ask(&moved)),
        ("server 10.0.1.2:54".into(), "server 10.0.1.2:53".into())
    );
    let nothing = scene.within("host", || scene.carrier().plan(&set).unwrap());
    assert!(nothing.iter().all(|line| line.starts_with('#')), "{nothing:?}");
    let before = scene.ruleset();
    scene.up(&set);
    assert_eq!(scene.ruleset(), before);
    let changed = [
        Rule {
            to: "10.0.1.3".parse().unwrap(),
            ..set[0].clone()
        },
        set[1].clone(),
    ];
    scene.up(&changed);
    assert_eq!(
        (ask(&kept), ask(&moved)),
        ("server 10.0.1.2:54".into(), "server 10.0.1.3:53".into())
    );
    assert_eq!(scene.answer("192.168.64.1", "192.168.64.2:57"), "[refused]");
    assert_eq!(
        scene.counters(&changed).iter().map(|c| c.packets).collect::<Vec<_>>(),
        [1, 2]
    );
    let changes = Journal::open(&scene.state()).unwrap().changes(STAGE).count();
    assert_eq!(changes, 1, "one table is one change, however often tarn came up");
}

/// What an administrator put into our table stays; a table of ours goes, and one of theirs by our name does not.
#[test]
#[ignore = "needs the lab"]
fn lab_nft_respects_what_an_administrator_did() {
    let scene = Scene::new();
    scene.serve("server", &["10.0.1.2:53", "10.0.1.3:53"]);
    let set = numbered(vec![
        udp("192.168.64.2:53", "10.0.1.2:53", None),
        udp("192.168.64.2:54", "10.0.1.2:53", None),
    ]);
    scene.up(&set);
    scene.nft("delete element inet tarn_redirect to4 { udp . 192.168.64.2 . 53 : 10.0.1.2 . 53 }");
    scene.nft("add element inet tarn_redirect to4 { udp . 192.168.64.2 . 53 : 10.0.1.3 . 53 }");
    scene.nft("add rule inet tarn_redirect steer4 udp dport 99 counter accept");
    let more = numbered(rules(
        &["tcp"],
        "192.168.64.2:53",
        "10.0.1.2:53",
        Some("192.168.64.0/24"),
    ));
    scene.change(&more, &[]);
    scene.up(&set);
    assert_eq!(scene.answer("192.168.64.1", "192.168.64.2:53"), "server 10.0.1.3:53");
    // Removing a rule of which an element is not ours any more, and adding it again, leave theirs.
    scene.change(&[], &set);
    assert_eq!(scene.answer("192.168.64.1", "192.168.64.2:54"), "[refused]");
    scene.change(&set, &[]);
    assert_eq!(scene.answer("192.168.64.1", "192.168.64.2:53"), "server 10.0.1.3:53");
    assert_eq!(scene.answer("192.168.64.1", "192.168.64.2:54"), "server 10.0.1.2:53");
    let down = || scene.within("host", || delete_table(FAMILY, TABLE).unwrap());
    let Undone::LeftAlone(left) = down() else {
        panic!("not left alone")
    };
    assert!(left.contains("rule") && left.contains("in chain steer4"), "{left}");
    let rest = scene.nft("list ruleset");
    assert!(
        rest.contains("udp dport 99") && !rest.contains("hook") && !rest.contains("elements"),
        "{rest}"
    );
    scene.nft("delete table inet tarn_redirect");
    scene.up(&set);
    assert_eq!((down(), down()), (Undone::PutBack, Undone::Gone));
    assert_eq!(scene.nft("list ruleset"), "");
    scene.nft("add table inet tarn_redirect");
    assert!(matches!(down(), Undone::LeftAlone(_)));
    let refused = scene.within("host", || scene.carrier().plan(&set).unwrap_err().to_string());
    assert!(refused.contains("that tarn did not make"), "{refused}");
}
