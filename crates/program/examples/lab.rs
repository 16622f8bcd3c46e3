//! tarn without any stage: what the lab boots for the tests of the crates below the stages.

use std::process::ExitCode;

use tarn_lab::Lab;

fn main() -> ExitCode {
    Lab(&[]).be_guest_if_booted();
    tarn_program::main(&[], &[&Lab(&[])])
}
