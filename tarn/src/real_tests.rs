//! Programs that we did not write, all at once through all stages: what their users see, and what tarn's figures say of it.
//!
//! The network is that of the experiment `together` (`together/scene.rs`).

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use super::together::scene::{RATE, Scene};

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
/// Datagrams in fragments, each way.
const LARGE: u64 = 200;
/// Pings by an uplink that dies, and through a tunnel, so many a second.
const PINGS: u64 = 900;
const EVERY: &str = "0.02";
/// Of those by the uplink, how many may be lost while it dies: 200 ms, which `paths` promises, and what was in flight.
const LOST_MOST: u64 = 15;
/// For how long iperf3 sends, from an address that is no uplink's, so that it may leave by any. What it has to bring, of 10 Mbit/s.
const SENDS: &str = "16";
const LEAST: f64 = 0.8;
/// From when on an uplink is dead, and for how long.
const BEFORE_DEATH: Duration = Duration::from_secs(8);
const DEAD: Duration = Duration::from_secs(4);
/// How long everything is under way before the agent ends, or `down` begins.
const MEANWHILE: Duration = Duration::from_millis(300);
/// How long a storm has blown when somebody asks for pages, and how many.
const ONSET: Duration = Duration::from_millis(400);
const PAGES: u64 = 50;

/// Programs that serve until it is dropped.
#[derive(Default)]
struct Servers(Vec<Child>);

impl Servers {
    fn start(&mut self, node: &Namespace, program: &str, arguments: &[&str]) {
        let output = File::create(format!("/tmp/{}-{program}.log", node.name())).unwrap();
        let mut command = node.command(program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        self.0.push(command.spawn().unwrap());
    }

    fn nginx(&mut self, node: &Namespace) {
        let (name, places) = (node.name(), ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]);
        let places: String = places
            .iter()
            .map(|place| format!("{place}_temp_path /tmp/{name}-{place};\n"))
            .collect();
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid /tmp/{name}.pid;\nerror_log stderr;\nevents {{ }}\nhttp {{\naccess_log off;\n{places}\
             server {{ listen 80; location / {{ return 200 \"a page of {name}'s\"; }} }}\n}}\n"
        );
        let file = format!("/tmp/{name}-nginx.conf");
        fs::write(&file, configuration).unwrap();
        self.start(node, "nginx", &["-e", "stderr", "-c", &file]);
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Joins the client and the server by WireGuard. The client knows the server by a port of the host's.
fn tunnel(client: &Namespace, server: &Namespace) {
    let ends = [(client, 1, "10.8.0.1"), (server, 2, "")];
    let keys = ends.map(|(end, ..)| {
        let private = end.run("wg", &["genkey"]).unwrap();
        fs::write(format!("/tmp/{}.key", end.name()), &private).unwrap();
        end.run_with_input("wg", &["pubkey"], &private)
            .unwrap()
            .trim()
            .to_owned()
    });
    for ((end, number, peer), key) in ends.iter().zip(keys.iter().rev()) {
        end.ip("link add wg0 type wireguard").unwrap();
        end.ip(&format!("address add 10.9.0.{number}/24 dev wg0")).unwrap();
        let file = format!("/tmp/{}.key", end.name());
        let mut line = format!("set wg0 listen-port 51820 private-key {file} peer {key} allowed-ips 10.9.0.0/24");
        if !peer.is_empty() {
            line += &format!(" endpoint {peer}:51820");
        }
        end.run("wg", &line.split(' ').collect::<Vec<_>>()).unwrap();
        end.ip("link set wg0 up").unwrap();
    }
}

/// A program that runs for a while.
fn start(node: &Namespace, line: &str) -> Child {
    let mut words = line.split(' ');
    let mut command = node.command(words.next().unwrap());
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// What it printed, once it has ended by itself.
fn printed(program: Child) -> String {
    String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap()
}

/// Whether it is still at work.
fn runs(program: &mut Child) -> bool {
    program.try_wait().unwrap().is_none()
}

/// ab's user, whose every request is answered with a page.
fn ab(client: &Namespace, from: &str, port: u16, requests: u64) -> Child {
    start(
        client,
        &format!("ab -q -s 10 -n {requests} -c 4 -B {from} http://10.8.0.1:{port}/"),
    )
}

fn assert_served(ab: Child, requests: u64) {
    let text = printed(ab);
    let figure = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    let is_served = figure("Complete requests:") == Some(requests) && figure("Failed requests:") == Some(0);
    assert!(is_served && !text.contains("Non-2xx"), "{text}");
}

/// How many of ping's requests were answered.
fn answered(ping: Child) -> u64 {
    let text = printed(ping);
    let count = text.split(", ").find_map(|part| part.strip_suffix(" received"));
    count
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{text}"))
}

/// The sum of a figure over the rows of a stage's table, of a document of `tarn status`.
fn sum(status: &Value, stage: &str, table: &str, name: &str) -> u64 {
    let stages = status["stages"].as_array().unwrap();
    let stage = stages.iter().find(|known| known["name"] == stage).unwrap();
    let rows = stage["figures"][table]
        .as_array()
        .unwrap_or_else(|| panic!("no {table}: {stage}"));
    rows.iter().filter_map(|row| row[name].as_u64()).sum()
}

/// They need cards.
mod lab_cards {
    use super::*;

    /// A household's or a company's router, on which everything goes on at once: pages by class, a server behind it, a tunnel, an upload,
    /// large datagrams, a call by an uplink that dies. Then a storm, the agent is killed, and `tarn down` comes under load.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_long_programs_of_every_kind_work_through_all_stages() {
        let scene = Scene::new(&[]).unwrap();
        let (host, client, server, far) = (
            scene.host().unwrap(),
            scene.client().unwrap(),
            scene.server().unwrap(),
            scene.far(),
        );
        scene.rig().segment_in_software().unwrap();
        host.ip("route del 198.51.100.0/24").unwrap();
        let mut servers = Servers::default();
        servers.nginx(host);
        servers.nginx(server);
        servers.start(far, "iperf3", &["-s"]);
        tunnel(client, server);
        let program = Program::new(host, CONFIGURATION);
        program.run("up");
        scene.rig().readdress().unwrap();
        std::thread::sleep(Duration::from_secs(10));

        let users = [("10.8.10.1", 80), ("10.8.10.2", 80), ("10.8.10.3", 8080)];
        let users = users.map(|(from, port)| ab(client, from, port, REQUESTS));
        let upload = start(host, &format!("iperf3 -J -t {SENDS} -B 10.8.0.1 -c 198.51.100.1"));
        let call = start(client, &format!("ping -q -c {PINGS} -i {EVERY} -W 1 198.51.100.1"));
        let inside = start(client, &format!("ping -q -c {PINGS} -i {EVERY} -W 1 10.9.0.2"));
        let large = start(client, &format!("ping -q -c {LARGE} -i 0.05 -W 1 -s 4000 10.8.0.1"));
        std::thread::sleep(BEFORE_DEATH);
        scene.shape(1, RATE, 100.0).unwrap();
        std::thread::sleep(DEAD);
        scene.shape(1, RATE, 0.0).unwrap();

        let [call, inside, large] = [call, inside, large].map(answered);
        println!("pings: {call} by the uplinks, {inside} in the tunnel, {large} in fragments");
        users.into_iter().for_each(|user| assert_served(user, REQUESTS));
        let upload: Value = serde_json::from_str(&printed(upload)).unwrap();
        let sent = upload["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .unwrap_or_else(|| panic!("{upload}"));
        println!("iperf3: {:.2} Mbit/s", sent / 1e6);
        // Some are under way by the uplink when it dies.
        assert!((PINGS - LOST_MOST..PINGS).contains(&call), "{call}");
        assert_eq!((inside, large), (PINGS, LARGE));
        assert!(sent >= LEAST * RATE as f64, "{sent}");

        // tarn's figures are of the same traffic.
        let (code, text) = program.command_line("tarn status --json");
        assert_eq!(code, 0, "{text}");
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sum(&status, "classes", "requests", "requests"), 2 * REQUESTS, "{text}");
        assert_eq!(sum(&status, "classes", "requests", "in_time"), 2 * REQUESTS, "{text}");
        let completed = sum(&status, "reassembly", "families", "completed");
        assert!((LARGE..LARGE + 5).contains(&completed), "{completed}");
        let redirected = sum(&status, "redirect", "rules", "packets");
        assert!(redirected >= PINGS + 5 * REQUESTS, "{redirected}");

        // Somebody asks for pages in a storm.
        scene.rig().flood(true).unwrap();
        std::thread::sleep(ONSET);
        assert_served(ab(client, "10.8.10.1", 80, PAGES), PAGES);
        scene.rig().flood(false).unwrap();

        // The agent is killed, and what it has set up serves on.
        let mut users = [("10.8.10.1", 80), ("10.8.10.3", 8080)].map(|(from, port)| ab(client, from, port, REQUESTS));
        let inside = start(client, &format!("ping -q -c {LARGE} -i {EVERY} -W 1 10.9.0.2"));
        std::thread::sleep(MEANWHILE);
        assert!(users.iter_mut().all(runs));
        program.kill_agent();
        scene.rig().readdress().unwrap();
        users.into_iter().for_each(|user| assert_served(user, REQUESTS));
        let inside = answered(inside);
        assert!(inside >= LARGE - LOST_MOST, "{inside}");

        // `down` under load.
        let mut user = ab(client, "10.8.10.1", 80, REQUESTS);
        std::thread::sleep(MEANWHILE);
        assert!(runs(&mut user));
        program.run("down");
        scene.rig().readdress().unwrap();
        assert_served(user, REQUESTS);
    }
}
