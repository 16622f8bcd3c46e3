//! Kernel parameters below `/proc/sys`: read, set, and put back.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::undone::Undone;

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

/// Such a value, as [`read`] returns it.
pub fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
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

/// Sets a parameter, in one call and without emptying the file first: a process that is killed leaves the old value or the new one.
///
/// # Errors
/// There is no such parameter, or it refuses the value.
pub fn write(path: &Path, value: &str) -> Result<()> {
    let text = format!("{value}\n");
    let written = OpenOptions::new().write(true).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64) // nothing to a sysctl; a plain file may have been longer
    });
    written.with_context(|| format!("cannot set the sysctl {} to {value}", name(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_sysctl_writes_them() {
        assert_eq!(path("net.ipv4.ip_forward"), Path::new("/proc/sys/net/ipv4/ip_forward"));
        let vlan = "net.ipv4.conf.eth0/100.rp_filter";
        assert_eq!(path(vlan), Path::new("/proc/sys/net/ipv4/conf/eth0.100/rp_filter"));
        assert_eq!(name(&path(vlan)), vlan);
    }
}
