//! The queueing discipline of the devices that connections leave by.

use std::fs::File;

use nix::sched::{CloneFlags, setns};

use super::available;
use crate::registration::NAME;
use tarn_kernel::cgroup;
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

/// A host whose way to everywhere is by a device with so many queues, which throws everything away.
fn host(queues: u32) -> Namespace {
    let host = Namespace::new("host").unwrap();
    host.ip(&format!("link add eth0 numtxqueues {queues} type ifb"))
        .unwrap();
    host.ip("link set eth0 up").unwrap();
    host.ip("address add 10.7.0.1/24 dev eth0").unwrap();
    host.ip("route add default via 10.7.0.2").unwrap();
    host
}

/// What `tc` shows, without what it has counted.
fn qdiscs(host: &Namespace) -> String {
    host.tc("qdisc show dev eth0").unwrap()
}

const FOR_ALL: &str = "[pace]\nfor = \"all\"\n";

#[test]
#[ignore = "needs the lab"]
fn lab_kernel_pace_has_fq_while_it_is_up_and_gives_back_what_was() {
    for queues in [1, 4] {
        let host = host(queues);
        let before = qdiscs(&host);
        assert!(!before.contains("qdisc fq "), "{before}");
        let program = Program::new(&host, FOR_ALL);
        program.run("up");
        let during = qdiscs(&host);
        assert_eq!(during.matches("qdisc fq ").count(), queues as usize, "{during}");
        program.run("up");
        assert_eq!(qdiscs(&host), during, "a second time changes nothing");
        program.configure("[pace]\nfor = \"all\"\nfq = \"off\"\n");
        program.run("up");
        assert_eq!(qdiscs(&host), before);
        program.configure("[pace]\nfor = \"all\"\nfq = [\"eth0\"]\n");
        program.run("up");
        program.kill_agent();
        program.run("down");
        assert_eq!(qdiscs(&host), before);
    }
}

/// A router's queue is kept short by fq_codel for everybody; CAKE was chosen by somebody.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_leaves_queues_alone_that_others_need_or_have_chosen() {
    let router = host(1);
    let chosen = host(1);
    chosen.tc("qdisc add dev eth0 root cake bandwidth 10mbit").unwrap();
    for (host, forwards) in [(&router, "1"), (&chosen, "0")] {
        host.sysctl("net/ipv4/ip_forward", forwards).unwrap();
        let before = qdiscs(host);
        let program = Program::new(host, FOR_ALL);
        program.run("up");
        assert_eq!(qdiscs(host), before);
        program.run("down");
        assert_eq!(qdiscs(host), before);
    }
    router.sysctl("net/ipv4/ip_forward", "0").unwrap();
    let program = Program::new(&router, FOR_ALL);
    program.run("up");
    assert!(qdiscs(&router).contains("qdisc fq "), "it forwards nothing any more");
    router.sysctl("net/ipv4/ip_forward", "1").unwrap();
    program.run("up");
    assert!(!qdiscs(&router).contains("qdisc fq "), "it forwards again");
    program.run("down");
}

/// An administrator who chooses or sets up another one while tarn is up keeps it, whatever its handle.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_leaves_a_queue_alone_that_somebody_has_changed() {
    let changes = [
        (1, vec!["replace dev eth0 root handle 9: fq_codel"]),
        (1, vec!["del dev eth0 root", "add dev eth0 root handle 7ac0: fq_codel"]),
        (1, vec!["change dev eth0 root fq maxrate 100mbit"]),
        (1, vec!["del dev eth0 root"]),
        (4, vec!["replace dev eth0 parent 7ac0:2 fq_codel"]),
        (4, vec!["replace dev eth0 parent 7ac0:3 fq limit 77"]),
    ];
    for (queues, changes) in changes {
        let host = host(queues);
        let program = Program::new(&host, FOR_ALL);
        program.run("up");
        let ours = qdiscs(&host);
        for change in &changes {
            host.tc(&format!("qdisc {change}")).unwrap();
        }
        let changed = qdiscs(&host);
        assert_ne!(changed, ours, "{changes:?}");
        program.run("up");
        assert_eq!(qdiscs(&host), changed, "up after {changes:?}");
        program.run("down");
        assert_eq!(qdiscs(&host), changed, "down after {changes:?}");
    }
}

/// A device that is renamed is the same device.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_keeps_fq_on_a_device_that_is_renamed() {
    let host = host(1);
    let before = qdiscs(&host);
    let program = Program::new(&host, FOR_ALL);
    program.run("up");
    let during = qdiscs(&host);
    for (from, to) in [("eth0", "wan0"), ("wan0", "eth0")] {
        // Kernels before 6.2 rename only what is down; that takes the way to everywhere along.
        for command in ["set %from down", "set %from name %to", "set %to up"] {
            let command = command.replace("%from", from).replace("%to", to);
            host.ip(&format!("link {command}")).unwrap();
        }
        host.ip("route add default via 10.7.0.2").unwrap();
        program.run("up");
    }
    assert_eq!(qdiscs(&host), during);
    host.ip("link set eth0 down").unwrap();
    host.ip("link set eth0 name wan0").unwrap();
    program.run("down");
    host.ip("link set wan0 name eth0").unwrap();
    host.ip("link set eth0 up").unwrap();
    assert_eq!(qdiscs(&host), before);
}

/// The network card on a cable that is pulled out is no reason to fail.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_goes_on_without_a_device_that_is_gone() {
    let host = host(1);
    let program = Program::new(&host, FOR_ALL);
    program.run("up");
    host.ip("link delete eth0").unwrap();
    program.run("up");
    program.run("down");
    program.configure("[pace]\nfq = [\"eth0\"]\n");
    let complaint = program.complaint("up");
    assert!(complaint.contains("no network device eth0"), "{complaint}");
    assert!(!available().contains(&NAME.to_owned()), "nothing was changed before");
}

/// Control groups' connections leave by the way to everywhere, though destinations are named that lie elsewhere.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_has_fq_where_groups_connections_leave_too() {
    let host = host(1);
    host.ip("link add eth1 type ifb").unwrap();
    host.ip("link set eth1 up").unwrap();
    host.ip("address add 10.8.0.1/24 dev eth1").unwrap();
    let group = cgroup::root().unwrap().join("anywhere.slice");
    std::fs::create_dir(&group).unwrap();
    let program = Program::new(&host, "");
    let paced = |section: &str| {
        program.configure(&format!("[pace]\n{section}\n"));
        program.run("up");
        ["eth0", "eth1"].map(|device| {
            let shown = host.tc(&format!("qdisc show dev {device}")).unwrap();
            shown.contains("qdisc fq ")
        })
    };
    assert_eq!(paced("for = [\"10.8.0.0/24\"]"), [false, true]);
    assert_eq!(
        paced("for = [\"10.8.0.0/24\"]\ncgroups = [\"anywhere.slice\"]"),
        [true, true]
    );
    assert_eq!(paced("for = [\"0.0.0.0/0\"]"), [true, false]);
    program.run("down");
    std::fs::remove_dir(&group).unwrap();
}

/// The kernel's default, which is for the devices of all namespaces, put back in the end.
struct DefaultQueue(String);

impl DefaultQueue {
    fn set(kind: &str) -> Self {
        let before = Self::file(|path| std::fs::read_to_string(path));
        Self::file(|path| std::fs::write(path, kind));
        Self(before)
    }

    /// Only the first namespace has the file.
    fn file<T: Send>(work: impl FnOnce(&str) -> std::io::Result<T> + Send) -> T {
        let there = || {
            let first = File::open("/proc/1/ns/net").unwrap();
            setns(first, CloneFlags::CLONE_NEWNET).unwrap();
            work("/proc/sys/net/core/default_qdisc").unwrap()
        };
        std::thread::scope(|scope| scope.spawn(there).join()).unwrap()
    }
}

impl Drop for DefaultQueue {
    fn drop(&mut self) {
        Self::file(|path| std::fs::write(path, &self.0));
    }
}

/// Many servers have fq as their default: there is nothing to put there, and nothing to take away.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_leaves_a_default_alone_that_is_fq() {
    let _default = DefaultQueue::set("fq");
    for queues in [1, 4] {
        let host = host(queues);
        let before = qdiscs(&host);
        assert_eq!(before.matches("qdisc fq 0:").count(), queues as usize, "{before}");
        let program = Program::new(&host, FOR_ALL);
        for verb in ["up", "up", "down"] {
            program.run(verb);
            assert_eq!(qdiscs(&host), before, "{verb}");
        }
    }
}

/// Who wants to know before `up` sees which devices get it, which do not, and why.
#[test]
#[ignore = "needs the lab"]
fn lab_pace_shows_beforehand_what_gets_fq() {
    let host = host(2);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tarn.toml");
    std::fs::write(&file, FOR_ALL).unwrap();
    let program = Program::new(&host, FOR_ALL);
    let shown = || {
        let (code, text) = program.command_line(&format!("tarn up --dry-run --config {}", file.display()));
        assert_eq!(code, 0, "{text}");
        text
    };
    let plan = shown();
    // Its commands have come to what `up` comes to.
    for command in plan.lines().filter_map(|line| line.strip_prefix("tc ")) {
        host.tc(command).unwrap();
    }
    let by_hand = qdiscs(&host);
    assert_eq!(by_hand.matches("qdisc fq ").count(), 2, "{plan}");
    assert!(shown().contains("# eth0 has fq already"));
    host.tc("qdisc replace dev eth0 root handle 9: fq_codel").unwrap();
    assert!(shown().contains("# eth0 keeps its queueing discipline: somebody has chosen fq_codel"));
    host.ip("route del default").unwrap();
    assert!(shown().contains("# no device gets fq: no route"));
    host.sysctl("net/ipv4/ip_forward", "1").unwrap();
    assert!(shown().contains("# no device gets fq: this host forwards"));
}
