//! Sockets of this network namespace that receive what anybody sends (Documentation/networking/proc_net_tcp.rst).

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};

use crate::sysctl;

/// As files in `/proc/net` show it: `TCP_LISTEN`, and for UDP `TCP_CLOSE`, without a peer.
const LISTENING: [&str; 2] = ["0A", "07"];

/// A socket that receives what anybody sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// TCP, and not UDP.
    pub is_tcp: bool,
    /// The address that it is bound to; IPv4 as such, also where the socket is one of IPv6.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// No program has it: a tunnel's, such as WireGuard's.
    pub is_kernel: bool,
}

/// Every socket that listens, except those of programs over UDP on a port that the kernel gives to clients.
///
/// # Errors
/// Files of `/proc/net` that cannot be read.
pub fn all() -> Result<Vec<Listener>> {
    let given = given_to_clients()?;
    let mut listeners = Vec::new();
    for protocol in ["tcp", "tcp6", "udp", "udp6"] {
        let path = format!("/proc/thread-self/net/{protocol}");
        match File::open(&path) {
            Ok(file) => read(protocol.starts_with("tcp"), BufReader::new(file), &mut listeners),
            Err(error) if error.kind() == ErrorKind::NotFound => {} // no IPv6
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        }
    }
    listeners.retain(|listener| listener.is_tcp || listener.is_kernel || !given.contains(&listener.port));
    Ok(listeners)
}

/// Ports that sockets get which ask for none.
///
/// # Errors
/// A kernel without this setting.
pub fn given_to_clients() -> Result<RangeInclusive<u16>> {
    let text = sysctl::read(&sysctl::path("net.ipv4.ip_local_port_range"))?;
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Ok(first..=last),
        _ => Ok(32_768..=60_999),
    }
}

/// Reads a file of `/proc/net`. In those of TCP listening sockets come first: a million connections are not read.
fn read(is_tcp: bool, file: impl BufRead, listeners: &mut Vec<Listener>) {
    for line in file.lines().skip(1).map_while(std::io::Result::ok) {
        let words: Vec<&str> = line.split_whitespace().take(10).collect();
        let [_, local, _, state, .., inode] = words[..] else {
            return;
        };
        let is_listening = state == LISTENING[usize::from(!is_tcp)];
        if !is_listening && is_tcp {
            return;
        }
        if let Some((address, port)) = end(local).filter(|_| is_listening) {
            listeners.push(Listener {
                is_tcp,
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
    use super::*;

    #[test]
    fn sockets_without_a_peer_listen() {
        let heading =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let line = |local: &str, remote: &str, state: &str, inode: u32| {
            format!("   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n")
        };
        let none = "00000000:0000";
        let tcp = [
            heading.to_owned(),
            line("00000000:0016", none, "0A", 7),
            line("0100007F:1F90", none, "0A", 8),
            line("0100000A:0050", "0200000A:C000", "01", 9),
            line("00000000:0017", none, "0A", 10),
        ];
        let mapped = "0000000000000000FFFF00000100000A:1F91";
        let udp = [
            heading.to_owned(),
            line("0100000A:8000", "0200000A:0035", "01", 11),
            line("00000000:CA6C", none, "07", 0),
        ];
        let mut found = Vec::new();
        read(true, tcp.concat().as_bytes(), &mut found);
        read(
            true,
            format!("{heading}{}", line(mapped, none, "0A", 12)).as_bytes(),
            &mut found,
        );
        read(false, udp.concat().as_bytes(), &mut found);
        let shown: Vec<String> = found
            .iter()
            .map(|listener| {
                format!(
                    "{} {}:{} {}",
                    listener.is_tcp, listener.address, listener.port, listener.is_kernel
                )
            })
            .collect();
        // Those of TCP stop at the first connection.
        let expected = [
            "true 0.0.0.0:22 false",
            "true 127.0.0.1:8080 false",
            "true 10.0.0.1:8081 false",
            "false 0.0.0.0:51820 true",
        ];
        assert_eq!(shown, expected);
    }
}
