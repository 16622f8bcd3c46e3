//! tarn with the stage `pace` alone: what the lab boots for the tests of this stage, whatever the others are like.

use std::process::ExitCode;

use tarn_lab::{Lab, Proof};

static PROOFS: &[&Proof] = &[&tarn_pace::PROOF];

fn main() -> ExitCode {
    Lab(PROOFS).be_guest_if_booted();
    tarn_program::main(&[&tarn_pace::Pace], &[&Lab(PROOFS)])
}
