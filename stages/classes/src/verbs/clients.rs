//! `add`, `delete` and `list`: which client is of which class.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ArgMatches;
use serde::Serialize;
use serde_json::json;

use super::Up;
use super::schedule::duration;
use crate::clients::{self, Change, Client};
use crate::config::LASTS;
use crate::network::Network;
use tarn_base::error::Usage;
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
    let (mut up, _lock) = Up::lock("add")?;
    let client = Client {
        network: address(matches)?,
        class: up.class(matches)?.unwrap_or_default(),
        timeout,
    };
    let change = Change {
        add: vec![client],
        ..Change::default()
    };
    change.apply_and_ask(&up.known.config)?;
    up.taken_over(&change)?;
    let name = up.known.name(client.class);
    let shown = client.timeout.map(time::text);
    let lasting = shown.as_ref().map(|time| format!(" for {time}")).unwrap_or_default();
    let json = json!({ "network": client.network, "class": name, "for": shown });
    output.answer(&json, format_args!("{} is of class {name}{lasting}", client.network))
}

/// Takes its class away.
pub fn delete(matches: &ArgMatches, output: &mut Output) -> Result<()> {
    let network = address(matches)?;
    let (mut up, _lock) = Up::lock("delete")?;
    let class = match clients::class_at(&network)? {
        Some((_, class, true)) => class,
        Some((first, class, false)) => {
            let name = up.known.name(class);
            let text = match network.is_one() {
                true => format!(
                    "{network} has no class of its own: that of its network, which begins at {first}, is {name}"
                ),
                false => format!("{network} lies in a network of class {name} that begins at {first}: delete that one"),
            };
            return Err(Usage(text).into());
        }
        None => {
            let text = format!("{network} has no class of its own: `tarn classes list` shows those that have one");
            return Err(Usage(text).into());
        }
    };
    let change = Change {
        remove: vec![Client::from((network, class))],
        ..Change::default()
    };
    change.apply()?;
    up.taken_over(&change)?;
    let name = up.known.name(class);
    output.answer(
        &json!({ "network": network, "class": name }),
        format_args!("{network} is no longer of class {name}"),
    )
}

/// One client of many, in the least memory.
#[derive(Serialize)]
struct Listed {
    network: Network,
    class: String,
    left_s: Option<u64>,
}

/// Shows who has a class.
pub fn list(output: &mut Output) -> Result<()> {
    let up = Up::find("list")?;
    let clients = clients::all()?;
    let left = |client: &Client| client.timeout.map(|left| left.as_secs());
    if output.json {
        let described = |client: &Client| Listed {
            network: client.network,
            class: up.known.name(client.class),
            left_s: left(client),
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
        ("LEFT (s)", Align::Right),
    ]);
    for client in &clients {
        let left = left(client).map_or_else(|| "-".to_owned(), |left| left.to_string());
        table.row([client.network.to_string(), up.known.name(client.class), left]);
    }
    output.table(&table);
    Ok(())
}
