//! What a user would lose if the programs or the agent did not work in a kernel.

mod life;
mod sketch;
mod verified;
