//! What carries rules out: the BPF programs or nftables, behind one interface.

use anyhow::Result;

use super::rule::Rule;
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;

/// A way of carrying rules out in the kernel.
///
/// What it sets up stays in the kernel without the process that set it up, and every method can be called by another
/// process than the one before: a carrier keeps nothing between calls that the kernel does not keep.
pub trait Carrier: Send {
    /// The name shown: `xdp`, `nftables`.
    fn name(&self) -> &'static str;

    /// The changes that [`Carrier::up`] would make now, as commands that a person can read; nothing is changed.
    fn plan(&self, rules: &[Rule]) -> Result<Vec<String>>;

    /// Whether the kernel's tables hold `rules`, all that there will be; nothing is changed.
    ///
    /// # Errors
    /// [`Usage`](tarn_base::error::Usage): they are too many, with what to do about it.
    fn room(&self, rules: &[Rule]) -> Result<()>;

    /// Makes the kernel carry out exactly `rules`, which have no conflicts. What an earlier agent set up is adopted:
    /// rules that stay keep their counters, and no packet is lost meanwhile. Changes are journaled before they are made.
    fn up(&self, state: &StateDirectory, journal: &mut Journal, rules: &[Rule]) -> Result<()>;

    /// Takes rules away and adds others under traffic, at once where the kernel can, after [`Carrier::up`].
    fn change(&self, add: &[Rule], remove: &[Rule]) -> Result<()>;

    /// What each of `rules` has carried, in their order; read from the kernel.
    fn counters(&self, rules: &[Rule]) -> Result<Vec<Counters>>;
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
