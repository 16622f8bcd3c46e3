//! What a user would lose: volume that is paid for to probes, or seconds to an uplink that is dead and that nobody asks.

use super::*;

/// Bytes of a ping and its answer over IPv4: Ethernet, IP and ICMP headers, and 8 bytes.
const EXCHANGE: u64 = 2 * (14 + 20 + 8 + 8);
const MONTH_S: u64 = 30 * 86_400;

fn idle(settings: Settings, paths: Vec<Path>) -> Simulation {
    let mut simulation = Simulation::new(settings, paths);
    simulation.is_idle = true;
    simulation
}

/// The month's bill of a pair of uplinks that nobody uses, and that of the worst traffic.
#[test]
fn probes_of_a_pair_of_uplinks_are_less_than_a_gigabyte_a_month() {
    for is_idle in [true, false] {
        let paths = vec![lossy(steady(ms(20), ms(2), 1), 0.005, 3), steady(ms(30), ms(2), 2)];
        let mut simulation = idle(Settings::default(), paths);
        simulation.is_idle = is_idle;
        simulation.run_until(s(60));
        let before = simulation.sent;
        simulation.run_until(s(60 + 1800));
        let month = (simulation.sent - before) * EXCHANGE * MONTH_S / 1800;
        assert!((100_000_000..500_000_000).contains(&month), "{month} bytes");
    }
}

/// Nobody waits for answers there, but who comes must not be sent there.
#[test]
fn an_idle_uplink_is_known_to_be_dead_within_3_s() {
    for (offset, index) in (0..20).flat_map(|offset| [(offset, 0), (offset, 1)]) {
        let died = s(60) + ms(90 * offset);
        let path = |number| {
            let path = steady(ms(20 + 10 * number), ms(1), number);
            if index == number {
                dead(path, died, s(100))
            } else {
                path
            }
        };
        let mut simulation = idle(Settings::default(), vec![path(0), path(1)]);
        simulation.run_until(died + s(3));
        let uplink = &simulation.judge.uplinks[index as usize];
        assert_eq!((uplink.life, uplink.weight), (Life::Silent, 0), "{index}, {died:?}");
    }
}

/// Where volume is dear, less than a tenth of that.
#[test]
fn a_metered_uplink_is_asked_less() {
    let mut simulation = idle(
        Settings::default(),
        vec![steady(ms(20), ms(2), 1), steady(ms(30), ms(2), 2)],
    );
    for uplink in &mut simulation.judge.uplinks {
        *uplink = uplink.clone().metered(true, &Settings::default());
    }
    simulation.run_until(s(60));
    let before = simulation.sent;
    simulation.run_until(s(60 + 1800));
    let month = (simulation.sent - before) * EXCHANGE * MONTH_S / 1800;
    assert!(month < 80_000_000, "{month} bytes");
}
