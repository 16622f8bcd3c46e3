//! tarn keeps the network latency of a Linux host still, on stock kernels.

// A test that cannot go on has failed.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use std::io::Write;
use std::process::ExitCode;

mod agent;
mod check;
mod cli;
mod config;
mod error;
mod figures;
mod journal;
mod kernel;
mod lab;
mod output;
mod report;
mod runtime;
mod stages;
mod state;
#[cfg(test)]
mod testing;
mod time;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let message = format!("internal error: {panic}: please report it, with the command line");
        output::log_at(output::Priority::Error, "panic", message);
    }));
    kernel::libbpf::silence();
    let mut output = output::Output::to_stdout();
    match cli::run(stages::STAGES, std::env::args_os(), &mut output) {
        Ok(cli::Outcome::Done) => ExitCode::SUCCESS,
        Ok(cli::Outcome::Printed(code)) => ExitCode::from(code),
        Ok(cli::Outcome::Told(error)) => ExitCode::from(error::exit_code(&error)),
        Err(error) => {
            // A reader that goes away (`2>&1 | head`) is told nothing; the exit code stands.
            let told = error::render(&error, output::error_width());
            let _ = writeln!(std::io::stderr(), "{told}");
            ExitCode::from(error::exit_code(&error))
        }
    }
}
