//! Which devices get `fq`, and by which commands.

use super::*;

fn qdisc(kind: &str, handle: u32, parent: u32) -> Qdisc {
    Qdisc {
        kind: kind.to_owned(),
        options: Vec::new(),
        handle,
        parent,
    }
}

/// What the kernel puts on a device with two queues.
fn two_of(kind: &str) -> Vec<Qdisc> {
    vec![qdisc("mq", 0, ROOT), qdisc(kind, 0, 1), qdisc(kind, 0, 2)]
}

#[test]
fn only_the_kernel_s_own_choice_gives_way() {
    assert_eq!(obstacle(&[qdisc("pfifo_fast", 0, ROOT)], false), None);
    assert_eq!(obstacle(&two_of("fq_codel"), false), None);
    let kept = [vec![], vec![qdisc("noqueue", 0, ROOT)], vec![qdisc("cake", 1, ROOT)]];
    for qdiscs in kept {
        assert!(
            matches!(obstacle(&qdiscs, false), Some(Obstacle::Other(_))),
            "{qdiscs:?}"
        );
    }
    let taken_away = obstacle(&two_of("fq_codel"), true);
    assert!(matches!(taken_away, Some(Obstacle::Other(_))), "somebody else wins");
}

#[test]
fn a_device_that_has_fq_is_left_as_it_is() {
    for qdiscs in [
        vec![qdisc("fq", 0, ROOT)],
        two_of("fq"),
        vec![qdisc("mq", HANDLE, ROOT)],
    ] {
        assert_eq!(obstacle(&qdiscs, false), Some(Obstacle::Paces), "{qdiscs:?}");
    }
}

#[test]
fn commands_do_what_is_done() {
    assert_eq!(
        commands("eth0", &[qdisc("pfifo_fast", 0, ROOT)]),
        ["tc qdisc replace dev eth0 root handle 7ac0: fq"]
    );
    assert_eq!(
        commands("eth0", &two_of("fq_codel")),
        [
            "tc qdisc replace dev eth0 root handle 7ac0: mq",
            "tc qdisc replace dev eth0 parent 7ac0:1 fq",
            "tc qdisc replace dev eth0 parent 7ac0:2 fq",
        ]
    );
}

#[test]
fn groups_and_whole_families_go_everywhere() {
    let targets = |destinations: &[&str], groups: &[&str]| {
        let config = Config {
            destinations: destinations.iter().map(|prefix| prefix.parse().unwrap()).collect(),
            groups: groups.iter().map(Into::into).collect(),
            ..Config::default()
        };
        let targets = targets(&config);
        targets.iter().map(IpAddr::to_string).collect::<Vec<_>>()
    };
    assert_eq!(targets(&["192.0.2.0/24"], &[]), ["192.0.2.0"]);
    assert_eq!(
        targets(&["192.0.2.0/24"], &["a"]),
        [ELSEWHERE[0], ELSEWHERE[1], "192.0.2.0"]
    );
    assert_eq!(targets(&["0.0.0.0/0"], &[]), [ELSEWHERE[0]]);
    assert_eq!(targets(&["::/0", "10.0.0.0/8"], &[]), [ELSEWHERE[1], "10.0.0.0"]);
}
