//! What else a host does with packets that pass it: its firewall, and IPsec. Redirected packets meet it, or an administrator
//! learns that they do not.

use super::program::{asked, configuration, log};
use super::scene::{FAMILIES, Scene, V4, at, named, near};
use super::way::Way;
use crate::rule::Protocol;
use tarn_frame::testing::wait_until;
use tarn_lab::testing::Program;

/// The kernel compares what the client sent, before translation.
const LOCKED: &str = "xfrm policy add src 192.168.64.0/24 dst 192.168.64.2 dir fwd action block";
const BYPASSED: &str = "do not meet the firewall's rules in 'inet administrator forward'";
const UNGUARDED: &str = "no nftables rule says what this host may forward";

/// A host whose kernel knows IPsec; `None`, with the reason printed, where it does not.
fn scene(way: Way) -> Option<Scene> {
    let scene = Scene::of(way, &near(way, false));
    for family in &FAMILIES {
        scene.serve("server", at(family.server, 8083));
    }
    if scene.namespace("host").ip("xfrm policy list").is_err() {
        println!("SKIP: this kernel has no IPsec");
        return None;
    }
    Some(scene)
}

fn is_answered(scene: &Scene) -> bool {
    let answer = scene.who(Protocol::Udp, "client", V4.client, asked(&V4));
    answer == named("server", at(V4.server, 8083))
}

/// What a policy forbids to pass, or asks to be encrypted, does not pass in clear because BPF redirects it: `tarn up` says
/// no where BPF was asked for, and takes nftables where the choice is tarn's.
pub fn lab_with_ipsec_policies_has_them_obeyed(way: Way) {
    let Some(scene) = scene(way) else { return };
    let host = scene.namespace("host");
    host.ip(LOCKED).unwrap();
    let text = configuration(way);
    let program = Program::new(host, &text);
    if way != Way::Nftables {
        let refused = program.complaint("up");
        assert!(
            refused.contains("IPsec policies") && refused.contains("mode = \"nftables\""),
            "{refused}"
        );
        let (_, checked) = program.command_line("tarn check redirect");
        assert!(checked.contains("IPsec policies"), "{checked}");
    }
    program.configure(
        &text
            .replace("mode = \"bpf\"\n", "")
            .replace("mode = \"nftables\"\n", ""),
    );
    program.run("up");
    let (_, status) = program.command_line("tarn status --json");
    assert!(status.contains("\"nftables\""), "{status}");
    assert!(!is_answered(&scene), "the policy is not obeyed");
    host.ip(&LOCKED.replace("add", "delete").replace(" action block", ""))
        .unwrap();
    assert!(is_answered(&scene));
    program.run("down");
}

/// Policies that appear while BPF redirects are obeyed from then on: nftables takes over where the choice was tarn's, and
/// nothing is redirected any more where it was not. The log has one line about it.
pub fn lab_obeys_ipsec_policies_that_appear(way: Way) {
    let Some(scene) = scene(way) else { return };
    let host = scene.namespace("host");
    let text = configuration(way);
    for (mode, carries) in [("mode = \"auto\"\n", true), ("mode = \"bpf\"\n", way == Way::Nftables)] {
        let program = Program::new(host, &text.replace("mode = \"bpf\"\n", mode));
        program.run("up");
        assert!(is_answered(&scene));
        host.ip(LOCKED).unwrap();
        if way != Way::Nftables {
            wait_until("the agent has seen it", || log(&program).contains("IPsec policies"));
        }
        assert!(!is_answered(&scene), "the policy is not obeyed");
        let unlock = LOCKED.replace("add", "delete").replace(" action block", "");
        host.ip(&unlock).unwrap();
        assert_eq!(is_answered(&scene), carries, "{mode}");
        let (_, status) = program.command_line("tarn status");
        assert_eq!(status.contains("nothing is redirected"), !carries, "{status}");
        let lines = log(&program).matches("IPsec policies").count();
        assert_eq!(lines, usize::from(way != Way::Nftables), "{}", log(&program));
        program.run("up");
        assert!(is_answered(&scene));
        program.run("down");
    }
}

/// Policies that appear while no agent lives are obeyed from the next `tarn up` on, also where it says no; `tarn status` says what is
/// the matter before.
pub fn lab_obeys_ipsec_policies_that_appear_without_an_agent(way: Way) {
    let Some(scene) = scene(way) else { return };
    let host = scene.namespace("host");
    let program = Program::new(host, &configuration(way));
    program.run("up");
    assert!(is_answered(&scene));
    program.kill_agent();
    host.ip(LOCKED).unwrap();
    assert!(is_answered(&scene), "nobody has seen it");
    let (_, status) = program.command_line("tarn status");
    assert!(status.contains("past IPsec policies"), "{status}");
    let (code, refused) = program.command_line(&format!("tarn up --config {}", program.configuration().display()));
    assert_eq!(code, 3, "{refused}");
    assert!(refused.contains("IPsec policies"), "{refused}");
    assert!(!is_answered(&scene), "the policy is not obeyed");
    let (_, status) = program.command_line("tarn status");
    assert!(status.contains("nothing is"), "{status}");
    let unlock = LOCKED.replace("add", "delete").replace(" action block", "");
    host.ip(&unlock).unwrap();
    program.run("up");
    assert!(is_answered(&scene));
    program.run("down");
}

/// Who relies on a forward chain learns from `tarn up` and `tarn check` that BPF goes past it, and which key decides.
pub fn lab_says_what_its_packets_bypass(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    let host = scene.namespace("host");
    let program = Program::new(host, &configuration(way));
    let told = program.remarks("up");
    assert!(!told.contains("firewall"), "{told}");
    program.run("down");
    let ruleset = "table inet administrator {
        chain input { type filter hook input priority 0; ct state established accept; }
        chain forward { type filter hook forward priority 0; policy accept; }
    }";
    host.run("nft", &[ruleset]).unwrap();
    let told = program.remarks("up");
    assert!(!told.contains("firewall"), "it has no rules: {told}");
    program.run("down");
    host.run("nft", &["add rule inet administrator forward tcp dport 22 drop"])
        .unwrap();
    let told = program.remarks("up");
    assert_eq!(told.contains(BYPASSED), way != Way::Nftables, "{told}");
    assert_eq!(told.contains("mode = \"nftables\""), way != Way::Nftables, "{told}");
    let (_, checked) = program.command_line("tarn check redirect");
    assert!(checked.replace('\n', " ").contains("administrator"), "{checked}");
    program.run("down");
}

/// A host that forwards nothing becomes a router by `tarn up`, for everybody who can reach it: where no firewall rule says
/// what it may forward, its administrator is told.
pub fn lab_says_that_it_forwards_whatever_comes(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    let host = scene.namespace("host");
    for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        host.sysctl(name, "0").unwrap();
    }
    let program = Program::new(host, &configuration(way));
    let told = program.remarks("up");
    assert_eq!(told.matches(UNGUARDED).count(), 1, "{told}");
    assert!(
        told.contains("net.ipv4.ip_forward, net.ipv6.conf.all.forwarding"),
        "{told}"
    );
    let told = program.remarks("up");
    assert!(!told.contains(UNGUARDED), "it is on already: {told}");
    program.run("down");
    let guard =
        "add table inet guard; add chain inet guard forward { type filter hook forward priority 0; policy drop; }";
    host.run("nft", &[guard]).unwrap();
    let told = program.remarks("up");
    assert!(!told.contains(UNGUARDED), "{told}");
    program.run("down");
}
