//! Ports on which programs of this host receive: a range of ports is not to take one of them along by mistake, such as
//! the ssh that the administrator came by.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};

use super::rule::{Address, Family, Protocol, Rule};
use tarn_base::error::Usage;
use tarn_kernel::{addresses, sysctl};

/// As files in `/proc/net` tell it: `TCP_LISTEN`, and for UDP `TCP_CLOSE`, without a peer.
const LISTENING: [&str; 2] = ["0A", "07"];

/// The most ports that a complaint lists.
const SHOWN: usize = 8;

/// A socket that receives what anybody sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    protocol: Protocol,
    address: IpAddr,
    port: u16,
    /// No program has it: a tunnel's, such as WireGuard's.
    is_kernel: bool,
}

impl Listener {
    /// Whether a packet to this address of the host would be for it. One on `::` may take IPv4, too.
    fn takes(&self, address: Address) -> bool {
        let any = self.address.is_unspecified() && (self.address.is_ipv6() || address.family() == Family::V4);
        any || match address {
            Address::Any(family) => Family::of(self.address) == family && Address::any_may_be(self.address),
            Address::Ip(address) => address == self.address,
        }
    }
}

/// Refuses a range of ports with one that a program of this host listens on; with `takes_answers`, where answers to this host's
/// own connections are redirected like anything else, also one with ports that these have. A rule for a single port names it, so
/// it is meant.
///
/// # Errors
/// [`Usage`]: the rule, the port, and what would be right. Sockets or addresses that cannot be read.
pub fn refuse_covered<'a>(rules: impl Iterator<Item = &'a Rule>, takes_answers: bool) -> Result<()> {
    let ranges: Vec<&Rule> = rules.filter(|rule| !rule.ports.is_single()).collect();
    if ranges.is_empty() {
        return Ok(());
    }
    let (listeners, local) = (all()?, addresses::local()?);
    let is_ours = |rule: &&&Rule| match rule.address {
        Address::Any(_) => true,
        Address::Ip(address) => local.contains(&address),
    };
    for rule in ranges.iter().filter(is_ours) {
        let ports = covered(rule, &listeners);
        if !ports.is_empty() {
            return Err(Usage(complaint(rule, &ports)).into());
        }
        if takes_answers {
            refuse_own(rule)?;
        }
    }
    Ok(())
}

/// Refuses a range with ports of this host's own connections.
fn refuse_own(rule: &Rule) -> Result<()> {
    let given = given_to_clients()?;
    if rule.ports.last < *given.start() || rule.ports.first > *given.end() {
        return Ok(());
    }
    let (first, last) = (given.start(), given.end());
    let text = format!(
        "the rule {rule} would take answers to this host's own connections, which have the ports {first} to {last} \
         (net.ipv4.ip_local_port_range): end the range before them, set mode = \"nftables\", or over_listeners = true \
         (--over-listeners) if this host makes none"
    );
    Err(Usage(text).into())
}

/// The ports of the rule's that something listens on, in order.
fn covered(rule: &Rule, listeners: &[Listener]) -> BTreeSet<u16> {
    let is_covered = |listener: &&Listener| {
        listener.protocol == rule.protocol
            && (rule.ports.first..=rule.ports.last).contains(&listener.port)
            && listener.takes(rule.address)
    };
    listeners
        .iter()
        .filter(is_covered)
        .map(|listener| listener.port)
        .collect()
}

fn complaint(rule: &Rule, ports: &BTreeSet<u16>) -> String {
    let mut shown: Vec<String> = ports.iter().take(SHOWN).map(u16::to_string).collect();
    if ports.len() > SHOWN {
        shown.push("...".to_owned());
    }
    format!(
        "the rule {rule} would take {} port {}, on which programs of this host listen (`ss -lntup` shows them): write a \
         rule for each range between, or over_listeners = true (--over-listeners) if their clients are to be redirected, \
         too",
        rule.protocol,
        shown.join(", "),
    )
}

/// Every socket that listens, but those of programs over UDP on a port that the kernel gives to clients.
fn all() -> Result<Vec<Listener>> {
    let given = given_to_clients()?;
    let mut listeners = Vec::new();
    for protocol in Protocol::ALL {
        for suffix in ["", "6"] {
            let path = format!("/proc/thread-self/net/{}{suffix}", protocol.name());
            match File::open(&path) {
                Ok(file) => read(protocol, BufReader::new(file), &mut listeners),
                Err(error) if error.kind() == ErrorKind::NotFound => {} // no IPv6
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            }
        }
    }
    listeners
        .retain(|listener| listener.protocol == Protocol::Tcp || listener.is_kernel || !given.contains(&listener.port));
    Ok(listeners)
}

/// Ports that sockets get which ask for none.
fn given_to_clients() -> Result<RangeInclusive<u16>> {
    let text = sysctl::read(&sysctl::path("net.ipv4.ip_local_port_range"))?;
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Ok(first..=last),
        _ => Ok(32_768..=60_999),
    }
}

/// Reads a file of `/proc/net`. In those of TCP listening sockets come first: a million connections are not read.
fn read(protocol: Protocol, file: impl BufRead, listeners: &mut Vec<Listener>) {
    for line in file.lines().skip(1).map_while(std::io::Result::ok) {
        let words: Vec<&str> = line.split_whitespace().take(10).collect();
        let [_, local, _, state, .., inode] = words[..] else {
            return;
        };
        let is_listening = state == LISTENING[usize::from(protocol == Protocol::Udp)];
        if !is_listening && protocol == Protocol::Tcp {
            return;
        }
        if let Some((address, port)) = end(local).filter(|_| is_listening) {
            listeners.push(Listener {
                protocol,
                address,
                port,
                is_kernel: inode == "0",
            });
        }
    }
}

/// `0100007F:0016`: an address as words in the host's byte order, and a port.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            // A socket of IPv6 may have an address of IPv4 (`::ffff:192.0.2.1`).
            Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;
    use crate::rule::samples::{rules, udp};
    use tarn_kernel::netns::testing::in_new_namespace;

    fn told(rule: &Rule) -> Option<String> {
        told_by(rule, false)
    }

    fn told_by(rule: &Rule, takes_answers: bool) -> Option<String> {
        refuse_covered([rule].into_iter(), takes_answers)
            .err()
            .map(|error| error.to_string())
    }

    /// All ports of a host, its administrator's own way in among them.
    #[test]
    #[ignore = "needs the lab"]
    fn lab_redirect_ranges_leave_out_what_the_host_listens_on() {
        in_new_namespace(|| {
            let ip = |command: &str| {
                let done = std::process::Command::new("ip").args(command.split(' ')).status();
                assert!(done.unwrap().success(), "ip {command}");
            };
            ip("link set lo up");
            ip("address add 192.0.2.1/32 dev lo");
            let tcp = |from: &str| rules(&["tcp"], from, "10.0.1.2", None).remove(0);
            let all = tcp("0.0.0.0:1-65535");
            assert_eq!(told(&all), None);
            let _ssh = TcpListener::bind("[::]:22").unwrap();
            let _names = UdpSocket::bind("192.0.2.1:53").unwrap();
            let _local = UdpSocket::bind("127.0.0.1:323").unwrap();
            let _mapped = TcpListener::bind("[::ffff:192.0.2.1]:8443").unwrap();
            let _client = UdpSocket::bind("0.0.0.0:0").unwrap();
            let text = told(&all).unwrap();
            assert!(
                text.contains("tcp port 22, 8443,") && text.contains("over_listeners = true"),
                "{text}"
            );
            assert!(
                told(&udp("0.0.0.0:1-65535", "10.0.1.2", None))
                    .unwrap()
                    .contains("udp port 53,")
            );
            for fine in ["0.0.0.0:22", "0.0.0.0:23-8442", "198.51.100.7:1-65535"] {
                assert_eq!(told(&tcp(fine)), None, "{fine}");
            }
            assert_eq!(told(&udp("0.0.0.0:54-65535", "10.0.1.2", None)), None);
            let v6 = rules(&["tcp"], "[::]:20-30", "2001:db8::2", None).remove(0);
            assert!(told(&v6).unwrap().contains("tcp port 22,"));
            let own = told_by(&tcp("0.0.0.0:9000-65535"), true).unwrap();
            assert!(own.contains("this host's own connections"), "{own}");
            for fine in ["0.0.0.0:9000-32767", "0.0.0.0:40000", "198.51.100.7:1-65535"] {
                assert_eq!(told_by(&tcp(fine), true), None, "{fine}");
            }
        });
    }
}
