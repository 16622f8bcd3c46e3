//! Clients on a host without the module: a file in the state directory, a line for each prefix that is changed, of which the last one
//! holds. A mark ends each change: what comes behind the last mark is half of one, written by a process that was killed, or is writing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};

use super::{find, last_of_each};
use crate::module::{Entry, Origin};
use tarn_base::network::Prefix;
use tarn_frame::state::StateDirectory;
use tarn_kernel::netlink::Refusal;

/// The file in the state directory.
pub const FILE: &str = "classes-clients";
/// The next one, as long as it is written.
pub const NEW_FILE: &str = "classes-clients.new";
/// Lines more than clients, after which the file is written anew.
const SPARE_LINES: usize = 1000;

/// The file.
pub struct ClientFile {
    path: PathBuf,
}

/// The line behind a change.
const MARK: &str = ".";

/// What the file comes to.
#[derive(Default)]
struct Contents {
    /// By prefix, without those that are over.
    entries: Vec<Entry>,
    lines: usize,
    /// Bytes up to the last mark, with it.
    length: u64,
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
        if changes.is_empty() {
            return Ok(());
        }
        let now = now()?;
        let Contents {
            mut entries,
            lines,
            length,
        } = self.read(now)?;
        let before = entries.len();
        entries.extend(changes);
        keep_last(&mut entries);
        if entries.len() > before.max(most as usize) {
            let (errno, words) = (Errno::ENOSPC, None);
            return Err(Refusal { errno, words }.into());
        }
        if lines + changes.len() > 2 * entries.len() + SPARE_LINES {
            return self.write(&entries, now);
        }
        drop(entries);
        self.append(changes, now, length)
    }

    /// The longest prefix around each one that has a class, itself included.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn find_each(&self, prefixes: &[Prefix]) -> Result<Vec<Option<Entry>>> {
        let Contents { entries, .. } = self.read(now()?)?;
        let longest = |prefix: &Prefix| {
            let mut lengths = (0..=prefix.length).rev();
            lengths.find_map(|length| find(&entries, Prefix::of(prefix.address, length)).copied())
        };
        Ok(prefixes.iter().map(longest).collect())
    }

    /// All of them, by prefix.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn all(&self) -> Result<Vec<Entry>> {
        Ok(self.read(now()?)?.entries)
    }

    /// Takes all out.
    ///
    /// # Errors
    /// A full disk.
    pub fn clear(&self) -> Result<()> {
        self.write(&[], Duration::ZERO)
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
        let cannot = || format!("cannot read {}", self.path.display());
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Contents::default()),
            file => file.with_context(cannot)?,
        };
        let mut contents = Contents::default();
        let (mut lines, mut line, mut length, mut damaged) = (BufReader::new(file), String::new(), 0, None);
        loop {
            line.clear();
            length += lines.read_line(&mut line).with_context(cannot)? as u64;
            match line.strip_suffix('\n') {
                None => break,
                Some(MARK) => {
                    if let Some(text) = damaged {
                        let path = self.path.display();
                        bail!("{path} is damaged at {text:?}: run `tarn down`, then `tarn up`");
                    }
                    (contents.lines, contents.length) = (contents.entries.len(), length);
                }
                Some(text) => match read_line(text, now) {
                    Some(entry) => contents.entries.push(entry),
                    None => damaged = damaged.or_else(|| Some(text.to_owned())),
                },
            }
        }
        contents.entries.truncate(contents.lines);
        keep_last(&mut contents.entries);
        Ok(contents)
    }

    /// Behind the last whole change, which ends there. Whole, or not at all.
    fn append(&self, changes: &[Entry], now: Duration, length: u64) -> Result<()> {
        let failed = || format!("cannot write {}", self.path.display());
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(failed)?;
        file.set_len(length).with_context(failed)?;
        let written = write_lines(&file, changes, now);
        if written.is_err() {
            // The memory that it takes may be what others lack.
            file.set_len(length).with_context(failed)?;
        }
        written.with_context(failed)
    }

    fn write(&self, entries: &[Entry], now: Duration) -> Result<()> {
        let new = self.path.with_file_name(NEW_FILE);
        let failed = || format!("cannot write {}", self.path.display());
        let written = File::create(&new)
            .and_then(|file| write_lines(&file, entries, now))
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            // On a full disk, what is there of it is in the way.
            let _ = fs::remove_file(&new);
        }
        written.with_context(failed)
    }
}

/// Of each prefix, what was said last; sorted.
fn keep_last(entries: &mut Vec<Entry>) {
    entries.sort_by_key(|entry| entry.prefix);
    last_of_each(entries);
    entries.retain(|entry| entry.class.is_some());
}

/// Time since the host was started: the file is gone when it is started again.
fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_BOOTTIME)?.into())
}

fn write_lines(file: &File, entries: &[Entry], now: Duration) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    for Entry {
        prefix,
        class,
        origin,
        timeout,
    } in entries
    {
        match (class, timeout) {
            (None, _) => writeln!(file, "{prefix} -")?,
            (Some(class), None) => writeln!(file, "{prefix} {class} {} -", *origin as u8)?,
            (Some(class), Some(left)) => {
                let until = (now + *left).as_millis();
                writeln!(file, "{prefix} {class} {} {until}", *origin as u8)?;
            }
        }
    }
    writeln!(file, "{MARK}")?;
    file.flush()
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
        let within = ["10.1.2.3/32".parse().unwrap()];
        assert_eq!(file.find_each(&within).unwrap(), [Some(entry("10.0.0.0/8", 1, None))]);
        let before = file.generation().unwrap();
        file.change(&[Entry::none("10.0.0.0/8".parse().unwrap())], 10).unwrap();
        assert_ne!(file.generation().unwrap(), before);
        assert_eq!(file.find_each(&within).unwrap(), [None]);
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

    /// Where the limit has been lowered, nobody could be taken out any more.
    #[test]
    fn over_the_limit_there_may_be_fewer_but_not_more() {
        let (_directory, mut file) = file();
        let clients = ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"].map(|prefix| entry(prefix, 0, None));
        file.change(&clients, 3).unwrap();
        file.change(&[Entry::none(clients[0].prefix)], 1).unwrap();
        file.change(&[entry("10.0.0.2/32", 1, None)], 1).unwrap();
        assert!(file.change(&[clients[0]], 1).is_err());
        assert_eq!(file.all().unwrap().len(), 2);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let (_directory, file) = file();
        fs::write(&file.path, "10.0.0.0/8 1 0 -\n10.0.0\n.\n").unwrap();
        assert!(file.all().unwrap_err().to_string().contains("is damaged at \"10.0.0\""));
    }

    /// Who ended an import in the middle would lose all logins.
    #[test]
    fn half_a_change_is_none() {
        let (_directory, mut file) = file();
        let (first, second) = (entry("10.0.0.0/8", 1, None), entry("192.0.2.1/32", 0, None));
        file.change(&[first], 10).unwrap();
        let whole = fs::read_to_string(&file.path).unwrap();
        for half in [
            "192.0.2.7/32 0 0 -\n",
            "192.0.2.7/32 0 0",
            "nobody\n192.0",
            "192.0.2.7/32 0 0 -\n.",
        ] {
            fs::write(&file.path, format!("{whole}{half}")).unwrap();
            assert_eq!(file.all().unwrap(), [first], "{half:?}");
            file.change(&[second], 10).unwrap();
            assert_eq!(file.all().unwrap(), [first, second], "{half:?}");
        }
    }
}
