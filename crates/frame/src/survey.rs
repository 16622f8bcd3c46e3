//! What `tarn init` finds on a host, and what a stage proposes for it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use tarn_kernel::links::{self, Link};
use tarn_kernel::listeners::{self, Listener};

use defaults::DefaultRoute;

mod defaults;
mod seeming;

/// Kinds of devices that send packets inside others, over another device.
pub const TUNNELS: [&str; 18] = [
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "ip6erspan",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "l2tpeth",
    "ovpn",
    "sit",
    "tun",
    "vti",
    "vti6",
    "vxlan",
    "wireguard",
    "xfrm",
];

/// What a host is mainly for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// People sit at it: calls, games, uploads.
    Desktop,
    /// It forwards what others send.
    Router,
    /// Others use its services.
    Server,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Desktop => "desktop",
            Self::Router => "router",
            Self::Server => "server",
        })
    }
}

/// A port that a program listens on, as `tarn.toml` writes it: `tcp/80`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// TCP, and not UDP.
    pub is_tcp: bool,
    /// Its number.
    pub number: u16,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", if self.is_tcp { "tcp" } else { "udp" }, self.number)
    }
}

/// A device that default routes lead by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Its name.
    pub device: String,
    /// Its kind, as [`Link::kind`].
    pub kind: String,
    /// The least metric of IPv4's routes by it, and of IPv6's; `None` where there are none.
    pub metrics: [Option<u32>; 2],
}

impl Uplink {
    /// Whether its packets go over another device.
    pub fn is_tunnel(&self) -> bool {
        TUNNELS.contains(&self.kind.as_str())
    }
}

/// What was found on a host.
#[derive(Debug, Clone)]
pub struct Survey {
    /// What it is for, as somebody said or as it seems.
    pub profile: Profile,
    /// Why it seems so; `None` where somebody said it.
    pub seems: Option<&'static str>,
    /// The devices that default routes lead by, IPv4 first, each once.
    pub uplinks: Vec<Uplink>,
    /// Whether IPv4 has a multipath route to default that somebody else than tarn has made.
    pub has_multipath: bool,
    /// The network devices that are up.
    pub links: Vec<Link>,
    /// The ports that programs listen on for others than this host itself, in order.
    pub ports: BTreeSet<Port>,
}

/// What a stage would do on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Why it would do that, or why it would do nothing: one or more sentences.
    pub reason: String,
    /// Its section of `tarn.toml`, with comments of its own. Where nothing is proposed, an example.
    pub section: String,
    /// Whether the section is in force, or commented out.
    pub is_proposed: bool,
}

impl Proposal {
    /// A section that is in force, unless this host lacks something.
    pub fn of(reason: impl Into<String>, section: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            section: section.into(),
            is_proposed: true,
        }
    }

    /// An example, commented out: somebody has to decide, or there is no need.
    pub fn example(reason: impl Into<String>, section: impl Into<String>) -> Self {
        Self {
            is_proposed: false,
            ..Self::of(reason, section)
        }
    }
}

impl Survey {
    /// Looks at this host. Nothing is changed.
    ///
    /// # Errors
    /// A kernel that does not answer.
    pub fn of_this_host(profile: Option<Profile>) -> Result<Self> {
        let (all, carrying) = (links::all()?, links::carrying()?);
        let is_up = |link: &Link| carrying.contains_key(&link.name);
        let routes = defaults::all()?;
        let devices: Vec<u32> = routes.iter().flat_map(|route| route.devices.clone()).collect();
        let (seemingly, why) = seeming::seeming(Path::new("/"), &all, is_up, &devices);
        let links: Vec<Link> = all.into_iter().filter(is_up).collect();
        Ok(Self {
            profile: profile.unwrap_or(seemingly),
            seems: profile.is_none().then_some(why),
            uplinks: uplinks(&routes, &links),
            has_multipath: routes.iter().any(is_multipath),
            ports: ports(&listeners::all()?),
            links,
        })
    }

    /// Those of these ports that a program listens on.
    pub fn listening(&self, is_tcp: bool, numbers: &[u16]) -> Vec<Port> {
        let wanted = |port: &&Port| port.is_tcp == is_tcp && numbers.contains(&port.number);
        self.ports.iter().filter(wanted).copied().collect()
    }
}

/// A text as TOML writes it: a device's name may have any character but a slash and white space.
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn is_multipath(route: &DefaultRoute) -> bool {
    !route.is_ipv6 && !route.is_ours && route.devices.len() > 1
}

/// The devices of the routes that are up.
fn uplinks(routes: &[DefaultRoute], links: &[Link]) -> Vec<Uplink> {
    let mut found: Vec<Uplink> = Vec::new();
    for route in routes {
        let used = route.devices.iter();
        for link in used.filter_map(|index| links.iter().find(|link| link.index == *index && !link.is_loopback)) {
            let at = found.iter().position(|known| known.device == link.name);
            let at = at.unwrap_or_else(|| {
                found.push(Uplink {
                    device: link.name.clone(),
                    kind: link.kind.clone(),
                    metrics: [None; 2],
                });
                found.len() - 1
            });
            let metric = &mut found[at].metrics[usize::from(route.is_ipv6)];
            *metric = Some(metric.map_or(route.metric, |least| least.min(route.metric)));
        }
    }
    found
}

fn ports(listeners: &[Listener]) -> BTreeSet<Port> {
    let open = listeners.iter().filter(|listener| !listener.address.is_loopback());
    open.map(|listener| Port {
        is_tcp: listener.is_tcp,
        number: listener.port,
    })
    .collect()
}

/// For tests of stages.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::{BTreeSet, Link, Port, Profile, Survey, Uplink};

    /// An Ethernet device.
    pub fn link(index: u32, name: &str, kind: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            kind: kind.to_owned(),
            hardware: libc::ARPHRD_ETHER,
            lower: None,
            other_namespace: false,
            master: None,
            is_loopback: false,
            xdp_program: None,
        }
    }

    /// A host of this kind with these uplinks, as names and kinds, over IPv4.
    pub fn host(profile: Profile, uplinks: &[(&str, &str)], ports: &[(bool, u16)]) -> Survey {
        let uplink = |(metric, &(device, kind)): (u32, &(&str, &str))| Uplink {
            device: device.to_owned(),
            kind: kind.to_owned(),
            metrics: [Some(metric), None],
        };
        let ports = ports.iter().map(|&(is_tcp, number)| Port { is_tcp, number });
        Survey {
            profile,
            seems: None,
            uplinks: (100..).zip(uplinks).map(uplink).collect(),
            has_multipath: false,
            links: Vec::new(),
            ports: ports.collect::<BTreeSet<Port>>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::link;
    use super::*;

    fn route(is_ipv6: bool, metric: u32, devices: &[u32]) -> DefaultRoute {
        DefaultRoute {
            is_ipv6,
            metric,
            is_ours: false,
            devices: devices.to_vec(),
        }
    }

    #[test]
    fn uplinks_are_where_default_routes_lead() {
        let links = [link(1, "wan0", ""), link(2, "wan1", "wwan"), link(3, "he-ipv6", "sit")];
        let routes = [
            route(false, 200, &[2]),
            route(false, 100, &[1]),
            route(false, 50, &[1]),
            // A device that is down.
            route(false, 10, &[9]),
            route(true, 1024, &[1, 3]),
        ];
        let found = uplinks(&routes, &links);
        let shown: Vec<_> = found
            .iter()
            .map(|uplink| (uplink.device.as_str(), uplink.metrics))
            .collect();
        let expected = [
            ("wan1", [Some(200), None]),
            ("wan0", [Some(50), Some(1024)]),
            ("he-ipv6", [None, Some(1024)]),
        ];
        assert_eq!(shown, expected);
        assert!(found[2].is_tunnel() && !found[1].is_tunnel());
    }

    #[test]
    fn ports_are_those_that_others_can_send_to() {
        let listener = |address: &str, is_tcp, port| Listener {
            is_tcp,
            address: address.parse().unwrap(),
            port,
            is_kernel: false,
        };
        let found = ports(&[
            listener("0.0.0.0", true, 80),
            listener("::", true, 80),
            listener("127.0.0.53", false, 53),
            listener("::1", true, 631),
            listener("192.0.2.1", false, 5060),
        ]);
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["udp/5060", "tcp/80"]);
    }

    #[test]
    fn names_of_devices_do_not_end_the_text() {
        assert_eq!(quoted("eth0"), "\"eth0\"");
        let section = format!("device = {}", quoted("a\"b\\c"));
        assert_eq!(
            toml::from_str::<toml::Table>(&section).unwrap()["device"].as_str(),
            Some("a\"b\\c")
        );
    }
}
