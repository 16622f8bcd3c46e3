//! Chooses the parameters of the congestion control by the networks that are for it: `cargo run --release --example tune`.
//! `tune judge` prints what the defaults miss there; `tune held-out` what they miss in the other half, which no choice is made by;
//! `tune 20to8-40ms` what all controls come to in the networks that have this in their names.

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("judge") => tarn_pace::tuning::judge_defaults(false),
        Some("held-out") => tarn_pace::tuning::judge_defaults(true),
        Some(part) => tarn_pace::tuning::show(part),
        None => tarn_pace::tuning::search(),
    }
}
