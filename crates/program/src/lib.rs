//! The program: its command line and its agent, for any list of stages.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use tarn_base::error;
use tarn_base::output::{self, Output};
use tarn_frame::{Stages, Tool};
use tarn_kernel::libbpf;

mod agent;
pub mod call;
mod check;
mod cli;
mod events;
mod init;
#[cfg(test)]
mod lab_tests;
mod manual;
mod page;
#[cfg(test)]
mod testing;

/// Is tarn: carries out the command line of this process, with these stages (in packet order) and tools.
pub fn main(stages: Stages, tools: &[&dyn Tool]) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let message = format!("internal error: {panic}: please report it, with the command line");
        output::log_at(output::Priority::Error, "panic", message);
    }));
    libbpf::silence();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match cli::run(stages, tools, &arguments, &mut Output::to_stdout()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let told = match cli::errors_are_json(tools, &arguments) {
                true => error::json(&error).to_string(),
                false => error::render(&error, output::error_width()),
            };
            // A reader that goes away (`2>&1 | head`) is told nothing; the exit code stands.
            let _ = writeln!(std::io::stderr(), "{told}");
            ExitCode::from(error::exit_code(&error))
        }
    }
}
