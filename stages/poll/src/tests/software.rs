//! Programs that are not ours, on a host that is flooded: nginx asked by ab, unbound, an ssh session, a WireGuard tunnel.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//!   10.9.0.1 wg0  ════════ wg0  10.9.0.2
//! ```

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tarn_lab::testing::Program;
use tarn_lab::topology::Namespace;

use super::is_left_alone;
use crate::proof::rig::Rig;

const PAGES: u32 = 200;
const NAMES: u32 = 50;
const ECHOES: u32 = 50;
const PINGS: u32 = 100;

const NGINX: &str = "\
daemon off;
master_process off;
pid /tmp/nginx.pid;
error_log stderr;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path /tmp/nginx-body;
    proxy_temp_path /tmp/nginx-proxy;
    fastcgi_temp_path /tmp/nginx-fastcgi;
    uwsgi_temp_path /tmp/nginx-uwsgi;
    scgi_temp_path /tmp/nginx-scgi;
    server {
        listen 10.8.0.1:80;
        root /tmp/pages;
    }
}
";

const UNBOUND: &str = "\
server:
    interface: 10.8.0.1
    access-control: 10.8.0.0/24 allow
    do-daemonize: no
    username: \"\"
    chroot: \"\"
    directory: \"/tmp\"
    pidfile: \"\"
    use-syslog: no
    module-config: \"iterator\"
    local-data: \"lake.example. A 192.0.2.7\"
remote-control:
    control-enable: no
";

const SSHD: &str = "\
ListenAddress 10.8.0.1
HostKey /tmp/ssh-host
AuthorizedKeysFile /tmp/ssh-user.pub
PidFile none
StrictModes no
UsePAM no
";

/// The servers, until it is dropped.
struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// What the client sees of the host.
#[derive(Debug)]
struct Seen {
    /// Pages that ab was given.
    pages: u32,
    /// ms.
    slowest_page: u32,
    /// Names that unbound told.
    names: u32,
    slowest_echo: Duration,
    /// Pings that came back through the tunnel.
    pings: u32,
}

fn serve(host: &Namespace) -> Servers {
    for directory in ["/tmp/pages", "/run/sshd"] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write("/tmp/pages/page", "a page of nginx's ".repeat(200)).unwrap();
    for (file, text) in [("nginx", NGINX), ("unbound", UNBOUND), ("sshd", SSHD)] {
        fs::write(format!("/tmp/{file}.conf"), text).unwrap();
    }
    for key in ["/tmp/ssh-host", "/tmp/ssh-user"] {
        let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", key];
        host.run("ssh-keygen", &arguments).unwrap();
    }
    let start = |program: &str, arguments: &[&str]| {
        let output = File::create(format!("/tmp/{}.log", program.rsplit('/').next().unwrap())).unwrap();
        host.command(program)
            .args(arguments)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap()
    };
    Servers(vec![
        start("nginx", &["-e", "stderr", "-c", "/tmp/nginx.conf"]),
        start("unbound", &["-d", "-c", "/tmp/unbound.conf"]),
        // It wants its whole path, to start itself for each session.
        start("/usr/sbin/sshd", &["-D", "-e", "-f", "/tmp/sshd.conf"]),
    ])
}

/// Joins both ends by WireGuard, with keys that the host makes.
fn tunnel(host: &Namespace, client: &Namespace) {
    let keys = ["host", "client"].map(|end| {
        let private = host.run("wg", &["genkey"]).unwrap();
        fs::write(format!("/tmp/{end}.key"), &private).unwrap();
        host.run_with_input("wg", &["pubkey"], &private).unwrap()
    });
    for (end, name, number, peer, peer_key) in [(host, "host", 1, 2, &keys[1]), (client, "client", 2, 1, &keys[0])] {
        end.ip("link add wg0 type wireguard").unwrap();
        end.ip(&format!("address add 10.9.0.{number}/24 dev wg0")).unwrap();
        let (file, endpoint) = (format!("/tmp/{name}.key"), format!("10.8.0.{peer}:51820"));
        let arguments = [
            "set",
            "wg0",
            "listen-port",
            "51820",
            "private-key",
            &file,
            "peer",
            peer_key.trim(),
        ];
        let peer = ["allowed-ips", "10.9.0.0/24", "endpoint", &endpoint];
        end.run("wg", &[&arguments[..], &peer].concat()).unwrap();
        end.ip("link set wg0 up").unwrap();
    }
}

/// A session that stays open: what is typed into `cat` comes back.
struct Session {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Session {
    fn open(client: &Namespace) -> Self {
        let mut child = client
            .command("ssh")
            .args(["-T", "-i", "/tmp/ssh-user", "-o", "StrictHostKeyChecking=no"])
            .args([
                "-o",
                "UserKnownHostsFile=/dev/null",
                "-o",
                "LogLevel=ERROR",
                "root@10.8.0.1",
                "cat",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut session = Self { child, output };
        session.echo();
        session
    }

    fn echo(&mut self) -> Duration {
        let began = Instant::now();
        self.child.stdin.as_mut().unwrap().write_all(b"a key\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "a key\n", "{}", fs::read_to_string("/tmp/sshd.log").unwrap());
        began.elapsed()
    }

    fn close(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn look(client: &Namespace, session: &mut Session) -> Seen {
    let mut slowest_echo = Duration::ZERO;
    for _ in 0..ECHOES {
        slowest_echo = slowest_echo.max(session.echo());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (pages, slowest_page) = ask_for_pages(client);
    let told = |_: &u32| {
        let answer = client.run("busybox", &["nslookup", "-type=a", "lake.example", "10.8.0.1"]);
        answer.is_ok_and(|text| text.contains("192.0.2.7"))
    };
    let (count, names) = (PINGS.to_string(), (0..NAMES).filter(told).count() as u32);
    let ping = client
        .command("ping")
        .args(["-q", "-i", "0.01", "-W", "1", "-c", &count, "10.9.0.1"])
        .output();
    let pings = String::from_utf8(ping.unwrap().stdout).unwrap();
    let came_back = pings.split(" received").next().and_then(|text| text.rsplit(' ').next());
    Seen {
        pages,
        slowest_page,
        names,
        slowest_echo,
        pings: came_back.unwrap().parse().unwrap(),
    }
}

/// Has ab ask for all pages, a connection each and one after another. Returns how many came, and the longest time in ms.
fn ask_for_pages(client: &Namespace) -> (u32, u32) {
    let count = PAGES.to_string();
    let output = client
        .command("timeout")
        .args(["20", "ab", "-n", &count, "http://10.8.0.1/page"])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let figure = |name: &str| {
        let rest = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u32>().ok()
    };
    let failed = figure("Failed requests:").unwrap_or(PAGES);
    let complete = figure("Complete requests:").unwrap_or_default();
    (complete - failed.min(complete), figure("100%").unwrap_or(u32::MAX))
}

/// Who uses the host does not notice the flood.
#[test]
#[ignore = "needs the lab"]
fn lab_cards_serve_with_real_programs_in_a_storm() {
    if is_left_alone() {
        return;
    }
    let rig = Rig::new().unwrap();
    let (host, client) = (rig.host().unwrap(), rig.client().unwrap());
    let servers = serve(host);
    tunnel(host, client);
    let program = Program::new(host, "[poll]\n");
    program.run("up");
    rig.flood(false).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let mut session = Session::open(client);
    let calm = look(client, &mut session);
    // 420,000 datagrams a second, to a port where nobody listens.
    rig.begin(21, 9).unwrap();
    rig.flood(true).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let flooded = look(client, &mut session);
    rig.flood(false).unwrap();
    session.close();
    drop(servers);
    println!("calm {calm:?}\nflooded {flooded:?}");
    for seen in [&calm, &flooded] {
        let counts = [seen.pages, seen.names, seen.pings];
        assert_eq!(counts, [PAGES, NAMES, PINGS], "calm {calm:?}, flooded {flooded:?}");
    }
    // A request for a connection is sent again after a second, at most once.
    assert!(flooded.slowest_page < 1_200, "{flooded:?}");
    assert!(flooded.slowest_echo < Duration::from_millis(10), "{flooded:?}");
    // A socket that has not said farewell would hold its namespace, and so the card: `down` has QEMU's card forget its address.
    std::thread::sleep(Duration::from_millis(500));
    program.run("down");
}
