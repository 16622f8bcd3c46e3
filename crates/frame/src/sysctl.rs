//! Kernel parameters, changed through the journal.

use std::path::Path;

use anyhow::Result;
use tarn_base::output::{Priority, log_at};
use tarn_kernel::sysctl::{name, normal, read, write};

use crate::journal::{Change, Journal};

/// Sets a parameter, the journal first. One that has the value already is not touched; one that somebody else has
/// changed since tarn did is left alone, with one log line.
///
/// # Errors
/// When the parameter does not exist or refuses the value; it is as it was then.
pub fn change(journal: &mut Journal, stage: &str, path: &Path, value: &str) -> Result<()> {
    let (before, after) = (read(path)?, normal(value));
    if before == after {
        return Ok(());
    }
    let shown = path.display().to_string();
    let ours = journal.changes(stage).rev().find_map(|(_, change)| match change {
        Change::Sysctl { path, before, after } if *path == shown => Some((before, after)),
        _ => None,
    });
    // A record whose change was never made (a crash in between) shows the value from before it.
    let foreign = ours.is_some_and(|(first, last)| before != *last && before != *first);
    if foreign {
        let name = name(path);
        log_at(
            Priority::Notice,
            stage,
            format!("{name} was set to {before} by someone else since: left alone"),
        );
        return Ok(());
    }
    journal.record(
        stage,
        Change::Sysctl {
            path: shown,
            before,
            after: after.clone(),
        },
    )?;
    write(path, &after)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::state::StateDirectory;

    fn parameter(value: &str) -> (tempfile::TempDir, PathBuf, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let parameter = directory.path().join("parameter");
        std::fs::write(&parameter, format!("{value}\n")).unwrap();
        let journal = Journal::open(&StateDirectory::at(directory.path(), "state")).unwrap();
        (directory, parameter, journal)
    }

    #[test]
    fn what_was_there_before_comes_back_whatever_its_white_space() {
        let (_directory, path, mut journal) = parameter("4096\t131072\t6291456");
        change(&mut journal, "pace", &path, "1 2 3").unwrap();
        assert_eq!(read(&path).unwrap(), "1 2 3");
        change(&mut journal, "pace", &path, "4 5  6").unwrap();
        journal.undo(None).unwrap();
        assert_eq!(read(&path).unwrap(), "4096 131072 6291456");
    }

    #[test]
    fn a_value_that_is_right_already_is_neither_journalled_nor_touched() {
        let (_directory, path, mut journal) = parameter("1");
        change(&mut journal, "pace", &path, "1").unwrap();
        assert_eq!(journal.changes("pace").count(), 0);
    }

    #[test]
    fn an_administrator_s_value_is_overwritten_neither_by_up_nor_by_down() {
        let (_directory, path, mut journal) = parameter("0");
        change(&mut journal, "pace", &path, "1").unwrap();
        std::fs::write(&path, "7\n").unwrap();
        change(&mut journal, "pace", &path, "1").unwrap();
        assert_eq!(read(&path).unwrap(), "7");
        let undone = journal.undo(None).unwrap();
        assert_eq!((undone.put_back, undone.left_alone.len()), (0, 1));
        assert_eq!(read(&path).unwrap(), "7");
    }

    #[test]
    fn a_parameter_that_is_gone_with_its_interface_stops_nothing() {
        let (_directory, path, mut journal) = parameter("0");
        change(&mut journal, "pace", &path, "1").unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(journal.undo(None).unwrap().gone, 1);
    }
}
