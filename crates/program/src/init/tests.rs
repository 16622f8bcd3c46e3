//! What somebody gets who asks for a configuration.

use std::fs;
use std::os::unix::fs::symlink;

use tarn_base::error::exit_code;
use tarn_base::output::testing::output;

use super::*;
use crate::testing::{STAGES, frame_at};

/// Runs `tarn init` for a file: its exit code and what it printed.
fn run(path: &Path, profile: Profile, replaces: bool) -> (u8, String) {
    let options = Options {
        profile: Some(profile),
        path: path.to_path_buf(),
        replaces,
    };
    let (mut output, written) = output(None);
    let code = init(&frame_at(path), &options, &mut output).map_or_else(|error| exit_code(&error), |()| 0);
    (code, written.text())
}

#[test]
fn the_file_configures_what_this_host_can_do_and_explains_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("etc/tarn.toml");
    let (code, told) = run(&path, Profile::Server, false);
    assert_eq!(code, 0, "{told}");
    let text = fs::read_to_string(&path).unwrap();
    let configured = configuration::parse(&text, &path, STAGES).unwrap().stages;
    let names: Vec<&str> = configured.iter().map(|stage| stage.name).collect();
    assert_eq!(names, ["first"], "the second stage has no wings here: {text}");
    assert!(
        text.contains("\n# [second]\n") && text.contains("This host cannot run it now: wings: gone."),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(
        told.contains("first   on   Servers have values.")
            && told.contains(&format!("`tarn up --dry-run -c {}`", path.display())),
        "{told}"
    );
    assert_eq!(
        fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "nothing else is left"
    );
}

/// An hour of somebody's work must not go because of a wrong word.
#[test]
fn a_configuration_that_is_there_is_replaced_only_by_force() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tarn.toml");
    let page = "[page]\nlisten = \"127.0.0.1:9780\"\n";
    for theirs in ["[first]\nset = []\n", page, "[frist]\n", "not toml"] {
        fs::write(&path, theirs).unwrap();
        assert_eq!(run(&path, Profile::Desktop, false).0, 2, "{theirs}");
        assert_eq!(fs::read_to_string(&path).unwrap(), theirs);
    }
    assert_eq!(run(&path, Profile::Desktop, true).0, 0);
    // What the package installs, or an earlier `init` without a stage.
    let (code, told) = run(&path, Profile::Server, false);
    assert_eq!(code, 0, "{told}");
    assert_eq!(run(&path, Profile::Server, false).0, 2);
}

#[test]
fn a_file_can_be_looked_at_first() {
    let (code, text) = run(Path::new("-"), Profile::Desktop, false);
    assert_eq!(code, 0);
    assert!(
        configuration::parse(&text, Path::new("-"), STAGES)
            .unwrap()
            .stages
            .is_empty(),
        "{text}"
    );
    assert!(
        text.contains("# Others have none.\n\n# [first]\n# set = []\n"),
        "{text}"
    );
}

/// A link in /tmp may be anybody's: what it leads to is not replaced because it is empty, nor made where it is missing.
#[test]
fn links_are_followed_only_by_force() {
    let directory = tempfile::tempdir().unwrap();
    let (link, target) = (directory.path().join("link"), directory.path().join("target"));
    symlink(&target, &link).unwrap();
    for replaces in [false, true] {
        assert_eq!(run(&link, Profile::Server, replaces).0, 2, "it leads nowhere");
        assert!(link.is_symlink() && !target.exists());
    }
    fs::write(&target, "").unwrap();
    assert_eq!(run(&link, Profile::Server, false).0, 2);
    assert_eq!(fs::read_to_string(&target).unwrap(), "");
    assert_eq!(run(&link, Profile::Server, true).0, 0);
    assert!(link.is_symlink() && fs::read_to_string(&target).unwrap().contains("[first]"));
    symlink("round", directory.path().join("round")).unwrap();
    assert_eq!(run(&directory.path().join("round"), Profile::Server, false).0, 2);
    let below = target.join("tarn.toml");
    assert_eq!(run(&below, Profile::Server, true).0, 2, "a file is no directory");
}

/// `-o /dev/null` must not take the device's place.
#[test]
fn what_is_no_file_is_left_alone() {
    for replaces in [false, true] {
        let (code, _) = run(Path::new("/dev/null"), Profile::Desktop, replaces);
        assert_eq!(code, 2);
    }
    assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(directory.path(), Profile::Desktop, true).0, 2);
}
