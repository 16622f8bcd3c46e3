//! Firewalls whose rules come before tarn and give marks.

use super::pins::pinned;
use super::scene::Scene;
use tarn_lab::testing::Program;

/// A firewall that keeps something in the mark of each connection.
const MARKING: &str = r#"
table inet firewall {
    chain arrivals {
        type filter hook prerouting priority mangle;
        ct mark set ct mark or 0x05000000
    }
}
"#;

/// As a host starts, its firewall is there before any connection.
#[test]
#[ignore = "needs the lab"]
fn lab_kernel_paths_refuse_bits_that_a_firewall_gives_before_there_is_any_connection() {
    let scene = Scene::router([0, 0]);
    let host = scene.host();
    host.run_with_input("nft", &["-f", "-"], MARKING).unwrap();
    let program = Program::new(host, &pinned());
    let complaint = program.complaint("up");
    assert!(complaint.contains("nftables rules of another program"), "{complaint}");
    assert!(complaint.contains("set mark_mask = 0xff0000,"), "{complaint}");
    assert!(!program.state().exists());
    program.configure(&pinned().replace("[paths]", "[paths]\nmark_mask = 0xff0000"));
    program.run("up");
    // One that comes later does not keep the next agent from what runs.
    let later = MARKING.replace("firewall", "later").replace("0x05000000", "0x50000");
    host.run_with_input("nft", &["-f", "-"], &later).unwrap();
    program.run("up");
    program.run("down");
}
