//! The experiment `paths-jitter`: how steady a game, a call and a ping are over several uplinks, by who chooses.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};

use self::figures::{Flows, Steadiness};
use self::leave::Trouble;
use self::scenario::{Event, SCENARIOS, Scenario};
use self::scene::{CLIENT, Contender, SERVER, Scene};
use tarn_base::runtime::monotonic_ns;
use tarn_lab::busy::go_first;
use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Case, Experiment, Guest, Highlight, Measurement, Metric, Reference, Series, Size};
use tarn_lab::load::{Arrivals, Exchanges, Flow, Law, Ping, TcpBulk, TcpSink, UdpEcho, UdpRequests};
use tarn_lab::stats::thin;
use tarn_lab::topology::Namespace;

mod checks;
mod figures;
mod flow;
mod leave;
mod path;
mod plots;
mod published;
mod scenario;
mod scene;

/// The experiment. Each scenario is a part.
pub static JITTER: Experiment = Experiment {
    stage: crate::STAGE,
    name: "paths-jitter",
    title: "steadiness over several uplinks",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: METRICS,
    plots: plots::PLOTS,
    references: REFERENCES,
    highlights: HIGHLIGHTS,
    parts: |_| SCENARIOS.len(),
    headline: &[0, 2, 3],
    run,
    conclude: None,
};

/// What is shown at the end of a run.
static HIGHLIGHTS: &[Highlight] = &[
    Highlight {
        what: "game's jitter, ms",
        metric: "game_stdev_ms",
        stock: Some("ecmp-ports-spikes"),
        peer: None,
        published: Some("published-spikes"),
        tarn: "calmest-spikes",
    },
    Highlight {
        what: "lost as uplink dies",
        metric: "game_lost",
        stock: Some("ecmp-ports-dies"),
        peer: None,
        published: Some("published-dies"),
        tarn: "calmest-dies",
    },
];

const METHOD: &str = "\
A client behind a router speaks to a server that the router reaches by two or three uplinks. Half of an uplink's round trip \
is on each of its two ways, varied by 0.25 ms without overtaking; an answer comes back by the uplink that the request came by. \
All at once: a game (60 UDP requests of 100 bytes a second, each answered), a call (50 of 160 bytes), pings (10 a second) and \
a TCP transfer with a few KiB under way at most, so that it shares the uplinks and does not fill them.

What is special: spikes, during which a round trip takes 200 ms for a second, at random, 4 s apart on average; 3 % of packets \
lost on each way; an uplink that is the better one for long, and then takes 200 ms for 5 s; one that dies for 5 s, its device \
staying up; two equal ones; three at once. The seed decides when spikes come, the same for every case.

ECMP is the kernel's, by a hash of addresses, or of addresses and ports; the game's address or port is the first that the hash \
puts on the uplink with bad luck. The published rule (the blog post of December 2025, which changes the kernel's ECMP) is a BPF program at the router that takes, for each packet, the uplink of the greatest weight, which is how busy and uneven it is; with its aim, the least. It is given the uplinks in the same order, the one with bad luck first. The oracle's uplink is the best one for the whole time, chosen by who knows the future. tarn \
runs with its defaults, for 40 s before the flows begin; `calmest` with two equal uplinks so long that it has had ten minutes \
to flap. The quick size lasts 12 s a case, and 42 s where an uplink dies, so that it can be used again; the full one ten minutes. \
Where an uplink dies, eight more flows of one request each begin 6 s after the others have ended: they tell who is used then.

An uplink has been left with the first request of the game behind the last one that was lost or held up by it. Overtaken is an answer \
that comes after one to a later request (RFC 4737).

Which uplink an answer of the game came by is not recorded: it is told afterwards by its round trip, in which the uplinks differ. \
What is near no uplink's own round trip came by the one with spikes.";

/// Who contends, in the order of the table.
const CONTENDERS: [Contender; 7] = [
    Contender::EcmpAddresses,
    Contender::EcmpPorts,
    Contender::Oracle,
    Contender::Published,
    Contender::PublishedLowest,
    Contender::Calmest,
    Contender::Proportional,
];
/// How long flows last in the full size.
const LENGTH_FULL: Duration = Duration::from_secs(600);
/// How long tarn has run before the flows begin.
const BEFORE: Duration = Duration::from_secs(40);
/// The same where it is to be seen that it does not flap.
const BEFORE_EQUAL: Duration = Duration::from_secs(588);
/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Ports of the client for flows that begin after the others, when the kernel takes no bucket of theirs for busy any more.
const NEW_PORTS: Range<u16> = 7200..7208;
const NEW_AFTER: Duration = Duration::from_secs(6);
/// Values of a series that are kept.
const POINTS: usize = 600;

static METRICS: &[Metric] = &[
    Metric::less("game_mean_ms", "game mean", "ms", 2),
    Metric::less("game_stdev_ms", "stdev", "ms", 2),
    Metric::less("game_p999_ms", "p99.9", "ms", 1),
    Metric::less("game_from_100_ms", "from 100 ms", "answers", 0),
    Metric::less("game_max_ms", "max", "ms", 1),
    Metric::less("game_lost", "lost", "requests", 0),
    Metric::less("reordered", "overtaken", "answers", 0),
    Metric::neutral("path_changes", "moves", "moves", 0),
    Metric::less("leave_dead_path_ms", "left dead path after", "ms", 0),
    Metric::less("leave_bad_path_ms", "left bad path after", "ms", 0),
    Metric::more("bulk_mbit_s", "TCP", "Mbit/s", 2),
    Metric::less("call_stdev_ms", "call stdev", "ms", 2),
    Metric::less("ping_stdev_ms", "ping stdev", "ms", 2),
];

const POST: &str = "ping to the own address, blog post of December 2025";

const fn published(metric: &'static str, value: f64, note: &'static str) -> Reference {
    Reference::new(POST, metric, value, note)
}

static REFERENCES: &[Reference] = &[
    published(
        "stdev_stock_ms",
        0.146_496,
        "ms, stock kernel, over loopback, where no path is chosen",
    ),
    published("stdev_patched_ms", 0.006_409, "ms, patched kernel, over loopback"),
    published("wan_stdev_stock_ms", 0.179_675, "ms, stock kernel, to 1.1.1.1"),
    published("wan_stdev_patched_ms", 0.214_948, "ms, patched kernel, to 1.1.1.1"),
];

fn run(guest: &mut Guest) -> Result<Measurement> {
    let scenario = SCENARIOS.get(guest.part).context("there is no such part")?;
    let (seed, size) = (guest.seed, guest.size);
    let describe = |contender: &Contender| {
        let name = format!("{}-{}", contender.name(), scenario.suffix);
        Case::new(name, format!("{}: {}", contender.title(), scenario.title))
    };
    let mut results = Vec::new();
    let mut measurement = guest.measure(&CONTENDERS, describe, |contender, case, all| {
        let figures = run_case(seed, size, scenario, *contender)?;
        case.metrics = figures.metrics(scenario);
        all.series.extend(series(scenario, &case.name, &figures));
        results.push((*contender, figures));
        Ok(())
    })?;
    measurement.checks = checks::of(scenario, &results);
    Ok(measurement)
}

/// The course of the game: its round trips, and where a plot shows it, when each was sent and by which uplink its answer came.
fn series(scenario: &Scenario, case: &str, figures: &Steadiness) -> Vec<Series> {
    let kept = thin(&figures.game_ms, POINTS);
    let of = |what: &str, unit: &str, value: &dyn Fn(usize) -> f64| Series {
        case: case.to_owned(),
        name: format!("game_{what}_{}", scenario.suffix),
        unit: unit.to_owned(),
        values: kept.iter().map(|&place| value(place)).collect(),
    };
    let mut series = vec![of("ms", "ms", &|place| figures.game_ms[place])];
    if plots::show_paths_of(scenario) {
        let path = |place: usize| path::of(figures.game_ms[place], scenario.uplinks) as f64;
        series.extend([of("s", "s", &|place| figures.game_s[place]), of("path", "", &path)]);
    }
    series
}

fn run_case(seed: u64, size: Size, scenario: &'static Scenario, contender: Contender) -> Result<Steadiness> {
    let length = if size == Size::Full {
        LENGTH_FULL
    } else {
        scenario.length
    };
    let scene = Scene::new(scenario, contender)?;
    if contender.is_tarn() {
        let before = match contender {
            Contender::Calmest if scenario.is_equal() => BEFORE_EQUAL,
            _ => BEFORE,
        };
        match scenario.uplinks.iter().any(|uplink| uplink.event.is_once()) {
            true => std::thread::sleep(before),
            false => scene.disturb(seed, "before", before)?,
        }
    }
    let trouble = Trouble::of(scenario, monotonic_ns());
    let flows = run_flows(&scene, seed, length)?;
    let figures = Steadiness::of(&flows, scene.changes()?, trouble.as_ref())?;
    scene.end()?;
    Ok(figures)
}

/// The server at a port.
fn at(port: u16) -> Result<SocketAddr> {
    format!("{SERVER}:{port}").parse().context("the server's address")
}

/// All flows at once, while the uplinks are as the scenario has them.
fn run_flows(scene: &Scene, seed: u64, length: Duration) -> Result<Flows> {
    let (client, server) = (scene.namespace("client")?, scene.namespace("server")?);
    let requests = |port: u16, per_second: u32, size: usize| -> Result<UdpRequests> {
        let flow = Flow::to(at(port)?).from(scene.client(port)?);
        let count = per_second * length.as_secs() as u32;
        let mut requests = UdpRequests::new(flow, count);
        requests.size = size;
        requests.timeout = TIMEOUT;
        requests.arrivals = Arrivals::Open(Law::Every(Duration::from_secs(1) / per_second));
        Ok(requests)
    };
    let (game, call) = (requests(7000, 60, 100)?, requests(7100, 50, 160)?);
    let mut ping = Ping::new(SERVER.parse()?);
    ping.count = 10 * length.as_secs() as u32;
    ping.arrivals = Arrivals::Open(Law::Every(Duration::from_millis(100)));
    ping.timeout = TIMEOUT;
    let bulk = TcpBulk {
        flow: Flow::to(at(5001)?),
        duration: length,
        congestion: None,
    };
    // Client and server stand for other machines than the router's: what its agent computes must not be in their times.
    let echo = |port: u16| {
        let address = at(port)?;
        server.enter(|| go_first().and_then(|()| UdpEcho::start(server, address)))
    };
    let _echoes = [echo(7000)?, echo(7100)?];
    let sink = TcpSink::start(server, at(5001)?)?;
    let game = client.spawn("game", move || go_first().and_then(|()| game.run()))?;
    let call = client.spawn("call", move || go_first().and_then(|()| call.run()))?;
    let ping = client.spawn("ping", move || go_first().and_then(|()| ping.run()))?;
    let bulk = client.spawn("bulk", move || bulk.run())?;
    scene.disturb(seed, "spikes", length)?;
    let joined = |what: &str| format!("the {what} failed");
    let flows = (game.join(), call.join(), ping.join(), bulk.join());
    let (Ok(game), Ok(call), Ok(ping), Ok(bulk)) = flows else {
        anyhow::bail!("a flow has panicked");
    };
    bulk.with_context(|| joined("TCP transfer"))?;
    let new = match scene.scenario.with(Event::Dies) {
        Some(_) => run_new_flows(client)?,
        None => Vec::new(),
    };
    let received: u64 = sink.stop()?.iter().map(|report| report.bytes).sum();
    Ok(Flows {
        game: game.with_context(|| joined("game"))?,
        call: call.with_context(|| joined("call"))?,
        ping: ping.with_context(|| joined("ping"))?,
        bulk_mbit_s: received as f64 * 8.0 / length.as_secs_f64() / 1e6,
        new,
    })
}

/// A request each of flows that begin when the others are over.
fn run_new_flows(client: &Namespace) -> Result<Vec<Exchanges>> {
    std::thread::sleep(NEW_AFTER);
    let flow = |port: u16| {
        let from = format!("{CLIENT}:{port}").parse().context("the client's address")?;
        let mut requests = UdpRequests::new(Flow::to(at(7000)?).from(from), 1);
        requests.timeout = TIMEOUT;
        client.enter(|| requests.run())
    };
    NEW_PORTS.map(flow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headline_is_spikes_and_an_uplink_that_worsens_or_dies() {
        let headline = JITTER.headline.iter().map(|part| SCENARIOS[*part].suffix);
        assert_eq!(headline.collect::<Vec<_>>(), ["spikes", "worsens", "dies"]);
    }
}
