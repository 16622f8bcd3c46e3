//! Keeps connections on the uplink that they began by, where addresses are translated: behind another uplink they would have
//! another address, and the far side would not know them.
//!
//! ```text
//!                      inet tarn_paths                                          conntrack
//!  from an uplink:     prerouting ─► arrivals ─► keep_1  (a new one from beyond) ─► its mark is 0x01000000
//!  from elsewhere:     prerouting ─► mark_1   (the packet has its connection's mark) ─► rule 1000 ─► table 0x74610001
//!  the host's own:     output     ─► leave_1 ─► mark_1  (the same, of what would leave by another uplink)
//!                      output     ─► own ─► leave_1  (a new one from that uplink's address)
//!  to an uplink:       postrouting ─► keep_1  (it left by that gateway, and has no mark yet)
//! ```
//!
//! A connection's mark is that of its uplink's rule (see `layout.rs`). Packets with hosts of an uplink's own network need no
//! gateway, and their connections get no mark. What belongs to an uplink that dies is forgotten by conntrack: what comes next is a
//! new connection, goes by another uplink, and is translated to the address there. Table and marks need no agent to work.
//!
//! But for TCP: the far end knows one address only, and an end that only receives would wait for ever. Such connections wait for
//! their uplink, and those that send something while it stays dead are reset after a while, to begin anew.
//!
//! Packets are marked as late as can be before they are routed: what looks up the way back by marks (`fib saddr . mark . iif`, as
//! firewalls do against forged addresses) has to look by the main table.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::STAGE;
use super::layout::{Layout, Way};
use super::ruleset;
use super::uplink::RETRY;
use crate::change::PathsChange;
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::journal::Change;
use tarn_kernel::addresses::{self, Address};
use tarn_kernel::conntrack;
use tarn_kernel::nft::{Nft, read};
use tarn_kernel::route::{self, Destination};

mod connections;
mod script;

use connections::Inner;

/// The table.
pub const TABLE: &str = "tarn_paths";
/// Its family.
const FAMILY: &str = "inet";

/// An uplink of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The mark of its rule, and of its connections.
    mark: u32,
    device: String,
    gateway: Option<IpAddr>,
    /// Whether the gateway is known, or that there is none. Until then nobody's packets can be told from those of neighbours.
    is_known: bool,
    /// What its group leads to.
    to: Destination,
    /// Whether connections stay on it: those of another group do not, which may lead by the same devices.
    keeps: bool,
    /// Whether it has been dead for so long that its TCP connections are reset when they send.
    is_given_up: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Pins {
    mask: u32,
    /// The uplinks of all groups, the most specific destination first, as routes are looked up.
    pins: Vec<Pin>,
    /// What the table was made for.
    made: Option<Made>,
    /// What has failed is not tried again before this moment.
    retry_at: Option<Instant>,
}

/// What a table was made for.
#[derive(Debug)]
struct Made {
    /// Addresses of the uplinks.
    addresses: Vec<Address>,
    pins: Vec<Pin>,
    /// How many rules it has.
    rules: usize,
}

/// Rules of others, for routing or in nftables, that use the bits of marks by which uplinks are told apart: they would find tarn's
/// marks, and tarn's rules theirs.
///
/// # Errors
/// There are, and which bits are free; a kernel that does not list its rules.
pub fn refuse_rules(mask: u32) -> Result<()> {
    let by_routing = route::bits_of_rules(&mut route::open()?)?;
    let by_nft = bits_of_nft();
    let remedy = || remedy(by_routing | by_nft, mask);
    if by_routing & mask != 0 {
        let remedy = remedy();
        bail!("routing rules of another program use bits of mark_mask {mask:#x} (`ip rule` lists them): {remedy}");
    }
    if by_nft & mask != 0 {
        let remedy = remedy();
        bail!(
            "nftables rules of another program use bits of mark_mask {mask:#x} (`nft list ruleset | grep mark`): {remedy}"
        );
    }
    Ok(())
}

/// Those that rules of nftables use. Where nft does not list them, only the marks that connections have show any.
fn bits_of_nft() -> u32 {
    let objects = ruleset::objects().unwrap_or_else(|error| {
        let text = format!("marks of other programs' rules are not looked at: {error:#}");
        log_at(Priority::Warning, STAGE, text);
        Vec::new()
    });
    ruleset::mark_bits(&objects)
}

fn remedy(used: u32, mask: u32) -> String {
    connections::free_bits(used, mask.count_ones()).map_or("make room".to_owned(), |mask| {
        format!("set mark_mask = {mask:#x}, which no connection has and no rule uses")
    })
}

impl Pins {
    /// Those of the groups that want it; `None` when none does.
    pub fn of(layouts: &[Layout]) -> Option<Self> {
        let mask = layouts
            .iter()
            .find(|layout| layout.group.is_pinned)?
            .ways
            .first()?
            .rule
            .mask;
        let mut ordered: Vec<&Layout> = layouts.iter().collect();
        ordered.sort_by_key(|layout| (Reverse(layout.group.route.to.length), layout.group.route.metric));
        let pin = |layout: &Layout, way: &Way| Pin {
            mark: way.rule.mark,
            device: way.device.clone(),
            gateway: way.gateway,
            is_known: way.is_known,
            to: layout.group.route.to,
            keeps: layout.group.is_pinned,
            is_given_up: false,
        };
        let pins = ordered
            .into_iter()
            .flat_map(|layout| layout.ways.iter().map(move |way| pin(layout, way)));
        Some(Self {
            mask,
            pins: pins.collect(),
            made: None,
            retry_at: None,
        })
    }

    /// The changes that they are, in the order to be made.
    pub fn changes(&self) -> Vec<Change> {
        let mask = self.mask;
        let kept = self.pins.iter().filter(|pin| pin.keeps);
        let marks = kept.map(|pin| PathsChange::ConnectionMark { mask, mark: pin.mark }.into());
        let table = Change::NftTable {
            family: FAMILY.to_owned(),
            name: TABLE.to_owned(),
        };
        marks.chain([table]).collect()
    }

    /// As commands that a person can read.
    ///
    /// # Errors
    /// A kernel that does not tell its addresses.
    pub fn commands(&self) -> Result<Vec<String>> {
        let lines = script::lines(TABLE, self.mask, &self.pins, &self.addresses()?);
        Ok(lines.into_iter().map(|line| format!("nft '{line}'")).collect())
    }

    /// Has the kernel judge a table of this kind, without making it.
    ///
    /// # Errors
    /// What it lacks.
    pub fn probe() -> Result<String> {
        let pin = |to: &str, gateway: &str| -> Result<Pin> {
            Ok(Pin {
                mark: 1 << 24,
                device: "tarn".to_owned(),
                gateway: Some(gateway.parse()?),
                is_known: true,
                to: to.parse().map_err(anyhow::Error::msg)?,
                keeps: true,
                is_given_up: true,
            })
        };
        let nft = Nft::find()?;
        let pins = [pin("default", "192.0.2.1")?, pin("::/0", "fe80::1")?];
        nft.check(&script::lines("tarn_check", 0xff << 24, &pins, &[]).join("\n"))
            .context("this kernel's nftables cannot mark connections: load nf_tables and nf_conntrack (modprobe)")?;
        match conntrack::is_missing() {
            None => nft.version(),
            Some(error) => {
                Err(error.context("this kernel does not tell of connections: load nf_conntrack_netlink (modprobe)"))
            }
        }
    }

    /// A table of this name that is somebody else's is in the way.
    ///
    /// # Errors
    /// There is one.
    pub fn refuse_taken(&self) -> Result<()> {
        if read::table(FAMILY, TABLE)?.is_some_and(|table| !table.is_ours()) {
            bail!(
                "the nftables table {FAMILY} {TABLE} is somebody else's: rename it or remove it; tarn needs that name"
            );
        }
        Ok(())
    }

    /// Connections that have marks already in the bits that tarn would use: another program keeps something there, and would find
    /// tarn's.
    ///
    /// # Errors
    /// There are, and which bits are free.
    pub fn refuse_marked(&self) -> Result<()> {
        let (mut used, mut count) = (0, 0);
        let mut note = |mark: u32| {
            used |= mark;
            count += u32::from(mark & self.mask != 0);
            mark
        };
        conntrack::remark(u32::MAX, |mark, _, _| note(mark))?;
        if count == 0 {
            return Ok(());
        }
        used |= route::bits_of_rules(&mut route::open()?)? | bits_of_nft();
        bail!(
            "{count} connections have marks in mark_mask {:#x} already, which another program keeps there (Calico does): {}",
            self.mask,
            remedy(used, self.mask)
        );
    }

    fn marks(&self) -> impl Iterator<Item = u32> {
        self.pins.iter().map(|pin| pin.mark)
    }

    /// Makes the table, and marks the connections that are under way by the addresses they have. `before` is what ran until now.
    ///
    /// # Errors
    /// What the kernel or `nft` refuses.
    pub fn begin(&mut self, before: Option<&Self>) -> Result<()> {
        self.make()?;
        if before.is_none_or(|before| !self.tells_as(before)) {
            let mut inner = Inner::of(&self.pins)?;
            let ours: Vec<u32> = before
                .iter()
                .flat_map(|before| before.marks())
                .chain(self.marks())
                .collect();
            let addresses = addresses::all()?;
            let marked = connections::mark(self.mask, &ours, &self.pins, &addresses, |peer| inner.has(peer))?;
            if marked > 0 {
                log(STAGE, format!("{marked} connections under way stay on their uplinks"));
            }
        }
        Ok(())
    }

    /// Whether connections were told by the same until now, so that those without a mark need none: they have begun since, and
    /// have not left by an uplink's gateway. Gateways tell nothing of connections that are under way.
    fn tells_as(&self, before: &Self) -> bool {
        fn known_by(pin: &Pin) -> (u32, &str, Destination, bool) {
            (pin.mark, &pin.device, pin.to, pin.keeps)
        }
        self.pins.iter().map(known_by).eq(before.pins.iter().map(known_by))
    }

    /// Makes the table anew when the uplinks have other addresses or gateways, or somebody has taken rules out of it.
    ///
    /// # Errors
    /// What the kernel or `nft` refuses.
    pub fn follow<'a>(&mut self, ways: impl Iterator<Item = &'a Way>) -> Result<()> {
        for way in ways {
            let pins = self.pins.iter_mut().filter(|pin| pin.mark == way.rule.mark);
            pins.for_each(|pin| (pin.gateway, pin.is_known) = (way.gateway, way.is_known));
        }
        if self.retry_at.is_some_and(|moment| Instant::now() < moment) {
            return Ok(());
        }
        self.retry_at = Some(Instant::now() + RETRY);
        self.renew()?;
        self.retry_at = None;
        Ok(())
    }

    /// Has TCP connections with these marks reset when they send, and those with others no longer.
    ///
    /// # Errors
    /// What the kernel or `nft` refuses.
    pub fn give_up(&mut self, marks: &[u32]) -> Result<()> {
        let before = self.pins.clone();
        for pin in &mut self.pins {
            pin.is_given_up = marks.contains(&pin.mark);
        }
        if self.pins == before {
            return Ok(());
        }
        for pin in self.pins.iter().filter(|pin| pin.is_given_up && !before.contains(pin)) {
            log(
                STAGE,
                format!("{}: TCP connections on it are reset when they send", pin.device),
            );
        }
        self.renew()
    }

    fn renew(&mut self) -> Result<()> {
        let addresses = self.addresses()?;
        let count = read::rules(FAMILY, TABLE)?
            .iter()
            .filter(|rule| rule.object.is_ours())
            .count();
        let made = self.made.as_ref();
        let is_whole = made.is_none_or(|made| made.rules == count);
        if is_whole && made.is_some_and(|made| made.addresses == addresses && made.pins == self.pins) {
            return Ok(());
        }
        self.make()?;
        if !is_whole {
            let text = format!("somebody has removed rules of the nftables table {FAMILY} {TABLE}: set again");
            log_at(Priority::Notice, STAGE, text);
        }
        Ok(())
    }

    fn make(&mut self) -> Result<()> {
        self.made = None;
        self.refuse_taken()?;
        let addresses = self.addresses()?;
        let lines = script::lines(TABLE, self.mask, &self.pins, &addresses);
        let rules = lines.iter().filter(|line| line.starts_with("add rule ")).count();
        let nft = Nft::find()?;
        nft.apply(&lines.join("\n"))
            .context("cannot keep connections on their uplinks")?;
        self.clear_out(&nft)?;
        self.made = Some(Made {
            addresses,
            pins: self.pins.clone(),
            rules,
        });
        Ok(())
    }

    /// Empties chains that nothing leads to any more, and takes them out, unless somebody else's rules lead there. The kernel lets
    /// go of a chain only when the transaction is over that took out what led to it.
    fn clear_out(&self, nft: &Nft) -> Result<()> {
        let wanted = script::chains(self.mask, &self.pins);
        let is_stale = |chain: &&read::Object| chain.is_ours() && !wanted.contains(&chain.name);
        let chains = read::Table::read(FAMILY, TABLE)?.chains;
        for chain in chains.iter().filter(is_stale) {
            nft.apply(&format!("flush chain {FAMILY} {TABLE} {}", chain.name))?;
            let _ = nft.apply(&format!("delete chain {FAMILY} {TABLE} {}", chain.name));
        }
        Ok(())
    }

    /// The addresses of the uplinks, but for those that only mean something on the link.
    fn addresses(&self) -> Result<Vec<Address>> {
        let mut addresses = addresses::all()?;
        let is_kept = |address: &Address| self.pins.iter().any(|pin| pin.keeps && pin.device == address.device);
        let is_link_local = |address: &Address| match address.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        addresses.retain(|address| is_kept(address) && !is_link_local(address));
        Ok(addresses)
    }
}

impl Pin {
    fn is_ipv6(&self) -> bool {
        self.to.address.is_ipv6()
    }
}

/// Lets connections go from an uplink that is dead, but for those of TCP.
///
/// # Errors
/// What the kernel refuses.
pub fn let_go(way: &Way) -> Result<()> {
    conntrack::forget_marked(way.rule.mark, way.rule.mask)?;
    log(
        STAGE,
        format!("{}: the connections on it are let go, but for those of TCP", way.device),
    );
    Ok(())
}
