//! Functions of this harness that other tests run as processes of their own. Run by themselves they do nothing.

use std::path::PathBuf;

use crate::agent::inherit;
use crate::cli::{self, up};
use crate::testing::{STAGES, frame_at, options};
use tarn_base::error::{exit_code, paragraph};
use tarn_base::output::testing::output;

fn arguments(count: usize) -> Option<Vec<String>> {
    let all: Vec<String> = std::env::args().collect();
    let first = all
        .iter()
        .position(|argument| argument.starts_with("agent::tests::processes::"))?
        + 1;
    (all.len() == first + count).then(|| all[first..].to_vec())
}

#[test]
#[ignore = "the agent of other tests"]
fn agent_process() {
    let Some(arguments) = arguments(3) else { return };
    let path = PathBuf::from(&arguments[0]);
    let frame = frame_at(&path);
    let inheritance = inherit(&path, arguments[1].parse().unwrap(), arguments[2].parse().unwrap()).unwrap();
    let code = inheritance
        .run(frame.stages, &frame.state)
        .map_or_else(|error| exit_code(&error), |()| 0);
    std::process::exit(code.into());
}

#[test]
#[ignore = "a verb of other tests"]
fn verb_process() {
    let Some(arguments) = arguments(2) else { return };
    let path = PathBuf::from(&arguments[1]);
    let (frame, directory) = (frame_at(&path), path.parent().unwrap());
    let (mut output, _) = output(None);
    let result = match arguments[0].as_str() {
        "up" => up::up(&frame, &options(directory, false), &mut output),
        "foreground" => up::up(&frame, &options(directory, true), &mut output),
        "down" => up::down(&frame, &mut output),
        line => cli::run(STAGES, &[], line.split(' ').map(Into::into), &mut output).map(drop),
    };
    if let Err(error) = &result {
        eprintln!("tarn {}: {}", arguments[0], paragraph(error));
    }
    std::process::exit(result.map_or_else(|error| exit_code(&error), |()| 0).into());
}
