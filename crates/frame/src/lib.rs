//! What a stage is, and what tarn keeps about a host: its state, the journal of its changes, the agent that runs.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod agent;
pub mod configuration;
pub mod ending;
pub mod journal;
mod kernel_module;
pub mod modules;
mod stage;
pub mod state;
pub mod survey;
pub mod sysctl;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tidy;
mod tool;
pub mod up;

pub use kernel_module::{Answer, KernelModule, Loaded};
pub use stage::{Configured, Running, Stage, Stages};
pub use tarn_kernel::features::Ability;
pub use tool::Tool;
