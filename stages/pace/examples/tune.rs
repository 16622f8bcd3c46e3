//! Chooses the parameters of the congestion control by the networks that are for it: `cargo run --release --example tune`.
//! `tune judge` prints what the defaults miss there, and `tune judge window_gain=112` what they miss with another number;
//! `tune held-out` what the defaults miss in the other half, which no choice is made by;
//! `tune share`, `tune share cubic` and `tune share window_gain=112` how flows share other paths, and what is left of a radio link;
//! `tune pairs`, with the same arguments, how two flows share a short buffer, whenever the second begins;
//! `tune 20to8-40ms` what all controls come to in the networks that have this in their names.

use std::process::ExitCode;

use tarn_pace::{sharing, tuning};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("judge") => tuning::judge_candidate(&arguments[1..]),
        Some("share") => sharing::show(&arguments[1..]),
        Some("pairs") => sharing::show_pairs(&arguments[1..]),
        Some("held-out") => {
            tuning::judge_held_out();
            Ok(())
        }
        Some(part) => {
            tuning::show(part);
            Ok(())
        }
        None => {
            tuning::search();
            Ok(())
        }
    };
    if let Err(error) = done {
        eprintln!("tune: {error:#}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
