//! TCP connections of a home router's clients whose uplink dies: a far end knows one address of theirs only.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::pins::pinned;
use super::scene::{PORT, Scene, TARGETS};

const SOON: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that sends a byte now and then, so many times, to whoever connects.
fn serve(scene: &Scene, address: &str, count: usize) -> std::thread::JoinHandle<anyhow::Result<()>> {
    let address: SocketAddr = (address.parse::<std::net::IpAddr>().unwrap(), PORT).into();
    let far = scene.node("far");
    let listener = far.enter(|| Ok(TcpListener::bind(address)?)).unwrap();
    let work = move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        for _ in 0..count {
            stream.write_all(b"x")?;
            std::thread::sleep(EVERY);
        }
        Ok(())
    };
    far.spawn("server", work).unwrap()
}

/// Who only receives never learns that its connection was forgotten, and would wait for hours.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_go_on_with_a_download_when_its_uplink_is_back() {
    for target in TARGETS {
        let scene = Scene::router([10, 30]);
        let program = scene.up_with(&pinned());
        std::thread::sleep(SOON);
        let server = serve(&scene, target, 100);
        let address: SocketAddr = (target.parse::<std::net::IpAddr>().unwrap(), PORT).into();
        let download = move || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let (mut last, mut longest, mut all, mut buffer) = (Instant::now(), Duration::ZERO, 0, [0; 64]);
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                longest = longest.max(last.elapsed());
                last = Instant::now();
                all += length;
            }
            Ok((all, longest))
        };
        let client = scene.node("client").spawn("client", download).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        scene.kill("wan1");
        std::thread::sleep(Duration::from_secs(8));
        scene.heal("wan1");
        let (all, longest) = client.join().unwrap().unwrap();
        assert_eq!(
            all, 100,
            "{target}: the rest of the download, after a pause of {longest:?}"
        );
        // TCP tries again after 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s (RFC 6298, 5.5), with a least time of 0.2 s.
        assert!(
            longest > Duration::from_secs(8) && longest < Duration::from_secs(14),
            "{longest:?}"
        );
        server.join().unwrap().unwrap();
        program.run("down");
    }
}

/// Somebody who types waits for a dead uplink no longer than `reset_after`, and goes on by the other one.
#[test]
#[ignore = "needs the lab"]
fn lab_paths_reset_connections_that_send_when_their_uplink_stays_dead() {
    // The client's, by the router, and the router's own.
    for (node, target) in [("client", TARGETS[0]), ("client", TARGETS[1]), ("host", TARGETS[0])] {
        let scene = Scene::router([10, 30]);
        let program = scene.up_with(&pinned().replace("[paths]", "[paths]\nreset_after = \"4s\""));
        std::thread::sleep(SOON);
        let server = serve(&scene, target, 100);
        let address: SocketAddr = (target.parse::<std::net::IpAddr>().unwrap(), PORT).into();
        let typing = move || {
            let mut stream = TcpStream::connect(address)?;
            let begin = Instant::now();
            let refused = loop {
                std::thread::sleep(EVERY);
                match stream.write_all(b"x") {
                    Ok(()) if begin.elapsed() > PATIENCE => anyhow::bail!("it waits for ever"),
                    Ok(()) => {}
                    Err(error) => break error.kind(),
                }
            };
            Ok((refused, begin.elapsed()))
        };
        assert_eq!(scene.way(target), "wan1");
        let client = scene.node(node).spawn("client", typing).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        scene.kill("wan1");
        let (refused, after) = client.join().unwrap().unwrap();
        assert!(
            matches!(refused, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            "{refused:?}"
        );
        assert!((6..16).contains(&after.as_secs()), "{node} to {target}: {after:?}");
        let _ = server.join().unwrap();
        let again = serve(&scene, target, 1);
        let connect = move || Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1))?.read(&mut [0])?);
        let read = scene.node(node).spawn("again", connect).unwrap().join().unwrap();
        assert_eq!(read.unwrap(), 1, "{node} to {target}: by the other uplink");
        again.join().unwrap().unwrap();
        program.run("down");
    }
}
