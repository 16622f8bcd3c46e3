//! Answers under way while a connection is led elsewhere: none is lost.
//!
//! A client's packets go where the first one went as long as the kernel tracks the connection; to lead them elsewhere
//! it has to be forgotten. But what translates the server's answers would go with it, and those under way at that
//! moment would reach the client from an address that it never spoke to. So the connection is not just deleted:
//!
//! 1. it is copied into a conntrack zone, where no packet looks it up yet;
//! 2. a map leads packets with exactly the addresses and ports of its answers into that zone, for [`SECONDS`]:
//!    from then on they are translated by the copy, and are those of an established connection to a firewall;
//! 3. it is deleted: the client's next packet finds nothing, and meets the rules.
//!
//! The map is asked only about what is in a set with the same keys, for a packet can take something out of a set: when the
//! client begins anew with the same server, from the same port, by another rule or straight, the answers are the new
//! connection's from then on.
//!
//! At every moment there is one that translates the answers. The map's elements and the copies end by themselves.
//!
//! TCP is not copied: the server that a connection is led to does not know it and resets it, whatever comes late.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Error, Result};

use super::element::network;
use super::layout::{self, Chain, FAMILIES, FAMILY, TABLE};
use crate::STAGE;
use crate::rule::Family;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::conntrack::{Connection, Entry};
use tarn_kernel::nfnetlink::Socket;
use tarn_kernel::nft::{self, MARK, Nft, read::Table};

/// How long an answer may be under way: as long as the kernel waits for the answer to a datagram.
const SECONDS: u32 = 30;
/// The most connections that are handed over in one go. Others are forgotten at once.
const CONNECTIONS_MAX: usize = 65_536;

/// Connections to be led elsewhere.
#[derive(Debug, Default)]
pub struct Late {
    connections: Vec<Connection>,
    room: usize,
}

impl Late {
    /// None yet.
    pub fn new() -> Self {
        Late {
            connections: Vec::new(),
            room: room(),
        }
    }

    /// Takes a connection in; false when it is to be deleted at once.
    pub fn take(&mut self, entry: &Entry<'_>) -> bool {
        let udp = i32::from(entry.original.protocol) == libc::IPPROTO_UDP;
        if !udp || self.connections.len() >= self.room {
            return false;
        }
        let connection = Connection::of(entry);
        let taken = connection.is_some();
        self.connections.extend(connection);
        taken
    }

    /// Hands the answers of all over to the copies, and deletes the connections.
    ///
    /// # Errors
    /// No rights. Where only the copies cannot be made, connections are deleted all the same, with one log line.
    pub fn lead_elsewhere(self, nft: &Nft, table: &Table) -> Result<()> {
        if self.connections.is_empty() {
            return Ok(());
        }
        let mut socket = Socket::open()?;
        let (copied, failure) = copies(&self.connections, &mut socket);
        let handed_over = hand_over(&copied, nft, table);
        if let Some(error) = handed_over.err().or(failure) {
            let text = format!("answers that are under way to clients of the changed rules may be lost: {error:#}");
            log_at(Priority::Notice, STAGE, text);
        }
        self.connections
            .iter()
            .try_for_each(|connection| connection.delete(&mut socket))
    }
}

/// Whether the entry is a copy that was made here.
pub fn is_copy(entry: &Entry<'_>) -> bool {
    entry.zone() == zone(entry.reply.source, entry.reply.source_port)
}

/// Copies connections. Returns those that were, and why the first one was not.
fn copies<'a>(connections: &'a [Connection], socket: &mut Socket) -> (Vec<&'a Connection>, Option<Error>) {
    let mut failure = None;
    let mut copy = |connection: &&Connection| {
        let zone = zone(connection.reply.source, connection.reply.source_port);
        let copied = connection.copy(socket, zone, SECONDS);
        let error = copied.context("cannot copy a tracked connection").err();
        let done = error.is_none();
        failure = failure.take().or(error);
        done
    };
    let copied = connections.iter().filter(&mut copy).collect();
    (copied, failure)
}

/// Leads the answers of connections that were copied to the copies.
fn hand_over(connections: &[&Connection], nft: &Nft, table: &Table) -> Result<()> {
    if connections.is_empty() {
        return Ok(());
    }
    nft.apply(&script(connections, table))?;
    nft::settle();
    Ok(())
}

/// The zone of what comes from a server: each has one of its own (but for a chance of one in 32,768), because a client
/// that is led from one server to the next, and on, has one copy for each (FNV-1a). The lower half is left to others.
fn zone(server: IpAddr, port: u16) -> u16 {
    let address = match server {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let bytes = address.octets().into_iter().chain(port.to_be_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    0x8000 | (hash ^ hash >> 16) as u16
}

/// Half of what the kernel can still track, so that no connection of others has to give way to a copy.
fn room() -> usize {
    let number = |name: &str| -> Option<usize> {
        let text = std::fs::read_to_string(Path::new("/proc/sys/net/netfilter").join(name)).ok()?;
        text.trim().parse().ok()
    };
    let free = number("nf_conntrack_max")
        .zip(number("nf_conntrack_count"))
        .map_or(CONNECTIONS_MAX, |(most, count)| most.saturating_sub(count) / 2);
    free.min(CONNECTIONS_MAX)
}

fn map(family: Family) -> &'static str {
    match family {
        Family::V4 => "late4",
        Family::V6 => "late6",
    }
}

/// The keys of the map, as a set.
fn held(family: Family) -> String {
    format!("{}_held", map(family))
}

fn key(family: Family) -> String {
    let ip = network(family);
    format!("meta l4proto . {ip} saddr . th sport . {ip} daddr . th dport")
}

/// The key of the answers to a packet.
fn answers_key(family: Family) -> String {
    let ip = network(family);
    format!("meta l4proto . {ip} daddr . th dport . {ip} saddr . th sport")
}

/// What makes the maps and chains where they are not there yet, and puts the answers into the maps.
fn script(connections: &[&Connection], table: &Table) -> String {
    let mut script = String::new();
    for family in FAMILIES {
        let rest = format!("size {}; timeout {SECONDS}s; comment \"{MARK}\";", 2 * CONNECTIONS_MAX);
        script.push_str(&format!(
            "add map {FAMILY} {TABLE} {} {{ typeof {key} : ct zone; flags timeout; {rest} }}\n\
             add set {FAMILY} {TABLE} {} {{ typeof {key}; flags dynamic,timeout; {rest} }}\n",
            map(family),
            held(family),
            key = key(family),
        ));
    }
    script.extend(layout::chain_changes(&chains(), table));
    let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for connection in connections {
        let answer = connection.reply;
        let (family, zone) = (Family::of(answer.source), zone(answer.source, answer.source_port));
        let key = format!(
            "{} . {} . {} . {} . {}",
            answer.protocol, answer.source, answer.source_port, answer.destination, answer.destination_port
        );
        lists
            .entry(map(family).into())
            .or_default()
            .push(format!("{key} : {zone}"));
        lists.entry(held(family)).or_default().push(key);
    }
    for (map, list) in lists {
        // Only a new element lives for its whole time; and only what is there can be deleted.
        for verb in ["add", "delete", "add"] {
            script.push_str(&format!(
                "{verb} element {FAMILY} {TABLE} {map} {{ {} }}\n",
                list.join(", ")
            ));
        }
    }
    script
}

/// Answers before connections are tracked (priority -200), and after fragments are put together (-400); requests after
/// their destination was translated (-100), and before a masquerade hides their source (100).
fn chains() -> [Chain; 4] {
    let to_copy = |family| {
        let (key, held) = (key(family), held(family));
        format!("{key} @{held} ct zone set {key} map @{}", map(family))
    };
    let anew = |family| format!("ct state new delete @{} {{ {} }}", held(family), answers_key(family));
    [
        Chain::base(
            "late_prerouting",
            "type filter hook prerouting priority -300",
            FAMILIES.map(to_copy),
        ),
        Chain::base(
            "late_output",
            "type filter hook output priority -300",
            FAMILIES.map(to_copy),
        ),
        Chain::base("late_input", "type filter hook input priority 90", FAMILIES.map(anew)),
        Chain::base(
            "late_postrouting",
            "type filter hook postrouting priority 90",
            FAMILIES.map(anew),
        ),
    ]
}
