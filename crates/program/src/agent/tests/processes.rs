//! A function of this harness that other tests run as a process of its own. Run by itself it does nothing.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::{self, up};
use crate::testing::{STAGES, TOLD, frame_at, options};
use tarn_base::error::{exit_code, paragraph};
use tarn_base::output::testing::output;

#[test]
#[ignore = "a verb of other tests"]
fn verb_process() {
    let mut arguments = std::env::args().skip_while(|argument| !argument.ends_with("::verb_process"));
    let (Some(verb), Some(path)) = (arguments.nth(1), arguments.next()) else {
        return;
    };
    let path = PathBuf::from(path);
    let (frame, directory) = (frame_at(&path), path.parent().unwrap());
    let (mut output, written) = output(None);
    let result = match verb.as_str() {
        "up" => up::up(&frame, &options(directory, false), &mut output),
        "foreground" => up::up(&frame, &options(directory, true), &mut output),
        "down" => up::down(&frame, &mut output),
        line => {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            cli::run(STAGES, &[], &words, &mut output).map(drop)
        }
    };
    if let Err(error) = &result {
        eprintln!("tarn {verb}: {}", paragraph(error));
    }
    let told = result.as_ref().map_or_else(paragraph, |()| written.text());
    print!("{TOLD}{told}");
    std::process::exit(result.map_or_else(|error| exit_code(&error), |()| 0).into());
}
