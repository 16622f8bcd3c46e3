//! The cases: a network each, and what carries the rule out in it.
//!
//! ```text
//!   client                    host                        server
//!   192.168.64.1 ──────── 192.168.64.2
//!             eth0    left    10.0.1.1 ──────── 10.0.1.2:8083
//!                                 right    eth0
//!
//!   direct: client 192.168.64.1 ──────── 192.168.64.2:8080 server
//! ```

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use super::measure;
use tarn_kernel::netdev;
use tarn_lab::topology::{End, Namespace, Network, Node, Topology};

/// One way of getting a request to the server.
pub struct CaseOf {
    /// The stable name.
    pub name: &'static str,
    /// The row's title.
    pub title: &'static str,
    by: By,
}

/// What carries the rule out.
enum By {
    /// No host in the middle.
    Nothing,
    /// The host routes; the client speaks to the server's own address.
    Routing,
    /// nft with this ruleset.
    Nft(&'static str),
    /// xdp-tools' xdp-forward over the kernel's flow table.
    XdpForward,
    /// tarn with these lines in its section.
    Tarn(&'static str),
}

/// The cases, in the order of the table. The one without a host is the first: the others' costs are what they add to it.
pub static CASES: &[CaseOf] = &[
    CaseOf {
        name: "direct",
        title: "client and server on one wire",
        by: By::Nothing,
    },
    CaseOf {
        name: "plain",
        title: "routed, no redirect",
        by: By::Routing,
    },
    CaseOf {
        name: "nft-stateless",
        title: "nftables, stateless rewrite",
        by: By::Nft(STATELESS),
    },
    CaseOf {
        name: "nft-dnat",
        title: "nftables, destination NAT",
        by: By::Nft(DNAT),
    },
    CaseOf {
        name: "xdp-forward",
        title: "xdp-forward over a flow table, DNAT",
        by: By::XdpForward,
    },
    CaseOf {
        name: "tarn-nft",
        title: "tarn over nftables",
        by: By::Tarn("mode = \"nftables\""),
    },
    CaseOf {
        name: "tarn-xdp-redirect",
        title: "tarn: XDP redirects",
        by: By::Tarn(REDIRECT),
    },
    CaseOf {
        name: "tarn-tc",
        title: "tarn: tc redirects",
        by: By::Tarn(TC),
    },
    CaseOf {
        name: "tarn",
        title: "tarn (defaults)",
        by: By::Tarn(""),
    },
];

const REDIRECT: &str = "mode = \"bpf\"\ndeliver = \"redirect\"";
const TC: &str = "mode = \"bpf\"\ndeliver = \"tc\"";

const STATELESS: &str = "table ip steer {
    chain requests {
        type filter hook prerouting priority raw
        ip daddr 192.168.64.2 udp dport 8080 ip daddr set 10.0.1.2 udp dport set 8083
        ip daddr 192.168.64.2 tcp dport 8080 ip daddr set 10.0.1.2 tcp dport set 8083
    }
    chain answers {
        type filter hook postrouting priority raw
        ip saddr 10.0.1.2 udp sport 8083 ip saddr set 192.168.64.2 udp sport set 8080
        ip saddr 10.0.1.2 tcp sport 8083 ip saddr set 192.168.64.2 tcp sport set 8080
    }
}
";

const DNAT: &str = "table ip steer {
    chain requests {
        type nat hook prerouting priority dstnat
        ip daddr 192.168.64.2 udp dport 8080 dnat to 10.0.1.2:8083
        ip daddr 192.168.64.2 tcp dport 8080 dnat to 10.0.1.2:8083
    }
}
";

const FLOW_TABLE: &str = "table ip steer {
    flowtable fast {
        hook ingress priority filter
        devices = { left, right }
    }
    chain requests {
        type nat hook prerouting priority dstnat
        ip daddr 192.168.64.2 udp dport 8080 dnat to 10.0.1.2:8083
        ip daddr 192.168.64.2 tcp dport 8080 dnat to 10.0.1.2:8083
    }
    chain forwarded {
        type filter hook forward priority filter
        ct state established meta l4proto { udp, tcp } flow add @fast
    }
}
";

const RULE: &str = "[[redirect.rule]]
protocol = [\"udp\", \"tcp\"]
from = \"192.168.64.2:8080\"
to = \"10.0.1.2:8083\"
";

/// A case, ready for its load.
pub struct Scene {
    network: Network,
    /// Where the client sends from.
    pub client: SocketAddr,
    /// The address and port it speaks to.
    pub target: SocketAddr,
    /// Where the server listens.
    pub listens: SocketAddr,
    tarn: bool,
}

impl CaseOf {
    /// Makes the network and sets up what carries the rule out. The inner error says why the case cannot be had here.
    pub fn prepare(&self) -> Result<Result<Scene, String>> {
        let direct = matches!(self.by, By::Nothing);
        let redirected = "192.168.64.2:8080".parse()?;
        let server = "10.0.1.2:8083".parse()?;
        let scene = Scene {
            network: network(direct)?,
            client: "192.168.64.1:5000".parse()?,
            target: if matches!(self.by, By::Routing) {
                server
            } else {
                redirected
            },
            listens: if direct { redirected } else { server },
            tarn: matches!(self.by, By::Tarn(_)),
        };
        match self.by {
            By::Nothing | By::Routing => {}
            By::Nft(rules) => scene.load(rules)?,
            By::XdpForward => {
                if let Err(reason) = scene.forward_by_xdp()? {
                    return Ok(Err(reason));
                }
                if let Some(fault) = scene.fault()? {
                    return Ok(Err(fault));
                }
            }
            By::Tarn(section) => {
                if section == REDIRECT && !netdev::tells_xdp_features()? {
                    return Ok(Err(CANNOT_TELL.into()));
                }
                scene.start_tarn(section)?;
            }
        }
        Ok(Ok(scene))
    }
}

/// Why the case is not measured where tarn would deliver at tc instead.
const CANNOT_TELL: &str = "this kernel cannot tell which devices take frames from XDP (Linux 6.3 can): \
                           tarn delivers at tc here";

fn network(direct: bool) -> Result<Network> {
    let end = |node, interface| {
        End::new(node, interface)
            .feature("tx-checksumming", false)
            .feature("gro", true)
    };
    let client = end("client", "eth0").address("192.168.64.1/24");
    if direct {
        return Topology::new()
            .node(Node::new("client"))
            .node(Node::new("server"))
            .link(client, end("server", "eth0").address("192.168.64.2/24"))
            .permanent_neighbours()
            .build();
    }
    Topology::new()
        .node(Node::new("client").route("default", "192.168.64.2"))
        .node(Node::new("host").forwarding())
        .node(Node::new("server").route("default", "10.0.1.1"))
        .link(client, end("host", "left").address("192.168.64.2/24"))
        .link(
            end("host", "right").address("10.0.1.1/24"),
            end("server", "eth0").address("10.0.1.2/24"),
        )
        .permanent_neighbours()
        .build()
}

impl Scene {
    /// One of the hosts.
    pub fn namespace(&self, name: &str) -> Result<&Namespace> {
        self.network.namespace(name)
    }

    /// The server's host.
    pub fn server(&self) -> Result<&Namespace> {
        self.network.namespace("server")
    }

    /// A peer that does not do the job is no measure for one that does: what it got wrong, at a few requests that it is
    /// given little time for.
    fn fault(&self) -> Result<Option<String>> {
        let trial = measure::try_out(self)?;
        Ok((!trial.is_complete()).then(|| {
            format!(
                "takes requests to the server, but does not do as it should with the answers: {}",
                trial.summary()
            )
        }))
    }

    /// Takes what was set up away again; the network goes with the scene.
    pub fn end(self) -> Result<()> {
        if self.tarn {
            self.tarn(&["down"])?;
        }
        Ok(())
    }

    fn load(&self, rules: &str) -> Result<()> {
        let file = "/tmp/redirect.nft";
        std::fs::write(file, rules).with_context(|| format!("write {file}"))?;
        self.namespace("host")?.run("nft", &["-f", file]).map(drop)
    }

    fn start_tarn(&self, section: &str) -> Result<()> {
        let file = "/tmp/tarn.toml";
        std::fs::write(file, format!("[redirect]\n{section}\n\n{RULE}")).with_context(|| format!("write {file}"))?;
        self.tarn(&["up", "-c", file])
    }

    fn tarn(&self, arguments: &[&str]) -> Result<()> {
        self.namespace("host")?.tarn(arguments).map(drop)
    }

    /// The flow table is the kernel's; xdp-forward looks flows up in it from XDP (kernel 6.12).
    fn forward_by_xdp(&self) -> Result<Result<(), String>> {
        if !Path::new("/usr/sbin/xdp-forward").exists() && !Path::new("/usr/bin/xdp-forward").exists() {
            return Ok(Err("this suite's xdp-tools has no xdp-forward".into()));
        }
        self.load(FLOW_TABLE)?;
        let host = self.namespace("host")?;
        match host.run("xdp-forward", &["load", "--fwd-mode", "flowtable", "left", "right"]) {
            Ok(_) => Ok(Ok(())),
            Err(error) => {
                let all = format!("{error:#}");
                let reason = all.lines().next().unwrap_or_default();
                Ok(Err(format!("xdp-forward has no flow table mode here: {reason}")))
            }
        }
    }
}
