//! Services as users run them: nginx before gunicorn, and unbound.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::clients;
use super::scene::{Begun, DIRECTORY};

/// Requests that gunicorn works on at a time, each for so long.
pub const THREADS: usize = 4;
const WORK: Duration = Duration::from_millis(100);
/// Requests of a visit, all at once.
const VISIT: u32 = 5;
/// Where nginx listens when HAProxy stands before it.
pub const BEHIND: &str = "127.0.0.1:8080";
/// Where the application listens.
pub const APPLICATION: &str = "127.0.0.1:8000";
/// A certificate that nobody trusts, with its key.
const CERTIFICATE: &str = include_str!("../../tests/software/lab-only.pem");
pub const CERTIFICATE_FILE: &str = "/tmp/real/pem";
/// The part of a CPU that unbound may use: so long in each period, in us.
const UNBOUND_CPU: &str = "1000 100000";
const UNBOUND_GROUP: &str = "/sys/fs/cgroup/unbound";

/// What is asked, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// nginx and gunicorn over HTTP/1.1.
    Http,
    /// The same in TLS, a connection a request.
    Tls,
    /// The same by HTTP/2, of which a few connections carry all requests.
    Http2,
    /// The same by HTTP/2, a connection each visit, with some requests at once.
    Visits,
    /// unbound, over UDP.
    Dns,
}

impl Kind {
    /// How its cases are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "nginx-http",
            Self::Tls => "nginx-tls",
            Self::Http2 => "nginx-h2",
            Self::Visits => "nginx-h2-visits",
            Self::Dns => "unbound",
        }
    }

    /// What a reader is told.
    pub fn title(self) -> &'static str {
        match self {
            Self::Http => "nginx and gunicorn, HTTP/1.1",
            Self::Tls => "nginx and gunicorn, a TLS connection each",
            Self::Http2 => "nginx and gunicorn, HTTP/2",
            Self::Visits => "nginx and gunicorn, HTTP/2, visits of five requests",
            Self::Dns => "unbound",
        }
    }

    /// Its ports, as the configuration names them.
    pub fn ports(self) -> &'static str {
        match self {
            Self::Http => "\"tcp/80\"",
            Self::Tls | Self::Http2 | Self::Visits => "\"tcp/443\"",
            Self::Dns => "\"udp/53\"",
        }
    }

    /// Whether a connection is what is asked for: its clients are watched on their wire.
    pub fn is_connection(self) -> bool {
        matches!(self, Self::Tls | Self::Visits)
    }

    /// Requests of each connection, where that is what is asked for.
    pub fn at_once(self) -> u32 {
        if self == Self::Visits { VISIT } else { 1 }
    }

    /// Its protocol, as the configuration names it.
    pub fn protocol(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            _ => "http",
        }
    }
}

/// Starts it.
///
/// # Errors
/// A program that is not there, or fails.
pub fn start(begun: &mut Begun<'_>, kind: Kind, is_behind: bool) -> Result<()> {
    match kind {
        Kind::Dns => unbound(begun),
        _ => {
            gunicorn(begun)?;
            nginx(begun, is_behind, "")
        }
    }
}

/// An application that waits for its database, with one worker of several threads.
///
/// # Errors
/// It is not there, or fails.
pub fn gunicorn(begun: &mut Begun<'_>) -> Result<()> {
    let application = format!(
        "import time\n\ndef application(environ, start_response):\n    time.sleep({})\n    \
         start_response(\"200 OK\", [(\"Content-Type\", \"text/plain\"), (\"Content-Length\", \"6\")])\n    \
         return [b\"served\"]\n",
        WORK.as_secs_f64()
    );
    fs::write(format!("{DIRECTORY}/shop.py"), application)?;
    let threads = THREADS.to_string();
    let arguments = [
        "--chdir",
        DIRECTORY,
        "--worker-class=gthread",
        "--workers=1",
        "--threads",
        &threads,
        "--bind",
        APPLICATION,
        "--backlog=4096",
        "--keep-alive=75",
        "--worker-connections=10000",
        "--worker-tmp-dir=/dev/shm",
        "--log-level=error",
        "shop:application",
    ];
    begun.start("gunicorn", &arguments, "8000")
}

/// nginx before an application at [`APPLICATION`], as in its manual, without what Debian's package sets up. `more` are lines of its
/// server's configuration.
///
/// # Errors
/// It is not there, or fails.
pub fn nginx(begun: &mut Begun<'_>, is_behind: bool, more: &str) -> Result<()> {
    fs::write(CERTIFICATE_FILE, CERTIFICATE)?;
    let listen = match is_behind {
        true => format!("listen {BEHIND} backlog=4096;"),
        false => format!(
            "listen 80 backlog=4096; listen 443 ssl http2 backlog=4096; ssl_certificate {CERTIFICATE_FILE}; \
             ssl_certificate_key {CERTIFICATE_FILE};"
        ),
    };
    let configuration = format!(
        "daemon off;\nuser root;\npid {DIRECTORY}/nginx.pid;\nerror_log {DIRECTORY}/nginx.log;\nworker_rlimit_nofile 65536;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n access_log off;\n upstream shop {{ server {APPLICATION}; keepalive 64; }}\n\
         server {{ {listen} {more} location / {{ proxy_pass http://shop; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; }} }}\n}}\n"
    );
    let file = format!("{DIRECTORY}/nginx.conf");
    fs::write(&file, configuration)?;
    let port = if is_behind { "8080" } else { "443" };
    begun.start("nginx", &["-e", &format!("{DIRECTORY}/nginx.log"), "-c", &file], port)
}

/// A name server with an answer of its own, in a container that may use a small part of a CPU.
fn unbound(begun: &mut Begun<'_>) -> Result<()> {
    let configuration = format!(
        "server:\n interface: 0.0.0.0\n access-control: 0.0.0.0/0 allow\n chroot: \"\"\n username: \"\"\n \
         directory: \"{DIRECTORY}\"\n pidfile: \"\"\n use-syslog: no\n do-daemonize: no\n num-threads: 1\n \
         local-zone: \"lab.\" static\n local-data: \"shop.lab. A 192.0.2.1\"\nremote-control:\n control-enable: no\n"
    );
    let file = format!("{DIRECTORY}/unbound.conf");
    fs::write(&file, configuration)?;
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu").context("cannot limit the CPU of a group")?;
    fs::create_dir_all(UNBOUND_GROUP)?;
    fs::write(format!("{UNBOUND_GROUP}/cpu.max"), UNBOUND_CPU).context("cannot limit the CPU of unbound")?;
    begun.start("unbound", &["-d", "-c", &file], "53")?;
    // It listens before it has begun, which would take it minutes then.
    clients::query(begun.scene(), &["-n", "1"])?;
    fs::write(format!("{UNBOUND_GROUP}/cgroup.procs"), begun.last().to_string()).context("cannot limit unbound")
}
