//! The networks of classes: in the section itself, or in files of their own, a line each.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::written::WrittenClass;
use crate::network::Network;
use tarn_base::config::{ConfigError, Reader};
use tarn_base::network::Prefix;
use tarn_base::wrong::Wrong;

const KEY: &str = "class.networks";
const FILE_KEY: &str = "class.networks_file";
const ONCE: &str = "name each network once";
/// Mistakes of all files that are reported.
const WRONG_MOST: usize = 20;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Where a network is written: compact, since there may be millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// In the section: at which byte.
    Section(u32),
    /// In the file of this class: on which line, from 1.
    File(u16, u32),
}

/// The networks of the classes, as they are read.
struct Found<'a, 'b> {
    reader: &'a mut Reader<'b>,
    written: &'a [WrittenClass],
    places: Vec<(Prefix, Place)>,
    /// Lines of files that are wrong.
    wrong: usize,
}

/// The networks of each class, and how many prefixes all of them are.
pub fn networks(reader: &mut Reader<'_>, written: &[WrittenClass]) -> (Vec<Vec<Network>>, usize) {
    let mut found = Found {
        reader,
        written,
        places: Vec::new(),
        wrong: 0,
    };
    let networks = (0..written.len()).map(|class| found.of_class(class)).collect();
    let count = found.places.len();
    found.check_once();
    (networks, count)
}

impl Found<'_, '_> {
    fn of_class(&mut self, class: usize) -> Vec<Network> {
        let mut networks = Vec::new();
        let Some(written) = self.written.get(class) else {
            return networks;
        };
        for text in &written.networks {
            if let Some(network) = self.reader.parse(KEY, text) {
                networks.push(network);
                self.note(network, Place::Section(text.span().start as u32));
            }
        }
        if let Some(name) = &written.networks_file {
            self.read_file(class, name, &mut networks);
        }
        networks
    }

    fn note(&mut self, network: Network, place: Place) {
        self.places.extend(network.prefixes().map(|prefix| (prefix, place)));
    }

    fn read_file(&mut self, class: usize, name: &Spanned<String>, networks: &mut Vec<Network>) {
        let path = self.path(name);
        if let Err(error) = self.read_lines(class, &path, networks) {
            let message = format!("cannot read {}: {error}", path.display());
            let remedy = "write the path of a file with a network on each line";
            self.reader.error(name.span(), FILE_KEY, message, remedy);
        }
    }

    /// Beside the file of configuration, if it is not a full path.
    fn path(&self, name: &Spanned<String>) -> PathBuf {
        let directory = self.reader.file().parent().unwrap_or(Path::new(""));
        directory.join(name.get_ref())
    }

    fn read_lines(&mut self, class: usize, path: &Path, networks: &mut Vec<Network>) -> io::Result<()> {
        let mut lines = BufReader::new(File::open(path)?);
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            if lines.read_until(b'\n', &mut bytes)? == 0 || self.wrong > WRONG_MOST {
                break;
            }
            // Only what stands before a comment need be text.
            let line = bytes.split(|byte| *byte == b'#').next().unwrap_or_default();
            let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
            let text = String::from_utf8_lossy(line.trim_ascii());
            match text.parse::<Network>() {
                _ if text.is_empty() => {}
                Ok(network) => {
                    networks.push(network);
                    self.note(network, Place::File(class as u16, number));
                }
                Err(mistake) => self.wrong_line(path, number, mistake),
            }
        }
        Ok(())
    }

    /// The last one that is reported says so.
    fn wrong_line(&mut self, path: &Path, line: u32, mut wrong: Wrong) {
        self.wrong += 1;
        match self.wrong.cmp(&WRONG_MOST) {
            Ordering::Greater => return,
            Ordering::Equal => wrong.remedy.push_str(" (more lines may be wrong)"),
            Ordering::Less => {}
        }
        self.reader.note(ConfigError {
            file: path.to_path_buf(),
            line: line as usize,
            column: 1,
            key: String::new(),
            message: wrong.message,
            remedy: wrong.remedy,
        });
    }

    /// Which of two classes a network has would be a matter of chance. One that lies in another may have its own.
    fn check_once(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.sort_unstable();
        let pairs = places.windows(2).filter_map(|pair| match pair {
            [(prefix, earlier), (other, later)] if prefix == other => Some((*prefix, *earlier, *later)),
            _ => None,
        });
        // A list that is there twice is one mistake rather than a million.
        for (prefix, earlier, later) in pairs.take(WRONG_MOST) {
            self.named_twice(prefix, earlier, later);
        }
    }

    fn named_twice(&mut self, prefix: Prefix, earlier: Place, later: Place) {
        let before = match earlier {
            Place::Section(start) => format!("line {}", self.reader.line(start as usize..start as usize)),
            Place::File(class, line) => format!("line {line} of {}", self.file_of(class).display()),
        };
        let message = format!("{prefix} is named on {before} already");
        match later {
            Place::Section(start) => self.reader.error(start as usize..start as usize, KEY, message, ONCE),
            Place::File(class, line) => {
                let path = self.file_of(class);
                self.wrong_line(&path, line, Wrong::new(message, ONCE));
            }
        }
    }

    fn file_of(&self, class: u16) -> PathBuf {
        let written = self.written.get(usize::from(class));
        let name = written.and_then(|class| class.networks_file.as_ref());
        name.map(|name| self.path(name)).unwrap_or_default()
    }
}
