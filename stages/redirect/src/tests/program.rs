//! The whole program, as its users run it: `tarn up` and `tarn down` as processes, `/run/tarn`, the agent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use super::scene::{FAMILIES, Family, Scene, WHO, ask, at, named, near};
use super::serve;
use super::traffic::Traffic;
use super::way::Way;
use tarn_frame::state::StateDirectory;
use tarn_frame::testing::wait_until;
use tarn_kernel::attach::Direction;
use tarn_kernel::{attach, links};
use tarn_lab::testing::{Program, is_thorough};
use tarn_lab::topology::Namespace;

/// How long traffic goes on where something could go wrong with a delay.
const A_WHILE: Duration = Duration::from_millis(300);

/// What an administrator would lay side by side, by what prints it.
type Dump = BTreeMap<String, String>;

fn dump(host: &Namespace) -> Dump {
    let mut filters = String::from("qdisc show\n");
    for device in ["lo", "left", "right"] {
        for side in ["ingress", "egress", "root"] {
            writeln!(filters, "filter show dev {device} {side}").unwrap();
        }
    }
    // A process for each would take the time of a test of its own.
    let batches = [
        (
            "ip -details -batch -",
            "link show\naddress show\nroute show table all\n",
        ),
        ("ip -6 -batch -", "route show table all\n"),
        ("tc -batch -", filters.as_str()),
        ("nft -f -", "list ruleset\n"),
    ];
    let mut dump = Dump::new();
    for (program, commands) in batches {
        let words: Vec<&str> = program.split(' ').collect();
        let printed = host.run_with_input(words[0], &words[1..], commands).unwrap();
        dump.insert(program.into(), printed);
    }
    host.enter(|| {
        dump.insert("BPF programs of the devices".into(), programs());
        dump.insert("/run/tarn".into(), run_directory());
        sysctls(Path::new("/proc/sys/net"), &mut dump);
        Ok(())
    })
    .unwrap();
    dump
}

/// The ids of the programs at each device's hooks.
fn programs() -> String {
    let mut text = String::new();
    for link in links::all().unwrap() {
        let xdp = attach::xdp_program(link.index).unwrap();
        writeln!(text, "{} xdp {xdp:?}", link.name).unwrap();
        for direction in [Direction::Ingress, Direction::Egress] {
            let tcx = attach::tcx_programs(link.index, direction).unwrap_or_default();
            writeln!(text, "{} tcx {} {tcx:?}", link.name, direction.name()).unwrap();
        }
    }
    text
}

/// What is about this namespace in `/run/tarn`. Other namespaces' directories are none of this test's business.
fn run_directory() -> String {
    let ours = StateDirectory::of_this_namespace().unwrap();
    let entries = fs::read_dir("/run/tarn").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&ours.name())).collect()
}

/// Every parameter below `directory` that can be read, but those that count or are drawn by lot.
fn sysctls(directory: &Path, dump: &mut Dump) {
    const MOVING: [&str; 3] = ["nf_conntrack_count", "stat_", "netdev_rss_key"];
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let shown = path.display().to_string();
        if path.is_dir() {
            sysctls(&path, dump);
        } else if !MOVING.iter().any(|part| shown.contains(part))
            && let Ok(value) = fs::read_to_string(&path)
        {
            dump.insert(shown, value);
        }
    }
}

/// Panics with every difference. nftables and connection tracking bring parameters of their own when their modules are
/// loaded, and a module that is loaded stays: those are no difference.
fn assert_same(before: &Dump, after: &Dump) {
    let mut differences = String::new();
    for name in before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)))
    {
        let of_a_module = !before.contains_key(name) && name.starts_with("/proc/sys/net/netfilter");
        let (was, is) = (before.get(name), after.get(name));
        if was != is && !of_a_module {
            let missing = |here: Option<&String>, there: Option<&String>| -> Vec<String> {
                let other: Vec<&str> = there.into_iter().flat_map(|text| text.lines()).collect();
                let lines = here.into_iter().flat_map(|text| text.lines());
                lines.filter(|line| !other.contains(line)).map(str::to_string).collect()
            };
            let (gone, new) = (missing(was, is), missing(is, was));
            writeln!(differences, "{name}\n  before: {gone:#?}\n  after: {new:#?}").unwrap();
        }
    }
    assert!(differences.is_empty(), "the host is not as it was:\n{differences}");
}

/// The default sizes are for one way in one test; the others are spared the time to make room for so much.
pub fn configuration(way: Way) -> String {
    let mut text = String::from("[redirect]\nmax_rules = 1024\n");
    if way != Way::Nftables {
        text += "flows = 4096\n";
    }
    text += match way {
        Way::Nftables => "mode = \"nftables\"\n",
        Way::Tc => "mode = \"bpf\"\ndeliver = \"tc\"\n",
        Way::XdpRedirect => "mode = \"bpf\"\ndeliver = \"redirect\"\n",
    };
    for family in FAMILIES {
        let (from, to) = (asked(&family), at(family.server, 8083));
        let rule = format!("[[redirect.rule]]\nprotocol = [\"tcp\", \"udp\"]\nfrom = \"{from}\"\nto = \"{to}\"\n");
        text += &rule;
    }
    text
}

pub fn asked(family: &Family) -> std::net::SocketAddr {
    at(family.host, 8080)
}

/// A host with something of everything that tarn changes: forwarding off, a ruleset of its administrator's, a clsact
/// with a filter on one device and none on the other.
pub fn prepare(scene: &Scene) {
    let host = scene.namespace("host");
    for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        host.sysctl(name, "0").unwrap();
    }
    // Connections are tracked without tarn, and after it.
    let ruleset = "table inet administrator {
        chain input { type filter hook input priority 0; ct state established accept; }
        chain forward { type filter hook forward priority 0; ct state established accept; }
    }";
    host.run("nft", &[ruleset]).unwrap();
    host.tc("qdisc add dev left clsact").unwrap();
    host.tc("filter add dev left ingress protocol ip u32 match u32 0 0 flowid 1:1")
        .unwrap();
    for family in FAMILIES {
        scene.serve("server", at(family.server, 8083));
        scene.serve("host", asked(&family));
    }
    // Neighbours are known and links carry: what comes by itself in a young network is there.
    wait_until("the links carry", || {
        host.ip("link show").unwrap().matches("state UP").count() == 2
            && !host.ip("-6 address show").unwrap().contains("tentative")
    });
}

/// `tarn up`; the agent is killed and its clients notice nothing; `tarn up` adopts what is there without losing one of
/// their packets; after `tarn down` the host is as it was, in all that an administrator could compare.
pub fn lab_outlives_its_agent_and_leaves_the_host_as_it_was(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let mut text = configuration(way);
    if way == Way::XdpRedirect {
        text = text.replace("max_rules = 1024\nflows = 4096\n", "");
    }
    let program = Program::new(scene.namespace("host"), &text);
    let before = dump(program.host);
    // They speak to the host before, and after; and it is the host that answers.
    let socket = |family: Family| (family, scene.udp("client", at(family.client, 0)));
    let clients = FAMILIES.map(socket);
    let expect_host = || {
        for (family, socket) in &clients {
            let answer = ask(socket, asked(family), WHO).map_or_else(serve::failure, serve::text);
            assert_eq!(answer, named("host", asked(family)), "a client of before");
            scene.expect(family.client, asked(family), &named("host", asked(family)));
        }
    };
    let expect = || {
        for (family, socket) in &clients {
            let server = named("server", at(family.server, 8083));
            let answer = ask(socket, asked(family), WHO).map_or_else(serve::failure, serve::text);
            assert_eq!(answer, server, "a client of before");
            scene.expect(family.client, asked(family), &server);
        }
    };
    for _ in 0..if is_thorough() { 2 } else { 1 } {
        expect_host();
        program.run("up");
        expect();
        let start = |family: &Family| Traffic::start(scene.udp("client", at(family.client, 0)), asked(family));
        let traffic: Vec<Traffic> = FAMILIES.iter().map(start).collect();
        let first = program.kill_agent();
        expect();
        std::thread::sleep(A_WHILE);
        program.run("up");
        std::thread::sleep(A_WHILE);
        assert_ne!(program.kill_agent(), first);
        // And once more with an agent that lives.
        program.run("up");
        program.run("up");
        expect();
        std::thread::sleep(A_WHILE);
        traffic
            .into_iter()
            .for_each(|traffic| traffic.end("a change of agents"));
        program.run("down");
        assert_same(&before, &dump(program.host));
        expect_host();
    }
}

/// An agent puts its programs in the place of those that run, and is killed before it could say so. The next one finds
/// them and keeps them: no client loses a packet, and `tarn down` still knows what to put back.
pub fn lab_loses_nothing_when_an_agent_dies_while_it_takes_over(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let program = Program::new(scene.namespace("host"), &configuration(way));
    let before = dump(program.host);
    program.run("up");
    let start = |family: &Family| Traffic::start(scene.udp("client", at(family.client, 0)), asked(family));
    let traffic: Vec<Traffic> = FAMILIES.iter().map(start).collect();
    program.run("up");
    program.kill_agent();
    let journal = program.state().path().join("journal");
    let written = fs::read_to_string(&journal).unwrap();
    let (earlier, last) = written.split_at(written.rfind("{\"begin\"").unwrap());
    let unsaid = |line: &&str| !line.starts_with("{\"superseded\"") && !line.starts_with("{\"complete\"");
    let cut: Vec<&str> = last.lines().filter(unsaid).collect();
    fs::write(&journal, format!("{earlier}{}\n", cut.join("\n"))).unwrap();
    program.run("up");
    std::thread::sleep(A_WHILE);
    traffic
        .into_iter()
        .for_each(|traffic| traffic.end("a crash while taking over"));
    program.run("down");
    assert_same(&before, &dump(program.host));
}

/// A `tarn up` with other rules fails at its very end: what it had done already is taken back, and clients are served
/// by the rules of before, which are also those that `tarn redirect list` shows.
pub fn lab_carries_on_with_the_rules_of_before_when_up_fails(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let program = Program::new(scene.namespace("host"), &configuration(way));
    let before = dump(program.host);
    program.run("up");
    let elsewhere = configuration(way).replace("8083", "9999");
    program.configure(&elsewhere);
    // In the way of the last file that `up` writes.
    let obstacle = program.state().path().join("redirect.json.new");
    fs::create_dir(&obstacle).unwrap();
    assert!(!program.succeeds("up"));
    for family in FAMILIES {
        let server = at(family.server, 8083);
        scene.expect(family.client, asked(&family), &named("server", server));
    }
    let listed = fs::read_to_string(program.state().path().join("rules.jsonl")).unwrap();
    assert!(listed.contains("8083") && !listed.contains("9999"), "{listed}");
    fs::remove_dir(&obstacle).unwrap();
    program.run("down");
    assert_same(&before, &dump(program.host));
}

/// Debian's nftables.service begins with an empty ruleset each time that it is loaded. Within a second clients are served
/// as before, and the log has a line about it. BPF does not notice. A table that a process owns, as firewalld's may be, stays
/// then, and does not make it look as if somebody had deleted tarn's alone.
pub fn lab_restores_what_a_new_firewall_has_flushed(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let program = Program::new(scene.namespace("host"), &configuration(way));
    program.run("up");
    let expect = || {
        for family in FAMILIES {
            scene.expect(family.client, asked(&family), &named("server", at(family.server, 8083)));
        }
    };
    expect();
    let owner = Owner::of_a_table(program.host);
    for _ in 0..2 {
        program.host.run("nft", &["flush", "ruleset"]).unwrap();
        let tables = program.host.run("nft", &["list", "tables"]).unwrap();
        assert!(tables.contains("owned"), "{tables}");
        std::thread::sleep(Duration::from_secs(1));
        expect();
    }
    let (_, status) = program.command_line("tarn status");
    assert!(!status.contains("nothing is redirected"), "{status}");
    let lines = log(&program).matches("they are restored").count();
    assert_eq!(lines, if way == Way::Nftables { 2 } else { 0 }, "{}", log(&program));
    drop(owner);
    program.run("down");
}

/// A process that owns a table of nftables.
struct Owner(Child);

impl Owner {
    fn of_a_table(host: &Namespace) -> Self {
        let mut command = host.command("nft");
        let mut process = command
            .arg("-i")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let input = process.stdin.as_mut().unwrap();
        input.write_all(b"add table inet owned { flags owner; }\n").unwrap();
        let owner = Self(process);
        wait_until("nft makes a table", || {
            host.run("nft", &["list", "tables"]).unwrap().contains("owned")
        });
        owner
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The administrator wins: who deletes tarn's table by hand, or empties a chain of it, wants it gone. It is not restored
/// behind his back, the log and `tarn status` say what it means, and `tarn up` makes it anew.
pub fn lab_leaves_alone_what_was_deleted_by_hand(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let program = Program::new(scene.namespace("host"), &configuration(way));
    let expect = |node: &str| {
        for family in FAMILIES {
            let at = if node == "host" {
                asked(&family)
            } else {
                at(family.server, 8083)
            };
            scene.expect(family.client, asked(&family), &named(node, at));
        }
    };
    for deletion in [
        "delete table inet tarn_redirect",
        "flush chain inet tarn_redirect prerouting",
    ] {
        program.run("up");
        expect("server");
        let lines = || log(&program).matches("they are left alone").count();
        let before = lines();
        program.host.run("nft", &[deletion]).unwrap();
        std::thread::sleep(Duration::from_secs(5));
        assert_eq!(lines(), before + 1, "{}", log(&program));
        expect("host");
        let (_, status) = program.command_line("tarn status");
        assert!(status.contains("nothing is redirected"), "{status}");
    }
    program.run("up");
    expect("server");
    // What follows is a reload again.
    program.host.run("nft", &["flush ruleset"]).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    expect("server");
    program.run("down");
}

/// What the agent has logged.
pub fn log(program: &Program<'_>) -> String {
    fs::read_to_string(program.state().path().join("log")).unwrap()
}

/// Somebody turns forwarding off: it stays off, for the administrator wins, but `status` and the log say why no client is
/// answered, until it is on again.
pub fn lab_says_that_nothing_passes_without_forwarding(way: Way) {
    let scene = Scene::of(way, &near(way, false));
    prepare(&scene);
    let program = Program::new(scene.namespace("host"), &configuration(way));
    program.run("up");
    for (family, name) in FAMILIES
        .iter()
        .zip(["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"])
    {
        let complaint = format!("somebody has set {} to 0", name.replace('/', "."));
        let is_told = |expected: bool| {
            let (_, status) = program.command_line("tarn status");
            assert_eq!(status.contains(&complaint), expected, "{status}");
        };
        is_told(false);
        program.host.sysctl(name, "0").unwrap();
        std::thread::sleep(Duration::from_secs(5));
        is_told(true);
        assert_eq!(log(&program).matches(&complaint).count(), 1, "{}", log(&program));
        assert_eq!(
            scene.who(crate::rule::Protocol::Udp, "client", family.client, asked(family)),
            "[silence]"
        );
        program.host.sysctl(name, "1").unwrap();
        std::thread::sleep(Duration::from_secs(5));
        is_told(false);
        scene.expect(family.client, asked(family), &named("server", at(family.server, 8083)));
        assert!(log(&program).contains("again"), "{}", log(&program));
    }
    program.run("down");
}
