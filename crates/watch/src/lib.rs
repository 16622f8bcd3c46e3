//! What the stages say of themselves, now and over time: what `tarn status`, `tarn top` and the page show.
//!
//! It is made of what every stage describes of itself (`tarn_base::figures`): a stage needs no code here.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod changes;
mod follower;
mod frame;
pub mod history;
pub mod numbers;
pub mod plot;
pub mod reader;
pub mod record;
pub mod report;
pub mod sample;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use follower::Follower;
pub use frame::Frame;
pub use record::Record;
pub use report::{Report, StageView};
pub use sample::Sample;
