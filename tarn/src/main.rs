//! tarn keeps the network latency of a Linux host still, on stock kernels.
//!
//! This is the only place that lists the stages. Their order, in which a packet meets them, is the order everywhere.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use std::process::ExitCode;

use tarn_frame::{Stage, Tool};
#[cfg(feature = "lab")]
use tarn_lab::{Lab, Proof};
use tarn_top::Top;

#[cfg(test)]
mod call_tests;
#[cfg(all(test, feature = "lab"))]
mod events_tests;
#[cfg(all(test, feature = "lab"))]
mod host_tests;
#[cfg(test)]
mod init_tests;
#[cfg(test)]
mod layers_tests;
#[cfg(test)]
mod monitoring_tests;
#[cfg(all(test, feature = "lab"))]
mod page_tests;
#[cfg(all(test, feature = "lab"))]
mod real_tests;
#[cfg(all(test, feature = "lab"))]
mod subsets_tests;
#[cfg(feature = "lab")]
mod together;
#[cfg(all(test, feature = "lab"))]
mod together_tests;
#[cfg(all(test, feature = "lab"))]
mod top_tests;

static STAGES: &[&dyn Stage] = &[
    &tarn_poll::Poll,
    &tarn_redirect::Redirect,
    &tarn_reassembly::Reassembly,
    &tarn_classes::Classes,
    &tarn_pace::Pace,
    &tarn_paths::Paths,
];

static TOP: Top = Top(STAGES);

#[cfg(feature = "lab")]
static PROOFS: &[&Proof] = &[
    &tarn_poll::PROOF,
    &tarn_redirect::PROOF,
    &tarn_reassembly::PROOF,
    &tarn_classes::PROOF,
    &tarn_pace::PROOF,
    &tarn_paths::PROOF,
    &together::PROOF,
];

fn main() -> ExitCode {
    tarn_program::main(STAGES, tools())
}

#[cfg(feature = "lab")]
fn tools() -> &'static [&'static dyn Tool] {
    static LAB: Lab = Lab(PROOFS);
    static TOOLS: &[&dyn Tool] = &[&TOP, &LAB];
    LAB.be_guest_if_booted();
    TOOLS
}

#[cfg(not(feature = "lab"))]
fn tools() -> &'static [&'static dyn Tool] {
    static TOOLS: &[&dyn Tool] = &[&TOP];
    TOOLS
}
