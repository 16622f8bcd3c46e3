//! The network of the experiment, and what stands before the service in it. Programs that send from no address of their own choice
//! have a network each:
//!
//! ```text
//!   client0  10.0.1.1 ──── 10.0.1.100  server
//!   client1  10.0.2.1 ──── 10.0.2.100
//!   ...
//!   client4  10.0.5.1 ──── 10.0.5.100
//! ```

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::servers::{self, CERTIFICATE_FILE, Kind, THREADS};
use crate::proof::scene::{self, TARGETS, end_program};
use tarn_lab::topology::{End, Namespace, Network, Node, Topology, bring_loopback_up};

/// Where everything is kept.
pub const DIRECTORY: &str = "/tmp/real";
const HAPROXY_SOCKET: &str = "/tmp/real/haproxy.sock";
/// How long a program may take to listen, in looks 20 ms apart.
const LOOKS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(20);

/// What decides who is served when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Nobody: the kernel and the service as they are.
    Stock,
    /// HAProxy, with a fixed priority a class.
    Haproxy,
    /// tarn in the kernel, with its defaults: it finds the limit.
    Tarn,
    /// HAProxy with the order of classes that tarn gives it.
    TarnHaproxy,
}

impl Contender {
    /// How its cases begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Haproxy => "haproxy",
            Self::Tarn => "tarn",
            Self::TarnHaproxy => "tarn-haproxy",
        }
    }

    /// What a reader is told.
    pub fn title(self) -> &'static str {
        match self {
            Self::Stock => "stock kernel",
            Self::Haproxy => "HAProxy, priorities and maxconn",
            Self::Tarn => "tarn",
            Self::TarnHaproxy => "tarn, through HAProxy",
        }
    }

    /// Whether HAProxy has the clients' connections.
    pub fn is_proxy(self) -> bool {
        matches!(self, Self::Haproxy | Self::TarnHaproxy)
    }

    /// Whether tarn is up.
    pub fn is_tarn(self) -> bool {
        matches!(self, Self::Tarn | Self::TarnHaproxy)
    }
}

/// The network.
pub struct Scene {
    network: Network,
}

/// A class's clients are in a network of their own.
pub fn client(class: usize) -> String {
    format!("client{class}")
}

/// The server's address there.
pub fn server_address(class: usize) -> String {
    format!("10.0.{}.100", class + 1)
}

pub fn client_address(class: usize) -> String {
    format!("10.0.{}.1", class + 1)
}

impl Scene {
    /// Makes it.
    ///
    /// # Errors
    /// Those of [`Topology::build`].
    pub fn new() -> Result<Self> {
        let mut topology = Topology::new().node(Node::new("server"));
        for class in 0..TARGETS.len() {
            let server = End::new("server", &format!("eth{class}")).address(&(server_address(class) + "/24"));
            let client_end = End::new(&client(class), "eth0").address(&(client_address(class) + "/24"));
            topology = topology.node(Node::new(&client(class))).link(client_end, server);
        }
        let network = topology.permanent_neighbours().build()?;
        fs::create_dir_all(DIRECTORY).context("cannot make the programs' directory")?;
        let scene = Self { network };
        scene.server()?.enter(|| Ok(bring_loopback_up()?))?;
        Ok(scene)
    }

    /// Where a class's clients are.
    ///
    /// # Errors
    /// None but for a class that is not there.
    pub fn clients(&self, class: usize) -> Result<&Namespace> {
        self.network.namespace(&client(class))
    }

    /// Where the services are.
    ///
    /// # Errors
    /// None.
    pub fn server(&self) -> Result<&Namespace> {
        self.network.namespace("server")
    }

    /// Where nothing runs yet.
    pub fn nothing(&self) -> Begun<'_> {
        Begun {
            scene: self,
            programs: Vec::new(),
            tarn: false,
        }
    }

    /// Starts a service, and what stands before it.
    ///
    /// # Errors
    /// A program that is not there, or fails.
    pub fn begin(&self, contender: Contender, kind: Kind, deadline: Duration) -> Result<Begun<'_>> {
        let mut begun = self.nothing();
        servers::start(&mut begun, kind, contender.is_proxy())?;
        match contender {
            Contender::Stock => {}
            Contender::Haproxy => {
                let priorities = (0..TARGETS.len()).map(|class| {
                    let (priority, client) = (class + 1, client_address(class));
                    format!(" http-request set-priority-class int({priority}) if {{ src {client} }}\n")
                });
                begun.haproxy("", &priorities.collect::<String>(), THREADS, deadline)?;
            }
            Contender::Tarn => {
                let (ports, protocol) = (kind.ports(), kind.protocol());
                let service =
                    format!("[[classes.service]]\nname = \"web\"\nports = [{ports}]\nprotocol = \"{protocol}\"\n");
                begun.up(&service, deadline)?;
            }
            Contender::TarnHaproxy => {
                for map in ["web.clients", "web.classes"] {
                    fs::write(format!("{DIRECTORY}/{map}"), "")?;
                }
                let service = format!(
                    "[[classes.service]]\nname = \"web\"\nthrough = \"haproxy\"\nsocket = \"{HAPROXY_SOCKET}\"\nmaps = \"{DIRECTORY}\"\n"
                );
                begun.up(&service, deadline)?;
                let printed = self.server()?.tarn(&["classes", "haproxy", "--json"])?;
                let printed: serde_json::Value = serde_json::from_str(&printed)?;
                let part = |name: &str| printed[name].as_str().unwrap_or_default().to_owned();
                begun.haproxy(&part("counters"), &part("rules"), THREADS + 1, deadline)?;
            }
        }
        Ok(begun)
    }
}

/// Five classes, whose clients have a network each.
pub fn configuration(service: &str, deadline: Duration) -> String {
    let mut text = format!("[classes]\ndeadline = \"{}ms\"\n{service}", deadline.as_millis());
    for (class, target) in TARGETS.iter().enumerate() {
        text += &format!("[[classes.class]]\nname = \"class{class}\"\ntarget = {target}\n");
        if class + 1 < TARGETS.len() {
            text += &format!("networks = [\"10.0.{}.0/24\"]\n", class + 1);
        }
    }
    text
}

/// What tarn has counted of a class.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    /// Requests that have come.
    pub requests: f64,
    /// Those answered in time.
    pub in_time: f64,
}

/// What runs on the server; [`Self::end`] takes it away.
pub struct Begun<'a> {
    scene: &'a Scene,
    programs: Vec<Child>,
    tarn: bool,
}

impl Begun<'_> {
    /// `tarn up` with five classes and these services.
    ///
    /// # Errors
    /// What it says.
    pub fn up(&mut self, services: &str, deadline: Duration) -> Result<()> {
        self.tarn = true;
        scene::up(self.scene.server()?, &configuration(services, deadline))
    }

    /// HAProxy with TLS, HTTP/1 and HTTP/2 before the service, which gets so many requests at a time. What has waited for so long
    /// that it cannot be answered in time any more is refused.
    fn haproxy(&mut self, counters: &str, rules: &str, most: usize, deadline: Duration) -> Result<()> {
        let patience = deadline.as_millis() * 4 / 5;
        let text = format!(
            "global\n maxconn 20000\n stats socket {HAPROXY_SOCKET} level admin\ndefaults\n mode http\n timeout connect 5s\n \
             timeout client 60s\n timeout server 60s\n timeout queue {patience}ms\nfrontend front\n bind :80\n \
             bind :443 ssl crt {CERTIFICATE_FILE} alpn h2,http/1.1\n default_backend back\n{counters}\
             backend back\n http-reuse always\n{rules} server one {} maxconn {most}\n",
            servers::BEHIND
        );
        let file = format!("{DIRECTORY}/haproxy.cfg");
        fs::write(&file, text)?;
        self.start("haproxy", &["-db", "-f", &file], "80")
    }

    /// Where it runs.
    pub fn scene(&self) -> &Scene {
        self.scene
    }

    /// The number of the process that was started last; 0 of none.
    pub fn last(&self) -> u32 {
        self.programs.last().map(Child::id).unwrap_or_default()
    }

    /// Starts a program and waits until something listens on the port, over TCP or UDP.
    ///
    /// # Errors
    /// When it ends, or does not listen.
    pub fn start(&mut self, name: &str, arguments: &[&str], port: &str) -> Result<()> {
        let server = self.scene.server()?;
        let mut command = server.command(name);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.programs.push(child);
        let filter = format!("sport = :{port}");
        for _ in 0..LOOKS {
            if !server.run("ss", &["-Hlntu", &filter])?.is_empty() {
                return Ok(());
            }
            let child = self.programs.last_mut().context("it was started")?;
            if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {name}"))? {
                bail!("{name} ended: {status}");
            }
            std::thread::sleep(LOOK);
        }
        bail!("{name} does not listen on port {port}")
    }

    /// What tarn says.
    ///
    /// # Errors
    /// What it says when it cannot.
    pub fn status(&self) -> Result<serde_json::Value> {
        let printed = self.scene.server()?.tarn(&["classes", "status", "--json"])?;
        serde_json::from_str(&printed).context("tarn does not print JSON")
    }

    /// What tarn has counted: of each class the requests, and those answered in time.
    ///
    /// # Errors
    /// What it says when it cannot.
    pub fn counted(&self) -> Result<Vec<Counted>> {
        let status = self.status()?;
        let rows = status["requests"].as_array().context("the status has no requests")?;
        let counted = |row: &serde_json::Value| -> Result<Counted> {
            let figure = |name: &str| row[name].as_f64().with_context(|| format!("{name} of {row}"));
            Ok(Counted {
                requests: figure("requests")?,
                in_time: figure("in_time")?,
            })
        };
        rows.iter().map(counted).collect()
    }

    /// Takes it away, what was started last first.
    ///
    /// # Errors
    /// What `tarn down` says.
    pub fn end(mut self) -> Result<()> {
        if self.tarn {
            self.scene.server()?.tarn(&["down"])?;
        }
        while let Some(mut program) = self.programs.pop() {
            end_program(&mut program)?;
        }
        Ok(())
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // What fails is reported by whoever failed before.
        self.programs
            .iter_mut()
            .rev()
            .for_each(|program| drop(end_program(program)));
    }
}
