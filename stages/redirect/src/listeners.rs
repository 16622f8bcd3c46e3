//! Ports on which programs of this host receive: a range of ports is not to take one of them along by mistake, such as
//! the ssh that the administrator came by.

use std::collections::BTreeSet;

use anyhow::Result;

use super::rule::{Address, Family, Protocol, Rule};
use tarn_base::error::Usage;
use tarn_kernel::addresses;
use tarn_kernel::listeners::{self, Listener};

/// The most ports that a complaint lists.
const SHOWN: usize = 8;

/// Whether a packet to this address of the host would be for the socket. One on `::` may take IPv4, too.
fn takes(listener: &Listener, address: Address) -> bool {
    let any = listener.address.is_unspecified() && (listener.address.is_ipv6() || address.family() == Family::V4);
    any || match address {
        Address::Any(family) => Family::of(listener.address) == family && Address::any_may_be(listener.address),
        Address::Ip(address) => address == listener.address,
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
    let (listeners, local) = (listeners::all()?, addresses::local()?);
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
    let given = listeners::given_to_clients()?;
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
        listener.is_tcp == (rule.protocol == Protocol::Tcp)
            && (rule.ports.first..=rule.ports.last).contains(&listener.port)
            && takes(listener, rule.address)
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
