//! Which client belongs to which class: maps of nftables, and the chain that looks them up.
//!
//! ```text
//! packet for this host -> chain input (filter, 300) -- one of our ports? --> addresses4 / 6 --> networks4 / 6
//!                                                  `-- no: on                 `-> meta priority: 7461:CLASS
//! ```
//!
//! The module reads the class from the packet's priority, right behind this chain. A client that no map has keeps the
//! priority that it came with, and the module takes it for one of the last class.
//!
//! Intervals of one map cannot lie in each other. A client may log in from a network that has a class, so single
//! addresses have maps of their own, which are asked first.
//!
//! Every packet for this host pays for this chain, so it is short: one rule for each map, which asks for the port
//! whatever the protocol, and none for maps that never held anything. What has the same port of another protocol gets a
//! priority that nobody reads.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;

use super::config::Config;
use super::network::Network;
use tarn_base::error::{Unsupported, Usage};
use tarn_base::network::PortRange;
use tarn_kernel::netlink::{address_bytes, address_of, refusal};
use tarn_kernel::nft::batch::{Batch, Interval, previous};
use tarn_kernel::nft::{MARK, Nft, read};

/// The table's family.
pub const FAMILY: &str = "inet";
/// The table's name.
pub const TABLE: &str = "tarn_classes";
/// The maps of single addresses and of networks, in the order in which they are asked.
const MAPS: [&str; 4] = ["addresses4", "networks4", "addresses6", "networks6"];
/// The families of two maps each: their keys' type, and the family's names as nft has them.
const FAMILIES: [(&str, &str, &str); 2] = [("ipv4_addr", "ipv4", "ip"), ("ipv6_addr", "ipv6", "ip6")];
/// The comment of rules that ask for single addresses.
const ASKS: &str = "tarn addresses";
/// `TARN_CLASSES_PRIORITY`, in the upper 16 bits of a packet's priority.
const PRIORITY: u32 = 0x7461;
/// Behind filters, address translation and conntrack's helpers; the module's hook is last but one of all.
const HOOK: &str = "type filter hook input priority 300; policy accept;";

/// A network of clients and its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The addresses.
    pub network: Network,
    /// The class's number.
    pub class: usize,
    /// After which the class is lost, where it is.
    pub timeout: Option<Duration>,
}

/// A client that has its class for good.
impl From<(Network, usize)> for Client {
    fn from((network, class): (Network, usize)) -> Self {
        Self {
            network,
            class,
            timeout: None,
        }
    }
}

/// A change of the maps, carried out whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// These go. One that is not there any more is none of the change.
    pub remove: Vec<Client>,
    /// These come, in the place of those with the same addresses.
    pub add: Vec<Client>,
}

/// Whether the table is there.
///
/// # Errors
/// Somebody else made it; a kernel without nftables.
pub fn has_table() -> Result<bool> {
    match read::table(FAMILY, TABLE)? {
        Some(found) if !found.is_ours() => Err(Unsupported(format!(
            "there is an nftables table '{FAMILY} {TABLE}' that tarn did not make: look at it with \
             'nft list table {FAMILY} {TABLE}', and rename or delete it"
        ))
        .into()),
        found => Ok(found.is_some()),
    }
}

/// The lines that make the table `name` with empty maps and without rules.
pub fn table_script(name: &str, max_clients: u32) -> String {
    // Older kernels count an interval twice, for its end is an element too.
    let size = u64::from(max_clients) * 2 + 1;
    let mut script = format!("add table {FAMILY} {name} {{ comment \"{MARK} classes\"; }}\n");
    for (maps, (kind, ..)) in MAPS.chunks(2).zip(FAMILIES) {
        for map in maps {
            script.push_str(&format!(
                "add map {FAMILY} {name} {map} {{ type {kind} : classid; flags interval, timeout; size {size}; comment \"{MARK}\"; }}\n"
            ));
        }
    }
    script.push_str(&format!(
        "add chain {FAMILY} {name} input {{ {HOOK} comment \"{MARK}\"; }}\n"
    ));
    script
}

/// The lines that have the chain look at these ports, and at no others any more; for single addresses only where
/// `addresses` says so.
pub fn ports_script(name: &str, config: &Config, addresses: bool) -> String {
    let mut script = format!("flush chain {FAMILY} {name} input\n");
    let ports = ports(config);
    if ports.is_empty() {
        return script;
    }
    for family in 0..FAMILIES.len() {
        script.push_str(&rule("add", name, &ports, family, MAPS[2 * family + 1], MARK));
    }
    if addresses {
        script.push_str(&addresses_script(name, config));
    }
    script
}

/// The lines that have it ask for single addresses before all else.
fn addresses_script(name: &str, config: &Config) -> String {
    let ports = ports(config);
    if ports.is_empty() {
        return String::new();
    }
    let rule = |family| rule("insert", name, &ports, family, MAPS[2 * family], ASKS);
    (0..FAMILIES.len()).map(rule).collect()
}

/// The ports as nft takes them in a set: in order, and no ranges that overlap.
fn ports(config: &Config) -> String {
    let mut ranges: Vec<PortRange> = config.ports().map(|ports| ports.range).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|range, before| {
        let overlap = range.intersects(*before);
        if overlap {
            before.last = before.last.max(range.last);
        }
        overlap
    });
    ranges.iter().map(PortRange::to_string).collect::<Vec<_>>().join(", ")
}

fn rule(how: &str, name: &str, ports: &str, family: usize, map: &str, comment: &str) -> String {
    let (_, protocol, key) = FAMILIES[family];
    format!(
        "{how} rule {FAMILY} {name} input th dport {{ {ports} }} meta nfproto {protocol} \
         meta priority set {key} saddr map @{map} accept comment \"{comment}\"\n"
    )
}

/// Whether the maps of single addresses hold any.
///
/// # Errors
/// No rights; a kernel without nftables.
pub fn hold_addresses() -> Result<bool> {
    Ok(read::has_elements(FAMILY, TABLE, MAPS[0])? || read::has_elements(FAMILY, TABLE, MAPS[2])?)
}

/// Whether the chain asks for single addresses.
///
/// # Errors
/// No rights; a kernel without nftables.
pub fn asks_for_addresses() -> Result<bool> {
    let rules = read::rules(FAMILY, TABLE)?;
    Ok(rules.iter().any(|rule| rule.object.comment == ASKS))
}

/// Whether this host's nftables takes a table like ours.
///
/// # Errors
/// What it lacks.
pub fn judge(nft: &Nft) -> Result<()> {
    const NAME: &str = "tarn_check";
    let script = format!(
        "{}{}add element {FAMILY} {NAME} {} {{ 192.0.2.0/24 timeout 1s : 7461:1 }}\n",
        table_script(NAME, 16),
        rule("add", NAME, "53, 8000-8100", 0, MAPS[1], MARK),
        MAPS[1]
    );
    nft.check(&script)
        .context("this kernel's nftables has no maps of intervals to classes: load nf_tables (modprobe nf_tables)")
}

/// The command by which a client could be added by hand.
pub fn command(client: &Client) -> String {
    let timeout = client
        .timeout
        .map(|time| format!(" timeout {}s", time.as_secs().max(1)))
        .unwrap_or_default();
    format!(
        "nft 'add element {FAMILY} {TABLE} {} {{ {}{timeout} : {PRIORITY:x}:{:x} }}'",
        map_of(&client.network),
        client.network,
        client.class
    )
}

impl Change {
    /// Carries it out, in one transaction.
    ///
    /// # Errors
    /// What is added overlaps with what is there; a map is full; no rights.
    pub fn apply(&self) -> Result<()> {
        let goes = look_up(&self.remove)?;
        let gone: Vec<&Client> = self
            .remove
            .iter()
            .zip(goes)
            .filter(|(client, found)| found.is_some_and(|(first, _)| first == client.network.first))
            .map(|(client, _)| client)
            .collect();
        // Nearly always nothing of what is added is there yet: that takes no look-up.
        match transaction(&gone, &self.add) {
            Err(error) if is_any_refusal(&error, &[Errno::EEXIST, Errno::ENOTEMPTY, Errno::EBUSY]) => {
                self.replace(gone)
            }
            other => other.map_err(explained),
        }
    }

    /// Carries it out as [`Self::apply`] does, and has the chain ask for single addresses if it adds the first one. What
    /// else is in the chain stays.
    ///
    /// # Errors
    /// As those of [`Self::apply`]; nothing has changed then.
    pub fn apply_and_ask(&self, config: &Config) -> Result<()> {
        self.apply()?;
        let has_one = self.add.iter().any(|client| client.network.is_one());
        if !has_one || asks_for_addresses()? {
            return Ok(());
        }
        let asked = Nft::find().and_then(|nft| nft.apply(&addresses_script(TABLE, config)));
        asked.or_else(|error| self.reversed().apply().and(Err(error)))
    }

    /// Takes out first what has the same addresses as what is added.
    fn replace<'a>(&'a self, mut gone: Vec<&'a Client>) -> Result<()> {
        let founds = look_up(&self.add)?;
        let begin = |client: &Client| (map_of(&client.network), client.network.first);
        let mut going: HashSet<_> = gone.iter().map(|client| begin(client)).collect();
        for (client, found) in self.add.iter().zip(founds) {
            match found {
                Some((first, _)) if first == client.network.first && going.insert(begin(client)) => gone.push(client),
                Some((first, class)) if !going.contains(&(map_of(&client.network), first)) => {
                    return Err(overlap(client, first, class));
                }
                _ => {}
            }
        }
        transaction(&gone, &self.add).map_err(explained)
    }

    /// What takes it back.
    pub fn reversed(&self) -> Self {
        Self {
            remove: self.add.clone(),
            add: self.remove.clone(),
        }
    }
}

fn overlap(client: &Client, first: IpAddr, class: usize) -> anyhow::Error {
    Usage(format!(
        "{} lies in a network of class {class} that begins at {first}: only single addresses may; `tarn classes delete` \
         that network, then add its parts",
        client.network
    ))
    .into()
}

/// What a refusal is about, in words.
fn explained(error: anyhow::Error) -> anyhow::Error {
    if is_any_refusal(&error, &[Errno::EEXIST, Errno::ENOTEMPTY, Errno::EBUSY, Errno::ENOENT]) {
        let text = "a network overlaps with one that has a class; `tarn classes list` shows all, `tarn classes delete` takes \
                    one out";
        return Usage(text.to_owned()).into();
    }
    if refusal(&error) == Some(Errno::ENFILE) {
        return anyhow!("the map of clients is full: raise max_clients in tarn.toml, then `tarn down` and `tarn up`");
    }
    error.context("cannot change the classes of clients")
}

fn is_any_refusal(error: &anyhow::Error, numbers: &[Errno]) -> bool {
    refusal(error).is_some_and(|refusal| numbers.contains(&refusal))
}

fn transaction(gone: &[&Client], add: &[Client]) -> Result<()> {
    let mut batch = Batch::on(TABLE);
    for client in gone {
        batch.delete(map_of(&client.network), &client.interval());
    }
    for client in add {
        batch.add(map_of(&client.network), &client.interval());
    }
    batch.commit()
}

impl Client {
    fn interval(&self) -> Interval {
        Interval {
            first: self.network.first,
            last: self.network.last,
            data: PRIORITY << 16 | self.class as u32,
            timeout: self.timeout,
        }
    }
}

fn map_of(network: &Network) -> &'static str {
    match (network.first.is_ipv4(), network.is_one()) {
        (true, true) => MAPS[0],
        (true, false) => MAPS[1],
        (false, true) => MAPS[2],
        (false, false) => MAPS[3],
    }
}

/// The network that a map has at an address: its first address, which may be before, and its class.
type Found = Option<(IpAddr, usize)>;

/// What the maps have at the first addresses of these clients, each in its own map, in their order.
fn look_up(clients: &[Client]) -> Result<Vec<Found>> {
    let mut founds = vec![None; clients.len()];
    for map in MAPS {
        let is_in = |index: &usize| map_of(&clients[*index].network) == map;
        let places: Vec<usize> = (0..clients.len()).filter(is_in).collect();
        let addresses: Vec<IpAddr> = places.iter().map(|index| clients[*index].network.first).collect();
        for (place, found) in places.into_iter().zip(look_up_in(map, &addresses)?) {
            founds[place] = found;
        }
    }
    Ok(founds)
}

/// What a map has at these addresses, in their order.
fn look_up_in(map: &str, addresses: &[IpAddr]) -> Result<Vec<Found>> {
    let keys: Vec<Vec<u8>> = addresses.iter().copied().map(address_bytes).collect();
    let mut founds = Vec::new();
    read::find(FAMILY, TABLE, map, &keys, |_, element| {
        founds.push(element.and_then(|element| Some((address_of(element.key)?, class_of(element.data)))));
        Ok(())
    })?;
    Ok(founds)
}

/// The class that a network's clients have: where that begins which has it, the class's number, and whether it is the
/// network's own. One address may have the class of a network around it. `None` when they have none.
///
/// # Errors
/// No rights.
pub fn class_at(network: &Network) -> Result<Option<(IpAddr, usize, bool)>> {
    let found_in = |map| look_up_in(map, &[network.first]).map(|founds| founds.into_iter().next().flatten());
    let own = found_in(map_of(network))?;
    if own.is_none() && network.is_one() {
        let map = if network.first.is_ipv4() { MAPS[1] } else { MAPS[3] };
        return Ok(found_in(map)?.map(|(first, class)| (first, class, false)));
    }
    Ok(own.map(|(first, class)| (first, class, first == network.first)))
}

fn class_of(data: &[u8]) -> usize {
    <[u8; 4]>::try_from(data).map_or(0, |bytes| (u32::from_ne_bytes(bytes) & 0xffff) as usize)
}

/// Every client that has a class, by address. With a million this takes a minute: the kernel begins at the first element
/// again for every part of its answer.
///
/// # Errors
/// No rights; maps that change all the time.
pub fn all() -> Result<Vec<Client>> {
    all_up_to(usize::MAX)
}

/// The same, unless there are more than `most`.
///
/// # Errors
/// There are more; and those of [`all`].
pub fn all_up_to(most: usize) -> Result<Vec<Client>> {
    let mut all = Vec::new();
    for map in MAPS {
        let mut bounds: Vec<Bound> = Vec::new();
        read::elements(FAMILY, TABLE, map, |element| {
            let Some(element) = element else {
                bounds.clear();
                return Ok(());
            };
            // A network has two bounds, unless another follows at once.
            if all.len() + bounds.len() / 2 > most {
                bail!("more than {most} networks of clients have a class");
            }
            bounds.extend(address_of(element.key).map(|address| Bound {
                address,
                begins: !element.is_end,
                class: class_of(element.data),
                timeout: element.expires_ms.map(Duration::from_millis),
            }));
            Ok(())
        })?;
        all.extend(networks(bounds));
    }
    all.sort_unstable_by_key(|client: &Client| client.network);
    Ok(all)
}

/// Empties the maps.
///
/// # Errors
/// What the kernel or `nft` refuses.
pub fn forget_all() -> Result<()> {
    let script: String = MAPS
        .iter()
        .map(|map| format!("flush map {FAMILY} {TABLE} {map}\n"))
        .collect();
    Nft::find()?.apply(&script)
}

/// One element: where a network begins, or the address behind one.
struct Bound {
    address: IpAddr,
    begins: bool,
    class: usize,
    timeout: Option<Duration>,
}

fn networks(mut bounds: Vec<Bound>) -> Vec<Client> {
    // Where one ends, the next may begin.
    bounds.sort_by_key(|bound| (bound.address, bound.begins));
    let greatest = |address: IpAddr| match address {
        IpAddr::V4(_) => IpAddr::from([255; 4]),
        IpAddr::V6(_) => IpAddr::from([255; 16]),
    };
    let client = |(index, begin): (usize, &Bound)| {
        let after = bounds.get(index + 1).and_then(|bound| previous(bound.address));
        let last = after.unwrap_or(greatest(begin.address));
        Client {
            network: Network {
                first: begin.address,
                last,
            },
            class: begin.class,
            timeout: begin.timeout,
        }
    };
    bounds
        .iter()
        .enumerate()
        .filter(|(_, bound)| bound.begins)
        .map(client)
        .collect()
}

#[cfg(test)]
mod tests;
