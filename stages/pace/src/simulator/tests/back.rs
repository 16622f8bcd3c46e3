//! Acknowledgements wait in a queue of the other direction.

use crate::parameters::defaults;
use crate::simulator::network::{Back, Buffer, Control, Network};
use crate::simulator::outcome::Outcome;
use crate::simulator::simulate;

/// An upload of 20 Mbit/s, 40 ms, with a queue of two products; a download keeps 40 to 90 ms in the other direction's.
fn upload(flows: u64, back: Option<Back>) -> Outcome {
    let mut network = Network::new(20_000_000, 40_000, Control::Pace(defaults()), flows);
    network.buffer = Buffer::Products(2.0);
    network.duration_ms = 20_000;
    network.back = back;
    simulate(&network)
}

/// Who uploads while something is downloaded would lose a third of the upload, or get a queue that nobody else makes.
#[test]
fn an_upload_keeps_its_rate_beside_a_download() {
    let download = Back {
        from_ms: 1_000,
        least_ms: 40,
        most_ms: 90,
        period_ms: 3_000,
    };
    for flows in [1, 4] {
        let (alone, beside) = (upload(flows, None), upload(flows, Some(download)));
        assert!(beside.goodput > 0.95 * alone.goodput, "{flows}:\n{alone}\n{beside}");
        assert!(beside.mean_rtt < 1.5 * alone.mean_rtt, "{flows}:\n{alone}\n{beside}");
    }
}
