//! Stages that meet at one device.
//!
//! ```text
//!   client                 host                        server
//!   10.8.0.2 eth0 ──────── eth0 10.8.0.1, right ────── eth0 10.8.2.2     (tarn_poll::proof::rig)
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use tarn_kernel::features::{Finding, Host, Release};
use tarn_kernel::{attach, links, xdp_next};
use tarn_lab::load::{Flow, UdpEcho, UdpRequests};
use tarn_lab::testing::Program;
use tarn_poll::proof::rig::{CLIENT, HOST, Rig, SERVER};

const POLL: &str = "[poll]\n";
/// Another address of the client, by way of the host's default route.
const BEHIND_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 3, 2);
/// A port of the host is the server's, another the client's: that one's packets leave by the card they came in by. So do those of the
/// third, to a neighbour that nobody is, which costs this guest nothing more.
const REDIRECT: &str = r#"
[redirect]
deliver = "redirect"

[[redirect.rule]]
protocol = "udp"
from = "10.8.0.1:9100"
to = "10.8.2.2:9000"

[[redirect.rule]]
protocol = "udp"
from = "10.8.0.1:9200"
to = "10.8.3.2:9000"

[[redirect.rule]]
protocol = "udp"
from = "10.8.0.1:9300"
to = "10.8.0.77:9000"
"#;

/// Whether poll leaves this kernel alone, which cannot report the threads of receive queues.
fn is_left_alone() -> bool {
    let since = Release {
        major: 6,
        minor: 8,
        patch: 0,
    };
    !matches!(Host::this().kernel_since(since), Finding::Present(_))
}

fn host_and_server() -> (Rig, UdpEcho) {
    let rig = Rig::with_server().unwrap();
    let client = rig.client().unwrap();
    client.ip(&format!("address add {BEHIND_CLIENT}/32 dev lo")).unwrap();
    // It gets its own packets back.
    for parameter in [
        "net.ipv4.conf.eth0.accept_local=1",
        "net.ipv4.conf.all.rp_filter=0",
        "net.ipv4.conf.eth0.rp_filter=0",
    ] {
        client.run("sysctl", &["-qw", parameter]).unwrap();
    }
    let host = rig.host().unwrap();
    host.ip("neighbour add 10.8.0.77 lladdr 02:00:00:00:77:77 dev eth0 nud permanent")
        .unwrap();
    std::fs::write("/proc/sys/kernel/bpf_stats_enabled", "1").unwrap();
    let echo = UdpEcho::start(rig.server().unwrap(), SocketAddr::new(IpAddr::V4(SERVER), 9000)).unwrap();
    (rig, echo)
}

/// The XDP programs of the card: the one that the driver calls, and the next.
fn programs(rig: &Rig) -> [Option<u32>; 2] {
    let look = || {
        let index = links::all()?.iter().find(|link| link.name == "eth0").unwrap().index;
        Ok([attach::xdp_program(index)?, xdp_next::program(index)?])
    };
    rig.host().unwrap().enter(look).unwrap()
}

/// How often the tc programs have run, all of them.
fn runs_at_tc() -> u64 {
    let programs =
        ProgInfoIter::default().filter(|program| program.name.as_encoded_bytes().starts_with(b"redirect_in"));
    programs.map(|program| program.run_cnt).sum()
}

/// Asks the server so many times by the host's address. Returns how many were answered.
fn ask(rig: &Rig, requests: u32) -> u64 {
    let flow = Flow::to(SocketAddr::new(IpAddr::V4(HOST), 9100));
    let exchanges = rig.client().unwrap().enter(|| UdpRequests::new(flow, requests).run());
    exchanges.unwrap().answered_count()
}

/// Has the client send so many packets that the host sends back to it, to another address. Returns how many come, and how often tc
/// programs ran for them.
fn turn_around(rig: &Rig, packets: usize) -> (usize, u64) {
    let client = rig.client().unwrap();
    let bound = |address: Ipv4Addr, port| client.enter(|| Ok(UdpSocket::bind((address, port))?)).unwrap();
    let (from, to) = (bound(CLIENT, 0), bound(BEHIND_CLIENT, 9000));
    to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let before = runs_at_tc();
    let comes = |_: &usize| {
        from.send_to(b"packet", (HOST, 9200)).unwrap();
        to.recv(&mut [0; 16]).is_ok()
    };
    let came = (0..packets).filter(comes).count();
    (came, runs_at_tc() - before)
}

/// Waits until what the stages' agents follow has come to rest, and gives the card its address again.
fn settle(rig: &Rig) {
    std::thread::sleep(Duration::from_secs(2));
    rig.readdress().unwrap();
}

/// Whether packets leave at XDP; the first of a flow meets tc, too.
fn assert_at_xdp(rig: &Rig) {
    let (came, at_tc) = turn_around(rig, 50);
    assert!(came == 50 && at_tc <= 2, "{came} came, {at_tc} at tc");
    assert_eq!(ask(rig, 50), 50);
}

/// Whether packets of `poll` and `redirect` meet both at XDP, `poll`'s first.
fn assert_both(rig: &Rig) {
    settle(rig);
    let [first, next] = programs(rig);
    assert!(
        first.is_some() && next.is_some() && first != next,
        "{first:?}, then {next:?}"
    );
    assert_at_xdp(rig);
}

/// What XDP can do depends on the kernel.
mod lab_kernel {
    use super::*;

    /// Whoever has both would lose one of them: redirection at tc costs more, and a flood is not shed there.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_cards_have_a_flood_shed_and_a_port_redirected_at_xdp() {
        if is_left_alone() {
            return;
        }
        let (rig, echo) = host_and_server();
        let program = Program::new(rig.host().unwrap(), &format!("{POLL}{REDIRECT}"));
        program.run("up");
        rig.flood(false).unwrap();
        assert_both(&rig);
        program.run("up");
        assert_both(&rig);

        // A port that is redirected is flooded: to another namespace, and to where frames leave at XDP.
        for port in [9100, 9300] {
            rig.begin(21, port).unwrap();
            rig.flood(true).unwrap();
            std::thread::sleep(Duration::from_millis(700));
            let count = ["-q", "-c", "50", "-i", "0.01", "-W", "1", "10.8.0.1"];
            let answer = rig.client().unwrap().run("ping", &count).unwrap();
            assert!(answer.contains("50 received"), "{port}: {answer}");
            assert_eq!(ask(&rig, 50), 50, "{port}: light clients");
            rig.flood(false).unwrap();
        }

        // Without the agent, the kernel forgets what is next; tc redirects.
        program.kill_agent();
        rig.readdress().unwrap();
        let [first, next] = programs(&rig);
        assert!(first.is_some() && next.is_none(), "{first:?}, then {next:?}");
        let (came, at_tc) = turn_around(&rig, 50);
        assert!(came == 50 && at_tc >= 50, "{came} came, {at_tc} at tc");
        program.run("up");
        assert_both(&rig);
        program.run("down");
        assert_eq!(programs(&rig), [None, None]);
        echo.stop().unwrap();
    }
}

/// Stages come and go with the configuration.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_redirect_at_xdp_before_and_after_another_stage_is_there() {
    if is_left_alone() {
        return;
    }
    let (rig, echo) = host_and_server();
    let program = Program::new(rig.host().unwrap(), REDIRECT);
    for _ in 0..2 {
        program.configure(REDIRECT);
        program.run("up");
        settle(&rig);
        let [first, next] = programs(&rig);
        assert!(first.is_some() && next.is_none(), "{first:?}, then {next:?}");
        assert_at_xdp(&rig);
        program.configure(&format!("{POLL}{REDIRECT}"));
        program.run("up");
        assert_both(&rig);
    }
    // What an administrator takes off stays off until the next `up`.
    let host = rig.host().unwrap();
    program.configure(REDIRECT);
    program.run("up");
    settle(&rig);
    host.ip("link set eth0 xdp off").unwrap();
    settle(&rig);
    assert_eq!(programs(&rig), [None, None]);
    program.run("up");
    settle(&rig);
    assert_at_xdp(&rig);

    program.configure(POLL);
    let remarks = program.remarks("up");
    assert!(!remarks.contains("another XDP program"), "{remarks}");
    let [first, next] = programs(&rig);
    assert!(first.is_some() && next.is_none(), "{first:?}, then {next:?}");
    program.run("down");
    assert_eq!(programs(&rig), [None, None]);
    echo.stop().unwrap();
}
