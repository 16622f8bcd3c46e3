//! Programs that we did not write, all at once through all stages: what their users see, and what tarn's figures say of it.
//!
//! The network is that of the experiment `together` (`together/scene.rs`).

use std::time::Duration;

use serde_json::Value;
use tarn_lab::testing::Program;
use tarn_lab::testing::software::{Running, tunnel};
use tarn_lab::topology::Namespace;

use super::together::scene::{FLOODED, RATE, Scene};

const CONFIGURATION: &str = r#"
[poll]

[[redirect.rule]]
protocol = "tcp"
from = "10.8.0.1:8080"
to = "10.8.2.2:80"

[[redirect.rule]]
protocol = "udp"
from = "10.8.0.1:51820"
to = "10.8.2.2:51820"

[reassembly]

[classes]
deadline = "500ms"

[[classes.service]]
name = "web"
ports = ["tcp/80"]
protocol = "http"

[[classes.class]]
name = "gold"
target = 90
networks = ["10.8.10.1"]

[[classes.class]]
name = "rest"
target = 50

[pace]
for = "all"

[[paths.group]]
to = "198.51.100.0/24"
targets = ["198.51.100.1"]
uplink = [{ device = "wan1", gateway = "10.20.1.2" }, { device = "wan2", gateway = "10.20.2.2" }]
"#;

/// Requests of each of ab's users.
const REQUESTS: u64 = 1500;
/// Pings of 4,000 bytes.
const LARGE: u64 = 200;
/// Pings of a call over an uplink that dies, and through a tunnel, and how often, in seconds.
const PINGS: u64 = 900;
const EVERY: &str = "0.02";
/// How many of a call's pings may be lost while its uplink dies: 200 ms, which `paths` promises, and what was in flight.
const LOST_MOST: u64 = 15;
/// For how long iperf3 sends, from an address that is no uplink's, so that it may leave by any. What it has to bring, of 10 Mbit/s.
const SENDS: &str = "16";
const LEAST: f64 = 0.8;
/// How long all of it is under way when the call's uplink is looked for, how long pings are counted for that, and how long it is dead.
const BEFORE_DEATH: Duration = Duration::from_secs(8);
const LOOKS: Duration = Duration::from_millis(400);
const DEAD: Duration = Duration::from_secs(4);
/// How long everything is under way before the agent is killed, or `down` begins.
const MEANWHILE: Duration = Duration::from_millis(300);
/// Pings in a tunnel while the agent is killed.
const KILL_PINGS: u64 = 200;
/// What circles in the storm: 1.5 times what one CPU can receive, 420,000 datagrams a second.
const FRAMES: u16 = 21;
/// The storm's age when somebody asks for pages.
const ONSET: Duration = Duration::from_millis(400);
/// How many pages.
const PAGES: u64 = 50;

/// ab's user, who asks for pages, four at a time.
fn ab(client: &Namespace, from: &str, port: u16, requests: u64) -> Running {
    Running::ab(client, &format!("-n {requests} -c 4 -B {from} http://10.8.0.1:{port}/"))
}

/// What `tarn status --json` prints.
fn status(program: &Program) -> Value {
    let (code, text) = program.command_line("tarn status --json");
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The figures of a stage.
fn figures<'a>(status: &'a Value, stage: &str) -> &'a Value {
    let stages = status["stages"].as_array().unwrap();
    &stages.iter().find(|known| known["name"] == stage).unwrap()["figures"]
}

/// The sum of a figure over the rows of a stage's table.
fn sum(status: &Value, stage: &str, table: &str, name: &str) -> u64 {
    let figures = figures(status, stage);
    let rows = figures[table]
        .as_array()
        .unwrap_or_else(|| panic!("no {table}: {figures}"));
    rows.iter().filter_map(|row| row[name].as_u64()).sum()
}

/// They need cards.
mod lab_cards {
    use super::*;

    /// A household's or a company's router, on which everything goes on at once: pages by class, a server behind it, a tunnel, an upload,
    /// large datagrams, a call over an uplink that dies. Then a storm, the agent is killed, and `tarn down` comes under load.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_long_programs_of_every_kind_work_through_all_stages() {
        let scene = Scene::new(&[]).unwrap();
        let (host, client, server) = (scene.host().unwrap(), scene.client().unwrap(), scene.server().unwrap());
        scene.rig().segment_in_software().unwrap();
        host.ip("route del 198.51.100.0/24").unwrap();
        scene.count("call", "icmp type echo-request").unwrap();
        let _servers = [
            Running::nginx(host, "a page of the host's"),
            Running::nginx(server, "a page of the server's"),
            Running::serve(scene.far(), "iperf3", &["-s"]).once_listening(scene.far(), 5201),
        ];
        // The client knows the server by a port of the host's.
        tunnel([(client, Some("10.8.0.1")), (server, None)]);
        let program = Program::new(host, CONFIGURATION);
        program.run("up");
        scene.rig().readdress().unwrap();
        std::thread::sleep(Duration::from_secs(10));

        while_an_uplink_dies(&scene, &program);
        figures_are_of_the_same_traffic(&program);
        in_a_storm(&scene, &program);
        while_the_agent_is_killed(&scene, &program);
        while_tarn_goes_down(&scene, &program);
    }

    fn while_an_uplink_dies(scene: &Scene, program: &Program) {
        let (host, client) = (scene.host().unwrap(), scene.client().unwrap());
        let users = [("10.8.10.1", 80), ("10.8.10.2", 80), ("10.8.10.3", 8080)];
        let users = users.map(|(from, port)| ab(client, from, port, REQUESTS));
        let upload = Running::start(host, &format!("iperf3 -J -t {SENDS} -B 10.8.0.1 -c 198.51.100.1"));
        let call = Running::ping(client, &format!("-c {PINGS} -i {EVERY} 198.51.100.1"));
        let inside = Running::ping(client, &format!("-c {PINGS} -i {EVERY} 10.9.0.2"));
        let large = Running::ping(client, &format!("-c {LARGE} -i 0.05 -s 4000 10.8.0.1"));
        std::thread::sleep(BEFORE_DEATH);
        let paced = sum(&status(program), "pace", "destinations", "connections");
        assert!(paced >= 1, "{paced}");
        let dying = scene.uplink_of("call", LOOKS).unwrap();
        scene.shape(dying, RATE, 100.0).unwrap();
        std::thread::sleep(DEAD);
        scene.shape(dying, RATE, 0.0).unwrap();

        let [call, inside, large] = [call, inside, large].map(Running::answered);
        println!("pings: {call} by the uplinks, {inside} in the tunnel, {large} in fragments");
        users.into_iter().for_each(|user| user.assert_served(REQUESTS));
        let upload: Value = serde_json::from_str(&upload.printed()).unwrap();
        let sent = upload["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .unwrap_or_else(|| panic!("{upload}"));
        println!("iperf3: {:.2} Mbit/s", sent / 1e6);
        // Some pings are in flight on the uplink when it dies.
        assert!((PINGS - LOST_MOST..PINGS).contains(&call), "{call}");
        assert_eq!((inside, large), (PINGS, LARGE));
        assert!(sent >= LEAST * RATE as f64, "{sent}");
    }

    /// An operator would act on figures that differ from what the clients saw.
    fn figures_are_of_the_same_traffic(program: &Program) {
        let status = status(program);
        assert_eq!(
            sum(&status, "classes", "requests", "requests"),
            2 * REQUESTS,
            "{status}"
        );
        assert_eq!(sum(&status, "classes", "requests", "in_time"), 2 * REQUESTS, "{status}");
        let completed = sum(&status, "reassembly", "families", "completed");
        assert!((LARGE..LARGE + 5).contains(&completed), "{completed}");
        let redirected = sum(&status, "redirect", "rules", "packets");
        assert!(redirected >= PINGS + 5 * REQUESTS, "{redirected}");
    }

    fn in_a_storm(scene: &Scene, program: &Program) {
        let dropped = || {
            let status = status(program);
            let figure = |name: &str| figures(&status, "poll")[name].as_u64().unwrap();
            figure("shed_source") + figure("shed_port")
        };
        let before = dropped();
        scene.rig().begin(FRAMES, FLOODED).unwrap();
        scene.rig().flood(true).unwrap();
        std::thread::sleep(ONSET);
        ab(scene.client().unwrap(), "10.8.10.1", 80, PAGES).assert_served(PAGES);
        scene.rig().flood(false).unwrap();
        let dropped = dropped() - before;
        println!("storm: {dropped} packets dropped");
        assert!(dropped > 10_000, "{dropped}");
    }

    /// What it has set up continues to serve: nothing is lost.
    fn while_the_agent_is_killed(scene: &Scene, program: &Program) {
        let client = scene.client().unwrap();
        let mut users = [("10.8.10.1", 80), ("10.8.10.3", 8080)].map(|(from, port)| ab(client, from, port, REQUESTS));
        let inside = Running::ping(client, &format!("-c {KILL_PINGS} -i {EVERY} 10.9.0.2"));
        std::thread::sleep(MEANWHILE);
        assert!(!users.iter_mut().any(Running::has_ended));
        program.kill_agent();
        users.into_iter().for_each(|user| user.assert_served(REQUESTS));
        assert_eq!(inside.answered(), KILL_PINGS);
    }

    fn while_tarn_goes_down(scene: &Scene, program: &Program) {
        let mut user = ab(scene.client().unwrap(), "10.8.10.1", 80, REQUESTS);
        std::thread::sleep(MEANWHILE);
        assert!(!user.has_ended());
        program.run("down");
        scene.rig().readdress().unwrap();
        user.assert_served(REQUESTS);
    }
}
