//! Carries rules out with nftables: destination NAT through maps, for hosts and devices that XDP is not for.
//!
//! The kernel's connection tracking restores replies, ICMP errors and fragments. The table is described in [`layout`],
//! how rules become elements of its maps in [`element`].

use std::collections::HashMap;

use anyhow::{Result, bail};

use super::STAGE;
use super::carrier::{Carrier, Counters};
use super::devices::Devices;
use super::rule::Rule;
use tarn_base::error::{Unsupported, Usage};
use tarn_base::runtime::monotonic_ns;
use tarn_frame::Running;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_kernel::nft::Nft;
use tarn_kernel::nft::read::{self, Table};

mod adopt;
mod change;
mod element;
pub mod flows;
mod guard;
mod late;
mod layout;
mod look_up;
mod probe;
mod steps;

pub use probe::abilities;

use element::{element_count, id_of, steering};
use guard::Guard;
use layout::{FAMILY, TABLE};
use look_up::look_up;
use probe::keeps_last;
use steps::{Step, Transaction, lines};

/// The most elements in all maps and sets: the kernel needs about 200 bytes for each.
const ELEMENTS_MAX: u64 = 8 << 20;

/// The carrier `nftables`.
#[derive(Debug, Clone)]
pub struct Nftables {
    /// Which devices' packets are redirected.
    pub devices: Devices,
    /// Where the rules are that are carried out.
    pub state: StateDirectory,
}

impl Nftables {
    fn steps(
        &self,
        nft: &Nft,
        table: Option<&Table>,
        rules: &[Rule],
        each: impl FnMut(Step) -> Result<()>,
    ) -> Result<Vec<Rule>> {
        adopt::steps(table, rules, &layout::base_chains(&self.devices), keeps_last(nft), each)
    }
}

impl Carrier for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn plan(&self, rules: &[Rule]) -> Result<Vec<String>> {
        let nft = Nft::find()?;
        let table = our_table()?;
        let mut plan = Vec::new();
        let stale = self.steps(&nft, table.as_ref(), rules, |step| {
            plan.extend(lines(&step).iter().map(|line| format!("nft '{}'", line.trim_end())));
            Ok(())
        })?;
        if !rules.is_empty() || !stale.is_empty() {
            plan.push(
                "# connections tracked before that now go elsewhere are forgotten, as conntrack -D does".to_owned(),
            );
        }
        Ok(plan)
    }

    fn room(&self, rules: &[Rule]) -> Result<()> {
        bounded(rules)
    }

    fn up(&self, journal: &mut Journal, rules: &[Rule], _new: &[Rule]) -> Result<Box<dyn Running>> {
        let nft = Nft::find()?;
        let table = our_table()?;
        let change = Change::NftTable {
            family: FAMILY.to_owned(),
            name: TABLE.to_owned(),
        };
        journal.record_once(STAGE, change)?;
        let mut transaction = Transaction::new(&nft);
        let stale = self.steps(&nft, table.as_ref(), rules, |step| transaction.push(step))?;
        transaction.flush()?;
        flows::forget(&nft, rules, &stale, None);
        Ok(Box::new(Guard::new(self.clone())))
    }

    fn change(&self, add: &[Rule], remove: &[Rule]) -> Result<()> {
        let nft = Nft::find()?;
        let Some(table) = our_table()? else {
            bail!("the nftables table {FAMILY} {TABLE} is gone: 'tarn up' makes it anew");
        };
        let present = layout::places(&table);
        let mut places = present.clone();
        let steps = change::steps(&table, &mut places, add, remove, keeps_last(&nft));
        let mut transaction = Transaction::new(&nft);
        change::possible(steps, &present)?
            .into_iter()
            .try_for_each(|step| transaction.push(step))?;
        transaction.flush()?;
        flows::forget(&nft, add, remove, Some(&places));
        Ok(())
    }

    fn trouble(&self) -> Result<Option<String>> {
        let text = "somebody has deleted nftables rules of tarn's: nothing is redirected. After `nft flush ruleset` the agent \
                    restores them within a second; if they were deleted by hand, or no agent runs, `tarn up` does";
        Ok((!guard::stands(self)?).then(|| text.to_owned()))
    }

    fn counters(&self, rules: &[Rule]) -> Result<Vec<Counters>> {
        let table = our_table()?.unwrap_or_default();
        let now = monotonic_ns();
        let mut totals: HashMap<u32, Counters> = HashMap::new();
        let counting = rules.iter().flat_map(steering).map(|element| element.counting());
        look_up(counting, &layout::places(&table), |element, read| {
            let Some(read) = read.filter(|read| id_of(read.comment) == Some(element.id)) else {
                return Ok(());
            };
            let (packets, bytes) = read.counter.unwrap_or_default();
            let last = read.last_ms.map(|ms| now.saturating_sub(ms.saturating_mul(1_000_000)));
            let total = totals.entry(element.id).or_default();
            total.packets += packets;
            total.bytes += bytes;
            total.last_used_ns = total.last_used_ns.max(last);
            Ok(())
        })?;
        Ok(rules
            .iter()
            .map(|rule| totals.remove(&rule.id).unwrap_or_default())
            .collect())
    }
}

/// What is there of the table; `None` when it has to be made.
///
/// # Errors
/// A table of that name that someone else made.
fn our_table() -> Result<Option<Table>> {
    let Some(found) = read::table(FAMILY, TABLE)? else {
        return Ok(None);
    };
    if !found.is_ours() {
        let text = format!(
            "there is an nftables table '{FAMILY} {TABLE}' that tarn did not make: look at it with \
             'nft list table {FAMILY} {TABLE}', and rename or delete it"
        );
        return Err(Unsupported(text).into());
    }
    Table::read(FAMILY, TABLE).map(Some)
}

fn bounded(rules: &[Rule]) -> Result<()> {
    let elements: u64 = rules.iter().map(element_count).sum();
    if elements > ELEMENTS_MAX {
        let text = format!(
            "the rules need {elements} nftables elements, more than the {ELEMENTS_MAX} allowed: a range whose ports \
             are shifted needs two a port; keep the ports, or use mode = \"bpf\""
        );
        return Err(Usage(text).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
