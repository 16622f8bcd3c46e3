//! What every part of tarn uses: errors as a user meets them, output, figures, sizes, times, network values, and the reader of `tarn.toml`.

#![cfg_attr(any(test, feature = "testing"), allow(clippy::unwrap_used, clippy::expect_used))]

pub mod config;
pub mod error;
pub mod figures;
pub mod network;
pub mod output;
pub mod runtime;
pub mod size;
pub mod time;
pub mod wrong;
