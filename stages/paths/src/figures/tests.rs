//! What `status`, `top` and the metrics say of uplinks.

use super::*;
use tarn_base::figures::testing::assert_whole;

fn snapshot(age: u64) -> Snapshot {
    let mut snapshot = snapshot::tests::snapshot(&[("default", &[("wan1", "used", 0)])]);
    snapshot.at = runtime::now() - age;
    let uplink = &mut snapshot.groups[0].uplinks[0];
    uplink.figures = Some(ProbeFigures {
        rtt_us: 12_000.0,
        deviation_us: 100.0,
        loss: 0.0,
    });
    (uplink.share, uplink.sends) = (1.0, Some(1e6));
    snapshot
}

/// Without an agent nothing is measured: an old round trip time would pass for what it is now.
#[test]
fn figures_that_are_old_are_not_shown_as_those_of_now() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::at(directory.path(), "netns-test");
    state.create().unwrap();
    for (age, rtt) in [(0, Value::from(12.0)), (60, Value::Null)] {
        state.write_json(snapshot::FILE, &snapshot(age)).unwrap();
        let figures = read(&state).unwrap().unwrap();
        assert_whole(&figures);
        let json = figures.json();
        assert_eq!(json["uplinks"][0]["rtt"], rtt);
        assert_eq!(json["traffic"][0]["sends"].is_null(), rtt.is_null());
        assert_eq!(json["uplinks"][0]["share"], 100.0);
    }
}
