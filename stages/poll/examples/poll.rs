//! tarn with the stage `poll` alone: what the lab boots for the tests of this stage, whatever the others are like.

use std::process::ExitCode;

use tarn_lab::{Lab, Proof};

static PROOFS: &[&Proof] = &[&tarn_poll::PROOF];

fn main() -> ExitCode {
    Lab(PROOFS).be_guest_if_booted();
    tarn_program::main(&[&tarn_poll::Poll], &[&Lab(PROOFS)])
}
