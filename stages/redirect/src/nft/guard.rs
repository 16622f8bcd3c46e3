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
    /// The numbers of all tables when ours was last found to be whole.
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
            known: read::table_handles().unwrap_or_default(),
            is_left_alone: false,
            complaint: None,
        }
    }

    fn look(&mut self) -> Result<()> {
        self.watch.look()?;
        // Read first: what a reload makes in between is not known to have been there with ours.
        let tables = read::table_handles()?;
        if stands(&self.nftables)? {
            (self.known, self.is_left_alone) = (tables, false);
            return Ok(());
        }
        if self.is_left_alone {
            return Ok(());
        }
        // Whoever holds the lock changes the table now; it is looked at again soon.
        let Some(_lock) = self.nftables.state.try_lock("restore")? else {
            return Ok(());
        };
        if !is_up(&self.nftables.state)? || stands(&self.nftables)? {
            return Ok(());
        }
        if self.was_on_purpose()? {
            self.is_left_alone = true;
            let text = "somebody has deleted nftables rules of tarn's, and no others: they are left alone, and nothing is \
                        redirected until `tarn up` makes them anew";
            log_at(Priority::Warning, STAGE, text);
            return Ok(());
        }
        self.restore()
    }

    /// Whether a table is still there that was when ours was whole, be it ours: a flush of the ruleset leaves none. Where
    /// ours was the only one, it cannot be told from a deletion.
    fn was_on_purpose(&self) -> Result<bool> {
        Ok(!self.known.is_disjoint(&read::table_handles()?))
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

impl Running for Guard {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        let mut next = Instant::now() + INTERVAL;
        let mut seen = None;
        while !stop.wait(TICK) {
            let generation = read::generation().ok();
            if generation == seen && Instant::now() < next {
                continue;
            }
            (seen, next) = (generation, Instant::now() + INTERVAL);
            let complaint = self.look().err().map(|error| format!("{error:#}"));
            if complaint != self.complaint {
                complaint.iter().for_each(|text| log_at(Priority::Warning, STAGE, text));
                self.complaint = complaint;
            }
        }
        Ok(())
    }
}
