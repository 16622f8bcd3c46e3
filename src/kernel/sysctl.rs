//! Kernel parameters below `/proc/sys`: changed through the journal, put back from it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::journal::{Change, Journal, Undone};
use crate::output::{Priority, log_at};

/// The file of a parameter named as sysctl(8) names it: dots between, and `/` for a dot in an interface's name
/// (`net.ipv4.conf.eth0/100.rp_filter`).
pub fn path(name: &str) -> PathBuf {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    Path::new("/proc/sys").join(name.chars().map(swap).collect::<String>())
}

/// A parameter's name as sysctl(8) writes it; the path itself for a file that is not below `/proc/sys`.
pub fn name(path: &Path) -> String {
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    match path.strip_prefix("/proc/sys") {
        Ok(below) => below.display().to_string().chars().map(swap).collect(),
        Err(_) => path.display().to_string(),
    }
}

/// A parameter's value, white space around and between its parts reduced to single spaces.
///
/// # Errors
/// When there is no such parameter, or it cannot be read.
pub fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the sysctl {}", name(path)))?;
    Ok(normal(&text))
}

fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

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

/// Puts a parameter back, unless somebody else has changed it since. Without the parameter (its interface is gone,
/// its module unloaded) there is nothing to put back.
///
/// # Errors
/// When the parameter cannot be read or written.
pub fn restore(path: &Path, before: &str, after: &str) -> Result<Undone> {
    if !path.exists() {
        return Ok(Undone::Gone);
    }
    let now = read(path)?;
    if now == normal(before) {
        return Ok(Undone::Gone);
    }
    if now != normal(after) {
        return Ok(Undone::LeftAlone(format!("it is {now} now, and tarn had set {after}")));
    }
    write(path, before)?;
    Ok(Undone::PutBack)
}

/// Writes in one call, without emptying the file first: a process that is killed leaves the old value or the new one.
fn write(path: &Path, value: &str) -> Result<()> {
    let text = format!("{value}\n");
    let written = OpenOptions::new().write(true).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64) // nothing to a sysctl; a plain file may have been longer
    });
    written.with_context(|| format!("cannot set the sysctl {} to {value}", name(path)))
}

#[cfg(test)]
mod tests {
    use super::super::netns::testing::in_new_namespace;
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
    fn names_read_as_sysctl_writes_them() {
        assert_eq!(path("net.ipv4.ip_forward"), Path::new("/proc/sys/net/ipv4/ip_forward"));
        let vlan = "net.ipv4.conf.eth0/100.rp_filter";
        assert_eq!(path(vlan), Path::new("/proc/sys/net/ipv4/conf/eth0.100/rp_filter"));
        assert_eq!(name(&path(vlan)), vlan);
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

    #[test]
    #[ignore = "needs the lab"]
    fn lab_a_namespace_s_sysctl_is_changed_and_put_back() {
        in_new_namespace(|| {
            let directory = tempfile::tempdir().unwrap();
            let mut journal = Journal::open(&StateDirectory::at(directory.path(), "state")).unwrap();
            // /proc/sys/net shows the namespace of the thread that opens it.
            for (name, value) in [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv4.ip_local_port_range", "2000 3000"),
            ] {
                let path = path(name);
                let before = read(&path).unwrap();
                change(&mut journal, "redirect", &path, value).unwrap();
                assert_eq!(read(&path).unwrap(), value);
                journal.undo(None).unwrap();
                assert_eq!(read(&path).unwrap(), before);
            }
            let refused = change(
                &mut journal,
                "redirect",
                &path("net.ipv4.ip_local_port_range"),
                "rubbish",
            );
            let message = format!("{:#}", refused.unwrap_err());
            assert!(
                message.contains("cannot set the sysctl net.ipv4.ip_local_port_range to rubbish"),
                "{message}"
            );
        });
    }
}
