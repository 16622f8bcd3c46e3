//! `add`, `delete`, `find` and `list`: which client is of which class.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ArgMatches;
use serde::Serialize;
use serde_json::json;

use super::Up;
use super::schedule::duration;
use crate::clients::{Change, Client, Store};
use crate::config::LASTS;
use crate::module::{Entry, Origin};
use crate::network::Network;
use tarn_base::error::Usage;
use tarn_base::network::Prefix;
use tarn_base::output::{Align, Output, Table};
use tarn_base::time;

fn address(matches: &ArgMatches) -> Result<Network> {
    matches
        .get_one::<Network>("ADDRESS")
        .copied()
        .context("an address is missing")
}

/// Gives a network of clients a class.
pub fn add(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let lasts = |_: &Duration| duration(matches, "for", &LASTS);
    let timeout = matches.get_one("for").map(lasts).transpose()?;
    let (up, _lock) = Up::lock("add")?;
    let client = Client {
        network: address(matches)?,
        class: up.class(matches)?.unwrap_or_default(),
        origin: Origin::Command,
        timeout,
    };
    let mut change = Change::default();
    change.add(&client);
    up.clients()?.apply(change, up.known.config.max_clients)?;
    let name = up.known.name(client.class);
    let shown = client.timeout.map(time::text);
    let lasting = shown.as_ref().map(|time| format!(" for {time}")).unwrap_or_default();
    let json = json!({ "network": client.network, "class": name, "for": shown });
    output.answer(&json, format_args!("{} is of class {name}{lasting}", client.network))
}

/// Takes its class away.
pub fn delete(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let network = address(matches)?;
    let (up, _lock) = Up::lock("delete")?;
    let mut clients = up.clients()?;
    let class = own_class(&up, &mut clients, &network)?;
    let mut change = Change::default();
    change.remove(&network);
    clients.apply(change, up.known.config.max_clients)?;
    let name = up.known.name(class);
    output.answer(
        &json!({ "network": network, "class": name }),
        format_args!("{network} is no longer of class {name}"),
    )
}

/// The class of a network, which has to be its own: what is deleted is what was added.
fn own_class(up: &Up, clients: &mut Store, network: &Network) -> Result<usize> {
    let mut own = None;
    let prefixes: Vec<Prefix> = network.prefixes().collect();
    for (found, prefix) in clients.find_each(&prefixes)?.into_iter().zip(prefixes) {
        let class = found.and_then(|entry| Some((entry.prefix, usize::from(entry.class?))));
        match class {
            Some((found, class)) if found == prefix => own = own.or(Some(class)),
            Some((wider, class)) => {
                let name = up.known.name(class);
                let text = format!("{prefix} has no class of its own: that of its network, {wider}, is {name}");
                return Err(Usage(text).into());
            }
            None => {
                let text = format!("{prefix} has no class of its own: `tarn classes list` shows those that have one");
                return Err(Usage(text).into());
            }
        }
    }
    own.context("a network without addresses")
}

/// Shows of which class an address is, and why.
pub fn find(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let network = address(matches)?;
    if !network.is_one() {
        let text = format!("{network} is a network, whose addresses may be of several classes: name one of them");
        return Err(Usage(text).into());
    }
    let up = Up::find("find")?;
    let prefixes: Vec<Prefix> = network.prefixes().collect();
    let found = up.clients()?.find_each(&prefixes)?.into_iter().next().flatten();
    let last = up.known.config.classes.len().saturating_sub(1);
    let class = found.and_then(|entry| entry.class).map_or(last, usize::from);
    let name = up.known.name(class);
    let json = json!({
        "address": network,
        "class": name,
        "network": found.map(|entry| Network::from(entry.prefix)),
        "origin": found.map(|entry| entry.origin.name()),
        "left_s": found.and_then(|entry| left(&entry)),
    });
    let why = match found {
        Some(entry) => reason(&entry),
        None => "no network that it is in has a class, so it gets the last one".to_owned(),
    };
    output.answer(&json, format_args!("{network} is of class {name}: {why}"))
}

/// What gives the addresses of a prefix their class.
fn reason(entry: &Entry) -> String {
    let network = Network::from(entry.prefix);
    let lasting = left(entry).map(|left| format!(", for {} more", time::text(Duration::from_secs(left))));
    let lasting = lasting.unwrap_or_default();
    match entry.origin {
        Origin::File => format!("the configuration gives it to {network}"),
        Origin::Command => format!("it was added for {network}{lasting}"),
    }
}

/// For how long a prefix keeps its class, in s; `None`: for good.
fn left(entry: &Entry) -> Option<u64> {
    entry.timeout.map(|left| left.as_secs())
}

/// One client of many, in the least memory.
#[derive(Serialize)]
struct Listed {
    network: Network,
    class: String,
    origin: &'static str,
    left_s: Option<u64>,
}

/// Shows who has a class.
pub fn list(output: &mut Output) -> Result<()> {
    let up = Up::find("list")?;
    let clients = up.clients()?.all()?;
    let class = |entry: &Entry| up.known.name(entry.class.map_or(usize::MAX, usize::from));
    if output.json {
        let described = |entry: &Entry| Listed {
            network: Network::from(entry.prefix),
            class: class(entry),
            origin: entry.origin.name(),
            left_s: left(entry),
        };
        let clients: Vec<Listed> = clients.iter().map(described).collect();
        return output.json(&HashMap::from([("clients", clients)]));
    }
    if clients.is_empty() {
        output.line("no client has a class: all are of the last one");
        return Ok(());
    }
    let mut table = Table::new(&[
        ("NETWORK", Align::Left),
        ("CLASS", Align::Left),
        ("FROM", Align::Left),
        ("LEFT (s)", Align::Right),
    ]);
    for client in &clients {
        let left = left(client).map_or_else(|| "-".to_owned(), |left| left.to_string());
        let network = Network::from(client.prefix).to_string();
        table.row([network, class(client), client.origin.name().to_owned(), left]);
    }
    output.table(&table);
    Ok(())
}
