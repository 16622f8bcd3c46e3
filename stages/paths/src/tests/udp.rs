//! Probes by UDP, for targets that do not answer pings.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::scene::{BOTH, PORT, Scene, TARGETS, await_state, await_used, figure};
use tarn_lab::load::UdpEcho;

/// A name server that refuses whatever it is asked.
fn refuse_all(socket: UdpSocket) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        buffer[2] |= 0x80;
        buffer[3] = 5;
        socket.send_to(&buffer[..length], from)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs the lab"]
fn lab_paths_probe_by_udp_where_nobody_answers_pings() {
    let scene = Scene::new([40, 20]);
    let far = scene.node("far");
    far.run("sysctl", &["-w", "net.ipv4.icmp_echo_ignore_all=1"]).unwrap();
    let _echo = UdpEcho::start(far, SocketAddr::new(TARGETS[0].parse().unwrap(), PORT)).unwrap();
    let address = SocketAddr::new(TARGETS[1].parse().unwrap(), 53);
    let socket = far.enter(|| Ok(UdpSocket::bind(address)?)).unwrap();
    let server = far.spawn("dns", move || refuse_all(socket)).unwrap();
    let text = BOTH
        .replace("targets = [\"10.9.9.9\"]", "targets = [\"udp:10.9.9.9:7\"]")
        .replace("targets = [\"fd09::9\"]", "targets = [\"udp:[fd09::9]:53\"]");
    let program = scene.up_with(&text);
    await_used(&program, "wan2");
    for (to, target) in [("default", "udp:10.9.9.9:7"), ("::/0", "udp:[fd09::9]:53")] {
        let row = figure(&program, "round_trips", to, "wan1");
        assert_eq!(row["target"], target);
        assert!((40.0..41.0).contains(&row["median"].as_f64().unwrap()), "{row}");
        assert_eq!(scene.way(TARGETS[usize::from(to != "default")]), "wan2");
    }
    scene.kill("wan2");
    await_state(&program, "default", "wan2", "silent");
    await_state(&program, "::/0", "wan1", "used");
    program.run("down");
    server.join().unwrap().unwrap();
}
