//! What nftables holds, read from the kernel over netlink.
//!
//! Message and attribute numbers are those of `linux/netfilter/nf_tables.h`; the form of comments, which the kernel
//! only keeps, is that of libnftnl's `udata.h`: one byte for the kind, one for the length, then the text.

use std::collections::HashSet;

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::MARK;
use crate::netlink::{Attributes, put, put_nested, refusal};
use crate::nfnetlink::{Dump, Kind, Socket, zero_ended};

/// `NFNL_SUBSYS_NFTABLES`.
pub(super) const SUBSYSTEM: u8 = 10;
/// `NFT_MSG_GET...`
const GET_TABLE: u8 = 1;
const GET_CHAIN: u8 = 4;
const GET_RULE: u8 = 7;
const GET_SET: u8 = 10;
const GET_ELEMENT: u8 = 13;
const GET_GENERATION: u8 = 16;
/// Kinds of user data that are a comment: of a set, and of everything else.
const SET_COMMENT: u8 = 7;
pub(super) const COMMENT: u8 = 0;

/// Elements asked for in one request. Each answer is a message of its own, for which the kernel takes 8 KiB of the
/// socket's buffer, and that has 208 KiB unless the host is set otherwise.
const KEYS_MAX: usize = 16;

/// A table, chain, set or rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    /// Its name; empty for a rule.
    pub name: String,
    /// The number that names it and no later one of the same name.
    pub handle: u64,
    /// Its comment; empty when there is none.
    pub comment: String,
}

impl Object {
    /// Whether tarn put it there.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.comment)
    }
}

/// Whether a comment is one of tarn's.
pub fn is_ours(comment: &str) -> bool {
    comment.split(' ').next() == Some(MARK)
}

/// A rule in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The chain's name.
    pub chain: String,
    /// Handle and comment.
    pub object: Object,
}

/// A table without its elements.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Every chain.
    pub chains: Vec<Object>,
    /// Every set and map that has a name.
    pub sets: Vec<Object>,
    /// Every rule, in the order of each chain.
    pub rules: Vec<Rule>,
}

impl Table {
    /// Reads a table; one that is not there is empty.
    ///
    /// # Errors
    /// No rights; a kernel without nftables.
    pub fn read(family: &str, name: &str) -> Result<Self> {
        let mut socket = Socket::open()?;
        let request = request(1, name);
        let ours = |attributes: &Attributes<'_>| attributes.text(1) == name;
        let chains = collect(&mut socket, kind(GET_CHAIN, family), &request, |attributes| {
            ours(&attributes).then(|| object(attributes, 3, 2, attributes.get(12), COMMENT))
        })?;
        let mut sets = collect(&mut socket, kind(GET_SET, family), &request, |attributes| {
            ours(&attributes).then(|| object(attributes, 2, 16, attributes.get(13), SET_COMMENT))
        })?;
        // Sets without a name of their own belong to a rule.
        sets.retain(|set| !set.name.starts_with("__"));
        let rules = rules(family, name)?;
        Ok(Table { chains, sets, rules })
    }

    /// What someone else put into it, in words.
    pub fn foreign(&self) -> Vec<String> {
        let chains = self.chains.iter().map(|chain| ("chain", chain));
        let objects = chains.chain(self.sets.iter().map(|set| ("set", set)));
        let named = objects
            .filter(|(_, object)| !object.is_ours())
            .map(|(kind, object)| format!("{kind} {}", object.name));
        let rules = self.rules.iter().filter(|rule| !rule.object.is_ours());
        named
            .chain(rules.map(|rule| format!("rule {} in chain {}", rule.object.handle, rule.chain)))
            .collect()
    }
}

/// The rules of a table, in the order of each chain.
///
/// # Errors
/// No rights; a kernel without nftables.
pub fn rules(family: &str, name: &str) -> Result<Vec<Rule>> {
    let mut socket = Socket::open()?;
    collect(&mut socket, kind(GET_RULE, family), &request(1, name), |attributes| {
        let object = object(attributes, 0, 3, attributes.get(7), COMMENT);
        let chain = attributes.text(2);
        (attributes.text(1) == name).then_some(Rule { chain, object })
    })
}

/// The table of that name, `None` when there is none.
///
/// # Errors
/// No rights; a kernel without nftables.
pub fn table(family: &str, name: &str) -> Result<Option<Object>> {
    let found = collect(&mut Socket::open()?, kind(GET_TABLE, family), &[], |attributes| {
        let table = object(attributes, 1, 4, attributes.get(6), COMMENT);
        (table.name == name).then_some(table)
    })?;
    Ok(found.into_iter().next())
}

/// A chain that the kernel begins with, at a hook of a packet's way, and that can refuse packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// `ip`, `ip6`, `inet` or `netdev`.
    pub family: &'static str,
    /// The table's name.
    pub table: String,
    /// Its name.
    pub chain: String,
    /// Where it is asked.
    pub hook: Hook,
    /// Whether tarn put it there.
    pub is_ours: bool,
}

/// Where on a packet's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// When it arrives at a device, after tc.
    Ingress,
    /// Before it is routed.
    Prerouting,
    /// Between two devices.
    Forward,
}

/// The chains that can refuse packets which pass this host: of type `filter`, with a rule, or with a policy to drop.
///
/// # Errors
/// No rights; a kernel without nftables.
pub fn filters() -> Result<Vec<Filter>> {
    let mut found = Vec::new();
    let dumped = Socket::open()?.dump(kind(GET_CHAIN, "all"), &[], |dump| {
        match dump {
            Dump::Begin => found.clear(),
            Dump::Entry(family, chain) => found.extend(filter(family, chain)),
        }
        Ok(())
    });
    match dumped {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(Vec::new()),
        other => other.map(|()| found).context("cannot list the nftables chains"),
    }
}

/// Table 1, name 3, hook 4 (with its number 1), policy 5, use 6 (how many rules), type 7, user data 12.
fn filter(family: u8, chain: Attributes<'_>) -> Option<Filter> {
    const DROP: u32 = 0;
    let number = chain.nested(4)?.be32(1)?;
    let (family, hook) = match (i32::from(family), number) {
        (libc::NFPROTO_NETDEV, 0) => ("netdev", Hook::Ingress),
        (libc::NFPROTO_INET, 5) => ("inet", Hook::Ingress),
        (libc::NFPROTO_INET, 0) => ("inet", Hook::Prerouting),
        (libc::NFPROTO_INET, 2) => ("inet", Hook::Forward),
        (libc::NFPROTO_IPV4, 0) => ("ip", Hook::Prerouting),
        (libc::NFPROTO_IPV4, 2) => ("ip", Hook::Forward),
        (libc::NFPROTO_IPV6, 0) => ("ip6", Hook::Prerouting),
        (libc::NFPROTO_IPV6, 2) => ("ip6", Hook::Forward),
        _ => return None,
    };
    let refuses = chain.be32(6).unwrap_or(0) > 0 || chain.be32(5) == Some(DROP);
    let comment = chain
        .get(12)
        .and_then(|data| comment(data, COMMENT))
        .unwrap_or_default();
    (chain.text(7) == "filter" && refuses).then(|| Filter {
        family,
        table: chain.text(1),
        chain: chain.text(3),
        hook,
        is_ours: is_ours(comment),
    })
}

/// The number of the ruleset's last change: as long as it stays, nothing of nftables has changed.
///
/// # Errors
/// A kernel without nftables.
pub fn generation() -> Result<u32> {
    let mut generation = None;
    Socket::open()?.request(kind(GET_GENERATION, "all"), &[], |_, answer| {
        generation = generation.or(answer.be32(1));
        Ok(())
    })?;
    generation.context("the kernel does not number the changes of nftables")
}

/// The numbers of others' tables that `nft flush ruleset` deletes: a process that owns its table (`flags owner`) keeps it. A
/// table that is made anew has another number.
///
/// # Errors
/// No rights; a kernel without nftables.
pub fn foreign_tables() -> Result<HashSet<u64>> {
    const OWNER: u16 = 7;
    let number = |table: Attributes<'_>| {
        let is_ours = object(table, 1, 4, table.get(6), COMMENT).is_ours();
        (!is_ours && table.get(OWNER).is_none())
            .then(|| table.be64(4))
            .flatten()
    };
    let handles = collect(&mut Socket::open()?, kind(GET_TABLE, "all"), &[], number)?;
    Ok(handles.into_iter().collect())
}

/// One element of a set or map.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// The key as the kernel keeps it: each part of a concatenation filled up to 4 bytes.
    pub key: &'a [u8],
    /// What a map leads to; empty in a set.
    pub data: &'a [u8],
    /// The comment; empty when there is none.
    pub comment: &'a str,
    /// Packets and bytes counted, where the set counts.
    pub counter: Option<(u64, u64)>,
    /// Milliseconds since the element was last found, where the set keeps it and it ever was.
    pub last_ms: Option<u64>,
}

/// Hands every element of a set on as it is read, after a first `None`; a set that is not there has none.
///
/// When the table changes meanwhile the reading begins again with another `None`: what came before is out of date.
///
/// # Errors
/// No rights; what `each` returns.
pub fn elements(
    family: &str,
    table: &str,
    set: &str,
    mut each: impl FnMut(Option<Element<'_>>) -> Result<()>,
) -> Result<()> {
    let mut attributes = request(1, table);
    put(&mut attributes, 2, &zero_ended(set));
    let dumped = Socket::open()?.dump(kind(GET_ELEMENT, family), &attributes, |dump| match dump {
        Dump::Begin => each(None),
        Dump::Entry(_, answer) => {
            let list = answer.nested(3).into_iter().flatten();
            list.map(|(_, bytes)| element(Attributes(bytes)))
                .try_for_each(|element| each(Some(element)))
        }
    });
    match dumped {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(()),
        other => other.with_context(|| format!("cannot read the nftables set {family} {table} {set}")),
    }
}

/// Looks elements up by their keys, and hands each on with its place in `keys`, or `None` where there is none.
///
/// This takes the same time in sets of any size. [`elements`] does not: the kernel begins at the first element again
/// for every part of a dump.
///
/// # Errors
/// No rights; what `each` returns.
pub fn find(
    family: &str,
    table: &str,
    set: &str,
    keys: &[Vec<u8>],
    mut each: impl FnMut(usize, Option<Element<'_>>) -> Result<()>,
) -> Result<()> {
    let mut socket = Socket::open()?;
    let mut next = 0;
    while next < keys.len() {
        let some = &keys[next..keys.len().min(next + KEYS_MAX)];
        let request = keys_request(table, set, some);
        let answered = socket.request(kind(GET_ELEMENT, family), &request, |_, answer| {
            for (_, bytes) in answer.nested(3).into_iter().flatten() {
                each(next, Some(element(Attributes(bytes))))?;
                next += 1;
            }
            Ok(())
        });
        match answered {
            // The kernel answers in the order of the keys up to the first that it does not have.
            Err(error) if refusal(&error) == Some(Errno::ENOENT) => {
                each(next, None)?;
                next += 1;
            }
            other => other.with_context(|| format!("cannot read the nftables set {family} {table} {set}"))?,
        }
    }
    Ok(())
}

fn keys_request(table: &str, set: &str, keys: &[Vec<u8>]) -> Vec<u8> {
    let mut attributes = request(1, table);
    put(&mut attributes, 2, &zero_ended(set));
    put_nested(&mut attributes, 3, |list| {
        for key in keys {
            put_nested(list, 1, |element| put_nested(element, 1, |value| put(value, 1, key)));
        }
    });
    attributes
}

/// Key 1, data 2, flags 3, time left 5, user data 6, one expression 7, several 11; a value is attribute 1 inside of key and data.
fn element(attributes: Attributes<'_>) -> Element<'_> {
    let value = |number| {
        attributes
            .nested(number)
            .and_then(|nested| nested.get(1))
            .unwrap_or_default()
    };
    let mut element = Element {
        key: value(1),
        data: value(2),
        comment: attributes
            .get(6)
            .and_then(|data| comment(data, COMMENT))
            .unwrap_or_default(),
        counter: None,
        last_ms: None,
    };
    let several = attributes.nested(11).into_iter().flatten().map(|(_, bytes)| bytes);
    for expression in attributes.get(7).into_iter().chain(several).map(Attributes) {
        let Some(data) = expression.nested(2) else { continue };
        match expression.text(1).as_str() {
            "counter" => element.counter = data.be64(2).zip(data.be64(1)),
            "last" if data.be32(1).is_some_and(|set| set != 0) => element.last_ms = data.be64(2),
            _ => {}
        }
    }
    element
}

/// What `each` makes of the entries of a dump; one of what is not there is empty.
fn collect<T>(
    socket: &mut Socket,
    kind: Kind,
    request: &[u8],
    mut each: impl FnMut(Attributes<'_>) -> Option<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let dumped = socket.dump(kind, request, |dump| {
        match dump {
            Dump::Begin => found.clear(),
            Dump::Entry(_, attributes) => found.extend(each(attributes)),
        }
        Ok(())
    });
    match dumped {
        Err(error) if refusal(&error) == Some(Errno::ENOENT) => Ok(Vec::new()),
        other => other.map(|()| found).context("cannot read the nftables ruleset"),
    }
}

fn object(attributes: Attributes<'_>, name: u16, handle: u16, data: Option<&[u8]>, kind: u8) -> Object {
    Object {
        name: attributes.text(name),
        handle: attributes.be64(handle).unwrap_or(0),
        comment: data.and_then(|data| comment(data, kind)).unwrap_or_default().to_owned(),
    }
}

/// The comment among user data.
fn comment(mut data: &[u8], kind: u8) -> Option<&str> {
    while let [found, length, rest @ ..] = data {
        let value = rest.get(..usize::from(*length))?;
        if *found == kind {
            return std::str::from_utf8(value).ok().map(|text| text.trim_end_matches('\0'));
        }
        data = &rest[value.len()..];
    }
    None
}

fn request(number: u16, table: &str) -> Vec<u8> {
    let mut attributes = Vec::new();
    put(&mut attributes, number, &zero_ended(table));
    attributes
}

fn kind(message: u8, family: &str) -> Kind {
    let family = match family {
        "ip" => libc::NFPROTO_IPV4,
        "ip6" => libc::NFPROTO_IPV6,
        "inet" => libc::NFPROTO_INET,
        "arp" => libc::NFPROTO_ARP,
        "bridge" => libc::NFPROTO_BRIDGE,
        "netdev" => libc::NFPROTO_NETDEV,
        _ => libc::NFPROTO_UNSPEC,
    };
    Kind {
        subsystem: SUBSYSTEM,
        message,
        family: family as u8,
    }
}
