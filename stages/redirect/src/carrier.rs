//! What carries rules out: the BPF programs or nftables, behind one interface.

use anyhow::Result;

use super::rule::Rule;
use super::store::Reconciled;
use tarn_frame::Running;
use tarn_frame::journal::Journal;

/// A way of carrying rules out in the kernel.
///
/// What it sets up stays in the kernel without the process that set it up, and every method can be called by another
/// process than the one before: a carrier keeps nothing between calls that the kernel does not keep.
pub trait Carrier: Send {
    /// The name shown: `bpf`, `nftables`.
    fn name(&self) -> &'static str;

    /// The changes that [`Carrier::up`] would make now, as commands that a person can read; nothing is changed.
    fn plan(&self, rules: &[Rule]) -> Result<Vec<String>>;

    /// Whether the kernel's tables hold `rules`, all that there will be; nothing is changed.
    ///
    /// # Errors
    /// [`Usage`](tarn_base::error::Usage): they are too many, with what to do about it.
    fn room(&self, rules: &[Rule]) -> Result<()>;

    /// Takes away beforehand what would be in the way of [`Carrier::up`], where something runs already.
    fn make_room(&self, _rules: &Reconciled) -> Result<()> {
        Ok(())
    }

    /// Makes the kernel carry out exactly `rules`, which have no conflicts. What an earlier agent set up is adopted:
    /// rules that stay keep their counters, those of `new` count from zero, and no packet is lost meanwhile. Changes are
    /// journaled before they are made. Returns what has to go on while the rules are carried out.
    fn up(&self, journal: &mut Journal, rules: &[Rule], new: &[Rule]) -> Result<Box<dyn Running>>;

    /// Makes the kernel carry out exactly `rules` with what runs already, after an `up` that failed.
    fn carry_on(&self, journal: &mut Journal, rules: &[Rule]) -> Result<()> {
        self.up(journal, rules, &[]).map(drop)
    }

    /// Takes rules away and adds others under traffic, at once where the kernel can, after [`Carrier::up`].
    fn change(&self, add: &[Rule], remove: &[Rule]) -> Result<()>;

    /// What each of `rules` has carried, in their order; read from the kernel.
    fn counters(&self, rules: &[Rule]) -> Result<Vec<Counters>>;

    /// Why rules are not carried out, in a line; `None` when they are, as far as can be seen.
    fn trouble(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// What it met that is not about one rule, since it was set up: names and counts.
    fn events(&self) -> Result<Vec<(&'static str, u64)>> {
        Ok(Vec::new())
    }
}

/// What one rule has carried since it was added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets from clients that were redirected.
    pub packets: u64,
    /// Their bytes, from the network header on.
    pub bytes: u64,
    /// When the last one passed, in nanoseconds of `CLOCK_MONOTONIC`; `None` when there was none, or it is not known.
    pub last_used_ns: Option<u64>,
    /// Packets of the rule that were dropped, by reason; the reasons are the carrier's.
    pub drops: Vec<(&'static str, u64)>,
}
