//! Restores the table after somebody has deleted it with all others, as a firewall does that is loaded anew
//! (`nft flush ruleset`). Whoever deletes it alone, or something in it, means it: that is left alone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Nftables, layout, our_table};
use crate::STAGE;
use crate::carrier::Carrier;
use crate::rule::Rule;
use crate::store::Store;
use crate::watch::{INTERVAL, Watch};
use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::Stop;
use tarn_frame::Running;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_kernel::nft::read;

/// How often the ruleset's number is asked for, which says whether anything has changed. Until the table is restored, clients
/// meet the host itself.
const TICK: Duration = Duration::from_millis(100);

/// Whether the table is there, with the rules that the kernel begins with. Whoever changes one of the others means it.
///
/// # Errors
/// No rights; a table of that name that someone else made.
pub fn stands(nftables: &Nftables) -> Result<bool> {
    let base = layout::base_chains(&nftables.devices);
    Ok(our_table()?.is_some_and(|table| layout::chain_changes(&base, &table).is_empty()))
}

/// Whether the table is to be there: another carrier, or `tarn down`, has taken it out of the journal.
fn is_up(state: &StateDirectory) -> Result<bool> {
    let journal = Journal::open(state)?;
    Ok(journal
        .changes(STAGE)
        .any(|(_, change)| matches!(change, Change::NftTable { .. })))
}

/// Looks after the table.
pub struct Guard {
    nftables: Nftables,
    watch: Watch,
    /// The numbers of others' tables when ours was last found to be whole.
    known: HashSet<u64>,
    /// What somebody has deleted on purpose: said once.
    is_left_alone: bool,
    /// What could not be done last time: said once.
    complaint: Option<String>,
}

impl Guard {
    /// Of a table that was just set up.
    pub fn new(nftables: Nftables) -> Self {
        let watch = Watch::new(nftables.state.clone());
        Self {
            nftables,
            watch,
            // Without an answer, what is deleted is restored.
            known: read::foreign_tables().unwrap_or_default(),
            is_left_alone: false,
            complaint: None,
        }
    }

    /// False when somebody else is at work: then it is to be looked at again soon.
    fn look(&mut self) -> Result<bool> {
        self.watch.look()?;
        // Read first: what a reload makes in between is not known to have been there with ours.
        let tables = read::foreign_tables()?;
        if stands(&self.nftables)? {
            (self.known, self.is_left_alone) = (tables, false);
            return Ok(true);
        }
        if self.is_left_alone {
            return Ok(true);
        }
        // Whoever holds the lock changes the table now.
        let Some(_lock) = self.nftables.state.try_lock("restore")? else {
            return Ok(false);
        };
        if !is_up(&self.nftables.state)? || stands(&self.nftables)? {
            return Ok(true);
        }
        if is_on_purpose(our_table()?.is_some(), &self.known, &read::foreign_tables()?) {
            self.is_left_alone = true;
            let text = "somebody has deleted nftables rules of tarn's, and no others: they are left alone, and nothing is \
                        redirected until `tarn up` makes them anew";
            log_at(Priority::Warning, STAGE, text);
            return Ok(true);
        }
        self.restore().map(|()| true)
    }

    fn restore(&self) -> Result<()> {
        let state = &self.nftables.state;
        let rules: Vec<Rule> = Store::open(state.path())?.rules().cloned().collect();
        self.nftables.up(&mut Journal::open(state)?, &rules, &[])?;
        let text = "somebody has deleted nftables rules of tarn's, perhaps by `nft flush ruleset`: they are restored, and \
                    count from zero";
        log_at(Priority::Warning, STAGE, text);
        Ok(())
    }
}

/// Whether somebody meant tarn's table: it `is_there`, changed, or has gone alone, of all others that were `known` when it was whole. A
/// flush deletes all, or all of a family. Where there was no other, that looks the same as deleting it.
fn is_on_purpose(is_there: bool, known: &HashSet<u64>, now: &HashSet<u64>) -> bool {
    is_there || !known.is_empty() && known.is_subset(now)
}

impl Running for Guard {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        let mut next = Instant::now() + INTERVAL;
        let mut seen = None;
        while !stop.wait(TICK) {
            let generation = read::generation().ok();
            if seen.is_some() && generation == seen && Instant::now() < next {
                continue;
            }
            next = Instant::now() + INTERVAL;
            let looked = self.look();
            // The number was read before: what changes meanwhile is looked at next.
            seen = generation.filter(|_| !matches!(looked, Ok(false)));
            let complaint = looked.err().map(|error| format!("{error:#}"));
            if complaint != self.complaint {
                complaint.iter().for_each(|text| log_at(Priority::Warning, STAGE, text));
                self.complaint = complaint;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A firewall that is loaded anew takes its own tables with it, and all, or those of its family, or all but such as
    /// belong to a process; who deletes tarn's alone, or a chain in it, does not want it.
    #[test]
    fn a_flush_is_told_from_a_deletion() {
        let is_on_purpose = |is_there: bool, known: &[u64], now: &[u64]| {
            let set = |numbers: &[u64]| numbers.iter().copied().collect();
            is_on_purpose(is_there, &set(known), &set(now))
        };
        assert!(!is_on_purpose(false, &[2, 3], &[]), "a flush");
        assert!(!is_on_purpose(false, &[2, 3], &[4, 5]), "a flush, and other tables");
        assert!(!is_on_purpose(false, &[2, 3], &[3]), "a flush of a family");
        assert!(!is_on_purpose(false, &[], &[]), "the only one");
        assert!(is_on_purpose(false, &[2, 3], &[2, 3]), "tarn's alone");
        assert!(is_on_purpose(true, &[2, 3], &[2, 3]), "a chain in it");
        assert!(is_on_purpose(true, &[], &[]), "a chain in the only one");
    }
}
