//! Clients on a host without the module: a file in the state directory, a line for each change, of which the last one holds.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};

use crate::module::{Entry, Origin};
use tarn_base::network::Prefix;
use tarn_frame::state::StateDirectory;
use tarn_kernel::netlink::Refusal;

/// The file in the state directory.
pub const FILE: &str = "classes-clients";
/// Lines more than clients, after which the file is written anew.
const SPARE_LINES: usize = 1000;

/// The file.
pub struct ClientFile {
    path: PathBuf,
}

/// What the file comes to.
struct Contents {
    /// Without those that are over.
    entries: HashMap<Prefix, Entry>,
    lines: usize,
}

impl ClientFile {
    /// That of a state directory; it need not be there.
    pub fn of(state: &StateDirectory) -> Self {
        Self {
            path: state.path().join(FILE),
        }
    }

    /// Carries out a change.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`] when there would be more than `most`; a full disk, a file that is damaged.
    pub fn change(&mut self, changes: &[Entry], most: u32) -> Result<()> {
        let now = now()?;
        let Contents { mut entries, lines } = self.read(now)?;
        for change in changes {
            match change.class {
                Some(_) => entries.insert(change.prefix, *change),
                None => entries.remove(&change.prefix),
            };
        }
        if entries.len() > most as usize {
            let (errno, words) = (Errno::ENOSPC, None);
            return Err(Refusal { errno, words }.into());
        }
        if lines + changes.len() > 2 * entries.len() + SPARE_LINES {
            return self.write(entries.values(), now);
        }
        self.append(&lines_of(changes, now))
    }

    /// The longest prefix around this one that has a class, itself included.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn find(&self, prefix: Prefix) -> Result<Option<Entry>> {
        let Contents { entries, .. } = self.read(now()?)?;
        let mut wider = (0..=prefix.length)
            .rev()
            .map(|length| Prefix::of(prefix.address, length));
        Ok(wider.find_map(|prefix| entries.get(&prefix).copied()))
    }

    /// All of them, by prefix.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn all(&self) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = self.read(now()?)?.entries.into_values().collect();
        entries.sort_unstable_by_key(|entry| entry.prefix);
        Ok(entries)
    }

    /// Takes all out.
    ///
    /// # Errors
    /// A full disk.
    pub fn clear(&self) -> Result<()> {
        self.write([].iter(), Duration::ZERO)
    }

    /// Another number after each change: a file that is written anew is another one, and lines make it longer.
    ///
    /// # Errors
    /// It cannot be seen.
    pub fn generation(&self) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            found => found
                .map(|found| found.ino().rotate_left(32) ^ found.len())
                .with_context(|| format!("cannot see {}", self.path.display())),
        }
    }

    fn read(&self, now: Duration) -> Result<Contents> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", self.path.display()))?,
        };
        let mut contents = Contents {
            entries: HashMap::new(),
            lines: 0,
        };
        for line in text.lines() {
            let entry = read_line(line, now);
            let entry = entry.with_context(|| {
                format!(
                    "{} is damaged at {line:?}: run `tarn down`, then `tarn up`",
                    self.path.display()
                )
            })?;
            match entry.class {
                Some(_) => contents.entries.insert(entry.prefix, entry),
                None => contents.entries.remove(&entry.prefix),
            };
            contents.lines += 1;
        }
        Ok(contents)
    }

    /// Whole, or not at all.
    fn append(&self, lines: &str) -> Result<()> {
        let failed = || format!("cannot write {}", self.path.display());
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(failed)?;
        let length = file.metadata().with_context(failed)?.len();
        let written = file.write_all(lines.as_bytes());
        if written.is_err() {
            // What is there of it would be half a change.
            file.set_len(length).with_context(failed)?;
        }
        written.with_context(failed)
    }

    fn write<'a>(&self, entries: impl Iterator<Item = &'a Entry>, now: Duration) -> Result<()> {
        let new = self.path.with_extension("new");
        let failed = || format!("cannot write {}", self.path.display());
        fs::write(&new, lines_of(entries, now)).with_context(failed)?;
        fs::rename(&new, &self.path).with_context(failed)
    }
}

/// Time since the host was started: the file is gone when it is started again.
fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_BOOTTIME)?.into())
}

fn lines_of<'a>(entries: impl IntoIterator<Item = &'a Entry>, now: Duration) -> String {
    let line = |entry: &Entry| {
        let Some(class) = entry.class else {
            return format!("{} -\n", entry.prefix);
        };
        let until = entry
            .timeout
            .map_or_else(|| "-".to_owned(), |left| (now + left).as_millis().to_string());
        format!("{} {class} {} {until}\n", entry.prefix, entry.origin as u8)
    };
    entries.into_iter().map(line).collect()
}

/// An entry, with the time that it has left; one that is over is one that is taken out.
fn read_line(line: &str, now: Duration) -> Option<Entry> {
    let mut words = line.split(' ');
    let prefix: Prefix = words.next()?.parse().ok()?;
    let class = words.next()?;
    if class == "-" {
        return Some(Entry::none(prefix));
    }
    let class = class.parse().ok()?;
    let origin = Origin::numbered(words.next()?.parse().ok()?);
    let until = words.next()?;
    let timeout = match until {
        "-" => None,
        until => match Duration::from_millis(until.parse().ok()?).checked_sub(now) {
            Some(left) if !left.is_zero() => Some(left),
            _ => return Some(Entry::none(prefix)),
        },
    };
    Some(Entry {
        prefix,
        class: Some(class),
        origin,
        timeout,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, ClientFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        (directory, ClientFile { path })
    }

    fn entry(prefix: &str, class: u16, timeout: Option<u64>) -> Entry {
        Entry {
            prefix: prefix.parse().unwrap(),
            class: Some(class),
            origin: Origin::Command,
            timeout: timeout.map(Duration::from_millis),
        }
    }

    /// Gold logged in an hour ago, and the agent has been started again since.
    #[test]
    fn what_was_added_is_there_until_it_is_over() {
        let (_directory, mut file) = file();
        assert_eq!((file.all().unwrap(), file.generation().unwrap()), (vec![], 0));
        file.change(&[entry("10.0.0.0/8", 1, None), entry("10.1.2.3/32", 0, Some(1))], 10)
            .unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(file.all().unwrap(), [entry("10.0.0.0/8", 1, None)]);
        let found = file.find("10.1.2.3/32".parse().unwrap()).unwrap();
        assert_eq!(found, Some(entry("10.0.0.0/8", 1, None)));
        let before = file.generation().unwrap();
        file.change(&[Entry::none("10.0.0.0/8".parse().unwrap())], 10).unwrap();
        assert_ne!(file.generation().unwrap(), before);
        assert_eq!(file.find("10.1.2.3/32".parse().unwrap()).unwrap(), None);
        file.clear().unwrap();
        assert_eq!(file.all().unwrap(), []);
    }

    /// A login handler that adds the same client for years would fill the memory.
    #[test]
    fn the_file_stays_as_long_as_its_clients() {
        let (_directory, mut file) = file();
        for _ in 0..3 * SPARE_LINES {
            file.change(&[entry("10.1.2.3/32", 0, Some(1000))], 1).unwrap();
        }
        assert!(fs::metadata(&file.path).unwrap().len() < 100 * SPARE_LINES as u64);
        let refused = file.change(&[entry("10.1.2.4/32", 0, None)], 1).unwrap_err();
        assert_eq!(tarn_kernel::netlink::refusal(&refused), Some(Errno::ENOSPC));
        assert_eq!(file.all().unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let (_directory, file) = file();
        fs::write(&file.path, "10.0.0.0/8 1 0 -\n10.0.0").unwrap();
        assert!(file.all().unwrap_err().to_string().contains("is damaged at \"10.0.0\""));
    }
}
