//! Programs that are not ours, on a host that is flooded: nginx asked by ab, unbound, an ssh session, a WireGuard tunnel.
//!
//! ```text
//!   host                    client
//!   10.8.0.1 eth0 ──────── eth0 10.8.0.2     (proof/rig.rs)
//!   10.9.0.1 wg0  ════════ wg0  10.9.0.2
//! ```

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tarn_lab::testing::Program;
use tarn_lab::testing::software::{Pages, Running, tunnel};
use tarn_lab::topology::Namespace;

use super::is_left_alone;
use crate::proof::rig::Rig;

const PAGES: u64 = 200;
const NAMES: u64 = 50;
const ECHOES: u32 = 50;
const PINGS: u64 = 100;

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

/// What the client sees of the host.
#[derive(Debug)]
struct Seen {
    /// By ab, a connection each and one after another.
    pages: Pages,
    /// Names that unbound told.
    names: u64,
    slowest_echo: Duration,
    /// Pings that came back through the tunnel.
    pings: u64,
}

fn serve(host: &Namespace) -> [Running; 3] {
    fs::create_dir_all("/run/sshd").unwrap();
    for (file, text) in [("unbound", UNBOUND), ("sshd", SSHD)] {
        fs::write(format!("/tmp/{file}.conf"), text).unwrap();
    }
    for key in ["/tmp/ssh-host", "/tmp/ssh-user"] {
        let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", key];
        host.run("ssh-keygen", &arguments).unwrap();
    }
    [
        Running::nginx(host, &"a page of nginx's ".repeat(200)),
        Running::serve(host, "unbound", &["-d", "-c", "/tmp/unbound.conf"]).once_listening(host, 53),
        // It wants its whole path, to start itself for each session.
        Running::serve(host, "/usr/sbin/sshd", &["-D", "-e", "-f", "/tmp/sshd.conf"]).once_listening(host, 22),
    ]
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
        assert_eq!(line, "a key\n", "{}", fs::read_to_string("/tmp/host-sshd.log").unwrap());
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
    let pages = Running::ab(client, &format!("-n {PAGES} http://10.8.0.1/")).pages();
    let told = |_: &u64| {
        let answer = client.run("busybox", &["nslookup", "-type=a", "lake.example", "10.8.0.1"]);
        answer.is_ok_and(|text| text.contains("192.0.2.7"))
    };
    let names = (0..NAMES).filter(told).count() as u64;
    let pings = Running::ping(client, &format!("-i 0.01 -c {PINGS} 10.9.0.1")).answered();
    Seen {
        pages,
        names,
        slowest_echo,
        pings,
    }
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
    tunnel([(host, Some("10.8.0.2")), (client, Some("10.8.0.1"))]);
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
        let counts = [seen.pages.served, seen.names, seen.pings];
        assert_eq!(counts, [PAGES, NAMES, PINGS], "calm {calm:?}, flooded {flooded:?}");
    }
    // A request for a connection is sent again after a second, at most once.
    assert!(flooded.pages.slowest_ms < 1_200, "{flooded:?}");
    assert!(flooded.slowest_echo < Duration::from_millis(10), "{flooded:?}");
    // A socket that has not said farewell would hold its namespace, and so the card: `down` has QEMU's card forget its address.
    std::thread::sleep(Duration::from_millis(500));
    program.run("down");
}
