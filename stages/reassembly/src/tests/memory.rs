//! Who may hold how much, and who goes first: against a plain list, and under attack.

mod attack;
mod held;
mod remembered;
mod steps;
mod watched;

use self::held::{Address, Entry, Memory, Reason};

const SHARDS: u32 = 64;
/// No entry: `MEMORY_NONE`.
const NONE: u64 = u64::MAX;
