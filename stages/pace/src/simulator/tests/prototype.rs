//! Other code that simulates the same, written before: its figures for the same networks, the means of five seeds.

use crate::parameters::defaults;
use crate::simulator::network::{Buffer, Control, Course, Network};
use crate::simulator::report;

/// A network and a control, and what the prototype says: goodput in Mbit/s and mean round trip in ms.
struct Case {
    name: &'static str,
    network: Network,
    goodput: f64,
    mean_rtt: f64,
}

fn network(mbits: u64, rtt_ms: u64, buffer: f64, control: Control, flows: u64) -> Network {
    let mut network = Network::new(mbits * 1_000_000, rtt_ms * 1000, control, flows);
    network.buffer = Buffer::Products(buffer);
    network
}

fn stepping(mut network: Network) -> Network {
    network.course = Course::Step {
        low: 20_000_000,
        period_ms: 5000,
    };
    network
}

fn lossy(mut network: Network) -> Network {
    network.loss = 0.01;
    network
}

fn policed(mut network: Network) -> Network {
    network.polices = true;
    network
}

fn plain() -> Control {
    let mut parameters = defaults();
    parameters.response = 1;
    Control::Pace(parameters)
}

#[test]
fn goodput_and_round_trips_are_those_that_the_prototype_found() {
    let ours = Control::Pace(defaults());
    let case = |name, network, goodput, mean_rtt| Case {
        name,
        network,
        goodput,
        mean_rtt,
    };
    let cases = [
        case(
            "ours, 50/20, 20 ms, 0.5",
            stepping(network(50, 20, 0.5, ours, 1)),
            31.67,
            21.2,
        ),
        case(
            "plain, 50/20, 20 ms, 0.5",
            stepping(network(50, 20, 0.5, plain(), 1)),
            32.23,
            22.1,
        ),
        case(
            "cubic, 50/20, 20 ms, 0.5",
            stepping(network(50, 20, 0.5, Control::Cubic, 1)),
            33.08,
            32.4,
        ),
        case(
            "reno, 50/20, 20 ms, 0.5",
            stepping(network(50, 20, 0.5, Control::Reno, 1)),
            32.25,
            30.0,
        ),
        case(
            "ours x 4, 50/20, 20 ms, 1",
            stepping(network(50, 20, 1.0, ours, 4)),
            32.86,
            30.4,
        ),
        case(
            "plain x 4, 50/20, 20 ms, 1",
            stepping(network(50, 20, 1.0, plain(), 4)),
            33.02,
            37.5,
        ),
        case(
            "cubic x 4, 50/20, 20 ms, 1",
            stepping(network(50, 20, 1.0, Control::Cubic, 4)),
            33.22,
            51.2,
        ),
        case(
            "ours, 50/20, 80 ms, 3",
            stepping(network(50, 80, 3.0, ours, 1)),
            31.19,
            86.0,
        ),
        case(
            "plain, 50/20, 80 ms, 3",
            stepping(network(50, 80, 3.0, plain(), 1)),
            30.30,
            151.0,
        ),
        case(
            "cubic, 50/20, 80 ms, 3",
            stepping(network(50, 80, 3.0, Control::Cubic, 1)),
            32.41,
            344.8,
        ),
        case(
            "ours, 50, 40 ms, 1 % loss",
            lossy(network(50, 40, 2.0, ours, 1)),
            45.64,
            41.1,
        ),
        case("ours, 20 policed", policed(network(20, 40, 0.2, ours, 1)), 17.48, 40.0),
        case("ours, 10, 100 ms", network(10, 100, 1.0, ours, 1), 9.08, 104.3),
        case(
            "cubic, 10, 100 ms",
            network(10, 100, 1.0, Control::Cubic, 1),
            9.31,
            170.4,
        ),
        case("ours x 2, 200, 20 ms", network(200, 20, 1.0, ours, 2), 187.55, 26.2),
    ];
    for case in cases {
        let outcome = report(case.name, &case.network);
        let near = |found: f64, expected: f64, share: f64| (found / expected - 1.0).abs() <= share;
        assert!(
            near(outcome.goodput, case.goodput, 0.05),
            "goodput {} of {}",
            outcome.goodput,
            case.goodput
        );
        assert!(
            near(outcome.mean_rtt, case.mean_rtt, 0.25),
            "round trip {} of {}",
            outcome.mean_rtt,
            case.mean_rtt
        );
    }
}
