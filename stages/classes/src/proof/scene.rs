//! The network of the experiments, and what stands before the service in it.
//!
//! ```text
//!   clients                          server
//!   10.0.0.1 .. 10.0.0.5 ──────── 10.0.0.100:80
//!                        eth0 eth0
//! ```

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

/// The targets of the thesis, in percent, of the classes from the best on.
pub const TARGETS: [u32; 5] = [90, 80, 70, 60, 50];
/// Where the service is asked.
pub const SERVICE: &str = "10.0.0.100:80";
/// Where it listens when something stands before it.
pub const BEHIND: &str = "127.0.0.1:8080";
/// How long a program may take to listen, in looks 10 ms apart.
const LOOKS: u32 = 500;

/// What decides who is served when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Nobody: the kernel and the service as they are.
    Stock,
    /// tarn by the rule first published.
    Published,
    /// HAProxy with a priority a class, and as many connections to the service as it works on at a time.
    Haproxy,
    /// HAProxy with the rule of tarn instead of fixed priorities, and one connection more, so that the service need not wait.
    TarnHaproxy,
    /// tarn, told how many requests the service works on at a time, and one more, so that it need not wait for the next.
    Tarn,
    /// tarn with its defaults, left to find that out.
    TarnAuto,
}

impl Contender {
    /// How its cases are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Published => "published",
            Self::Haproxy => "haproxy",
            Self::TarnHaproxy => "tarn-haproxy",
            Self::Tarn => "tarn",
            Self::TarnAuto => "tarn-auto",
        }
    }

    /// What a reader is told.
    pub fn title(self) -> &'static str {
        match self {
            Self::Stock => "stock kernel",
            Self::Published => "published rule",
            Self::Haproxy => "HAProxy, priorities and maxconn",
            Self::TarnHaproxy => "tarn, through HAProxy",
            Self::Tarn => "tarn",
            Self::TarnAuto => "tarn, finding the limit",
        }
    }

    /// The lines of the section `[classes]` that differ; `None` when tarn is not up.
    fn settings(self) -> Option<&'static str> {
        match self {
            Self::Stock | Self::Haproxy | Self::TarnHaproxy => None,
            Self::Published => Some("rule = \"published\"\nlimit = 2"),
            Self::Tarn => Some("limit = 2"),
            Self::TarnAuto => Some("limit = \"auto\""),
        }
    }

    /// Where the service has to listen.
    pub fn listens(self) -> Result<SocketAddr> {
        let is_behind = matches!(self, Self::Haproxy | Self::TarnHaproxy);
        Ok(if is_behind { BEHIND } else { SERVICE }.parse()?)
    }
}

/// The network.
pub struct Scene {
    network: Network,
}

impl Scene {
    /// Makes it.
    ///
    /// # Errors
    /// Those of [`Topology::build`].
    pub fn new() -> Result<Self> {
        let clients = (1..=5).fold(End::new("clients", "eth0"), |end, host| {
            end.address(&format!("10.0.0.{host}/24"))
        });
        let network = Topology::new()
            .node(Node::new("clients"))
            .node(Node::new("server"))
            .link(clients, End::new("server", "eth0").address("10.0.0.100/24"))
            .permanent_neighbours()
            .build()?;
        Ok(Self { network })
    }

    /// Where the clients are.
    pub fn clients(&self) -> Result<&Namespace> {
        self.network.namespace("clients")
    }

    /// Where the service is.
    pub fn server(&self) -> Result<&Namespace> {
        self.network.namespace("server")
    }

    /// Sets up what stands before the service. What tarn's section says besides is in `settings`.
    ///
    /// # Errors
    /// A program that is not there, or fails.
    pub fn begin(&self, contender: Contender, deadline: Duration) -> Result<Begun<'_>> {
        let mut begun = Begun {
            scene: self,
            program: None,
            tarn: false,
        };
        if let Some(settings) = contender.settings() {
            self.start_tarn(settings, deadline)?;
            begun.tarn = true;
        }
        if contender == Contender::Haproxy {
            begun.program = Some(self.start_haproxy(deadline)?);
        }
        if contender == Contender::TarnHaproxy {
            begun.tarn = true;
            begun.program = Some(self.start_steered(deadline)?);
        }
        Ok(begun)
    }

    /// `tarn up` with five classes.
    ///
    /// # Errors
    /// What it says.
    pub fn start_tarn(&self, settings: &str, deadline: Duration) -> Result<()> {
        let settings = format!("ports = [\"udp/80\", \"tcp/80\"]\n{settings}\n");
        up(self.server()?, &configuration(&settings, deadline))
    }

    /// Runs tarn on the server and returns what it prints.
    ///
    /// # Errors
    /// What it says.
    pub fn tarn(&self, arguments: &[&str]) -> Result<String> {
        self.server()?.tarn(arguments)
    }

    /// A client's address, by its class.
    pub fn client(class: usize) -> Result<SocketAddr> {
        Ok(format!("10.0.0.{}:0", class + 1).parse()?)
    }

    /// HAProxy as its documentation has it for this: one request at a time goes to the service, the others wait in its queue
    /// by priority; what has waited for as long as the deadline is refused, which leaves more for the others.
    fn start_haproxy(&self, deadline: Duration) -> Result<Child> {
        let mut text = format!(
            "global\n maxconn 20000\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n \
             timeout queue {}us\nfrontend front\n bind {SERVICE}\n",
            deadline.as_micros()
        );
        for class in 0..TARGETS.len() {
            text += &format!(
                " http-request set-priority-class int({}) if {{ src 10.0.0.{} }}\n",
                class + 1,
                class + 1
            );
        }
        text +=
            &format!(" default_backend back\nbackend back\n http-reuse always\n server service {BEHIND} maxconn 1\n");
        let file = "/tmp/haproxy.cfg";
        std::fs::write(file, text).with_context(|| format!("cannot write {file}"))?;
        self.start_program("haproxy", &["-db", "-f", file])
    }

    /// HAProxy with what tarn prints for it.
    fn start_steered(&self, deadline: Duration) -> Result<Child> {
        const SOCKET: &str = "/tmp/haproxy.sock";
        for map in ["web.clients", "web.classes"] {
            std::fs::write(format!("/tmp/{map}"), "")?;
        }
        let service = format!(
            "[[classes.service]]\nname = \"web\"\nthrough = \"haproxy\"\nsocket = \"{SOCKET}\"\nmaps = \"/tmp\"\n"
        );
        up(self.server()?, &(configuration("", deadline) + &service))?;
        let printed: serde_json::Value = serde_json::from_str(&self.tarn(&["classes", "haproxy", "--json"])?)?;
        let part = |name: &str| printed[name].as_str().unwrap_or_default().to_owned();
        let text = format!(
            "global\n maxconn 20000\n stats socket {SOCKET} level admin\ndefaults\n mode http\n timeout connect 5s\n \
             timeout client 60s\n timeout server 60s\n timeout queue {}us\nfrontend front\n bind {SERVICE}\n \
             default_backend back\n{}backend back\n http-reuse always\n{} server service {BEHIND} maxconn 2\n",
            deadline.as_micros() * 4 / 5,
            part("counters"),
            part("rules")
        );
        let file = "/tmp/haproxy.cfg";
        std::fs::write(file, text).with_context(|| format!("cannot write {file}"))?;
        self.start_program("haproxy", &["-db", "-f", file])
    }

    /// Starts a server program in the foreground and waits until it listens.
    ///
    /// # Errors
    /// When it ends, or does not listen.
    pub fn start_program(&self, name: &str, arguments: &[&str]) -> Result<Child> {
        let mut command = self.server()?.command(name);
        command.args(arguments).stdin(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let address: SocketAddr = SERVICE.parse()?;
        for _ in 0..LOOKS {
            if self
                .clients()?
                .enter(|| Ok(std::net::TcpStream::connect(address).is_ok()))?
            {
                return Ok(child);
            }
            if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {name}"))? {
                bail!("{name} ended: {status}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        bail!("{name} does not listen on {SERVICE}")
    }
}

/// Five classes, whose clients have one address each.
fn configuration(settings: &str, deadline: Duration) -> String {
    let mut text = format!("[classes]\ndeadline = \"{}us\"\n{settings}", deadline.as_micros());
    for (class, target) in TARGETS.iter().enumerate() {
        text += &format!("[[classes.class]]\nname = \"class{class}\"\ntarget = {target}\n");
        if class + 1 < TARGETS.len() {
            text += &format!("networks = [\"10.0.0.{}\"]\n", class + 1);
        }
    }
    text
}

/// `tarn up` on a host, with this configuration.
///
/// # Errors
/// What it says.
pub fn up(host: &Namespace, configuration: &str) -> Result<()> {
    let file = "/tmp/classes.toml";
    std::fs::write(file, configuration).with_context(|| format!("cannot write {file}"))?;
    host.tarn(&["up", "-c", file]).map(drop)
}

/// What was set up; [`Self::end`] takes it away.
pub struct Begun<'a> {
    scene: &'a Scene,
    program: Option<Child>,
    tarn: bool,
}

impl Begun<'_> {
    /// Takes it away.
    ///
    /// # Errors
    /// What `tarn down` says.
    pub fn end(mut self) -> Result<()> {
        if self.tarn {
            self.scene.tarn(&["down"])?;
        }
        if let Some(mut child) = self.program.take() {
            end_program(&mut child)?;
        }
        Ok(())
    }
}

/// Adds the user as whom Apache and Debian's nginx serve. The guest has the users of a system that nobody has set up: root.
///
/// # Errors
/// When the files of users cannot be read or written.
pub fn add_web_user() -> Result<()> {
    for (file, entry) in [
        ("/etc/passwd", "www-data:x:33:33::/nonexistent:/usr/sbin/nologin\n"),
        ("/etc/group", "www-data:x:33:\n"),
    ] {
        let known = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        if !known.contains("www-data") {
            fs::write(file, known + entry).with_context(|| format!("cannot write {file}"))?;
        }
    }
    Ok(())
}

/// Ends a server program.
///
/// # Errors
/// When it cannot be waited for.
pub fn end_program(child: &mut Child) -> Result<()> {
    // Asked, not killed: a server with children ends them, too. One that has ended by itself is as good.
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
    child.wait().context("cannot wait for a program to end").map(drop)
}
