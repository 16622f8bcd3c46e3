//! What users measure with programs that are not ours.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tarn_lab::testing::Program;
use tarn_lab::topology::{Namespace, Network};

use crate::proof::both_ways::{Access, SERVER};

const ACCESS: Access = Access { up: 5, down: 10 };
const FLOWS: &str = "4";
/// Seconds that iperf3 leaves out, and then measures.
const STARTUP: &str = "4";
const LENGTH: &str = "16";
/// Then they are watched, for so many seconds.
const WATCHED_FROM: Duration = Duration::from_secs(8);
const WATCHED: f64 = 8.0;

/// What iperf3 and ping have printed.
struct Seen {
    up_mbit_s: f64,
    down_mbit_s: f64,
    retransmitted: f64,
    ping_mean_ms: f64,
}

/// A test of the line by iperf3, both ways at once, with a ping beside it as somebody in a call would have it.
struct LineTest {
    server: Child,
    client: Child,
    ping: Child,
}

impl LineTest {
    /// Both ends send by `congestion`; by each end's default when none is named.
    fn start(network: &Network, congestion: Option<&str>) -> Self {
        let [home, server] = ["home", "server"].map(|name| network.namespace(name).unwrap());
        let listening = printing(&mut server.command("iperf3"), &["--server", "--one-off", "--json"]);
        wait_for_listener(server);
        let mut line = vec!["--client", SERVER, "--bidir", "--parallel", FLOWS, "--json"];
        line.extend(["--omit", STARTUP, "--time", LENGTH]);
        line.extend(congestion.into_iter().flat_map(|name| ["--congestion", name]));
        Self {
            server: listening,
            client: printing(&mut home.command("iperf3"), &line),
            ping: printing(&mut home.command("ping"), &["-q", "-i", "0.05", "-c", "380", SERVER]),
        }
    }

    fn finish(self) -> Seen {
        let [client, ping, _] = [self.client, self.ping, self.server].map(|child| {
            let output = child.wait_with_output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        let client: Value = serde_json::from_str(&client).unwrap();
        let end = |sum: &str, figure: &str| {
            let value = client["end"][sum][figure].as_f64();
            value.unwrap_or_else(|| panic!("{sum}.{figure}: {client}"))
        };
        Seen {
            up_mbit_s: end("sum_received", "bits_per_second") / 1e6,
            down_mbit_s: end("sum_received_bidir_reverse", "bits_per_second") / 1e6,
            retransmitted: end("sum_sent", "retransmits") + end("sum_sent_bidir_reverse", "retransmits"),
            ping_mean_ms: mean_of(&ping),
        }
    }
}

fn printing(command: &mut Command, arguments: &[&str]) -> Child {
    command.args(arguments).stdout(Stdio::piped()).spawn().unwrap()
}

fn wait_for_listener(server: &Namespace) {
    for _ in 0..100 {
        if server
            .run("ss", &["-Hltn", "sport = :5201"])
            .unwrap()
            .contains("LISTEN")
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("iperf3 does not listen");
}

/// Of `rtt min/avg/max/mdev = 30.1/31.2/32.3/0.4 ms`.
fn mean_of(ping: &str) -> f64 {
    let figures = ping
        .lines()
        .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
    let mean = figures.and_then(|figures| figures.split('/').nth(1));
    mean.unwrap_or_else(|| panic!("{ping}")).parse().unwrap()
}

/// Somebody who tests the line sees that it is as fast as before, and that calls beside it wait less.
#[test]
#[ignore = "needs the lab"]
fn lab_long_pace_keeps_a_line_fast_and_still_as_iperf3_and_ping_see_it() {
    let network = ACCESS.build().unwrap();
    let stock = LineTest::start(&network, None).finish();
    let program = Program::new(network.namespace("home").unwrap(), "[pace]\nfor = \"all\"\n");
    program.run("up");
    let running = LineTest::start(&network, None);
    std::thread::sleep(WATCHED_FROM);
    let (code, watched) = program.command_line(&format!("tarn pace watch --count 1 --interval {WATCHED} --json"));
    let home = running.finish();
    let both = LineTest::start(&network, Some("tarn_pace")).finish();
    program.run("down");

    println!("stock {stock}\nhome {home}\nboth {both}");
    assert_eq!(code, 0, "{watched}");
    check_watched(&serde_json::from_str(&watched).unwrap(), &home);
    assert!(home.up_mbit_s > 0.85 * stock.up_mbit_s, "{home}; stock {stock}");
    for (ours, theirs) in [(both.up_mbit_s, stock.up_mbit_s), (both.down_mbit_s, stock.down_mbit_s)] {
        assert!(ours > 0.85 * theirs, "{both}; stock {stock}");
    }
    assert!(both.retransmitted < 0.2 * stock.retransmitted, "{both}; stock {stock}");
    assert!(both.ping_mean_ms < 0.7 * stock.ping_mean_ms, "{both}; stock {stock}");
}

/// The uploads carry what iperf3 says that they do.
fn check_watched(watched: &Value, seen: &Seen) {
    let acked = watched["acked_mb"].as_f64().unwrap() * 8.0 / WATCHED;
    assert!((0.9..1.1).contains(&(acked / seen.up_mbit_s)), "{watched}; {seen}");
}

impl std::fmt::Display for Seen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{:.2} up, {:.2} down Mbit/s, {} sent again, ping {:.0} ms",
            self.up_mbit_s, self.down_mbit_s, self.retransmitted, self.ping_mean_ms
        )
    }
}
