//! HAProxy's runtime API: a line with commands goes in, their answers come out, and the connection ends (management guide, section 9.3).

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tarn_frame::agent::patient::{Patient, connect_within};

/// For an answer, after which HAProxy is taken to stand still.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of commands at a time. HAProxy takes as much as its buffer holds, 16 KiB unless `tune.bufsize` says otherwise.
const ASKED_MOST: usize = 8192;
/// The most characters of an answer that are shown.
const WORDS_MOST: usize = 200;
/// The most bytes of an answer.
const ANSWER_MOST: u64 = 1 << 20;

/// Nobody listens on HAProxy's socket.
#[derive(Debug, thiserror::Error)]
#[error("HAProxy does not listen on {socket}: is it started, with \"stats socket {socket} level admin\"?", socket = .0.display())]
pub struct Away(PathBuf);

/// The socket, with `level admin`.
#[derive(Debug, Clone)]
pub struct Runtime {
    socket: PathBuf,
}

/// What HAProxy counted for a class since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Requests.
    pub requests: u64,
    /// Those of them that were answered within the deadline.
    pub in_time: u64,
    /// And those that were answered later.
    pub late: u64,
}

impl Runtime {
    /// HAProxy at this socket; nothing is connected yet.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// The answer to a line of commands, which `;` separates.
    ///
    /// # Errors
    /// No HAProxy there, no rights, no answer within two seconds.
    pub fn ask(&self, commands: &str) -> Result<String> {
        let name = self.socket.display();
        let stream = connect_within(&self.socket, PATIENCE).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow::Error::new(Away(self.socket.clone())),
            _ => anyhow::Error::new(error).context(format!("HAProxy does not answer on {name}")),
        })?;
        let mut patient = Patient::with(&stream, PATIENCE);
        let asked = patient.write_all(format!("{commands}\n").as_bytes());
        asked.with_context(|| format!("HAProxy takes no commands on {name}"))?;
        let mut answer = String::new();
        let heard = patient.take(ANSWER_MOST).read_to_string(&mut answer);
        heard.with_context(|| format!("HAProxy does not answer on {name}"))?;
        if answer.contains("Permission denied") {
            bail!("HAProxy refuses commands: write \"level admin\" behind \"stats socket {name}\"");
        }
        Ok(answer)
    }

    /// What is counted in the stick table of this name, for so many classes; the classes' numbers are its keys.
    ///
    /// # Errors
    /// Those of [`Self::ask`]; no such table, or another one than the snippet's.
    pub fn counted(&self, table: &str, classes: usize) -> Result<Vec<Counted>> {
        let answer = self.ask(&format!("show table {table}"))?;
        if !answer.starts_with("# table") {
            bail!(
                "HAProxy has no table {table}: add what `tarn classes haproxy` prints to its configuration, and reload it"
            );
        }
        let mut counted = vec![Counted::default(); classes];
        for line in answer.lines().filter(|line| line.contains("key=")) {
            let class = field(line, "key")? as usize;
            if let Some(counted) = counted.get_mut(class) {
                *counted = Counted {
                    requests: field(line, "http_req_cnt")?,
                    in_time: field(line, "gpc0")?,
                    late: field(line, "gpc1")?,
                };
            }
        }
        Ok(counted)
    }

    /// Changes entries of a map: `add`, `set` or `del`, the key, the value.
    ///
    /// # Errors
    /// Those of [`Self::ask`]; no such map or entry.
    pub fn change(&self, map: &Path, changes: &[(&str, String, String)]) -> Result<()> {
        let command = |(how, key, value): &(&str, String, String)| format!("{how} map {} {key} {value}", map.display());
        let commands: Vec<String> = changes.iter().map(command).collect();
        for some in parts(&commands, ';') {
            self.carry_out(map, &some)?;
        }
        Ok(())
    }

    /// Gives a map other entries, at once.
    ///
    /// # Errors
    /// Those of [`Self::ask`]; no such map.
    pub fn replace(&self, map: &Path, entries: &[(String, String)]) -> Result<()> {
        let name = map.display();
        let answer = self.ask(&format!("prepare map {name}"))?;
        let version = answer.trim().strip_prefix("New version created: ").map(str::trim);
        let version = version.ok_or_else(|| self.refused(map, &answer))?;
        let lines: Vec<String> = entries.iter().map(|(key, value)| format!("{key} {value}")).collect();
        for some in parts(&lines, '\n') {
            self.carry_out(map, &format!("add map @{version} {name} <<\n{some}\n"))?;
        }
        self.carry_out(map, &format!("commit map @{version} {name}"))
    }

    /// Counts anew, for so many classes.
    ///
    /// # Errors
    /// Those of [`Self::ask`]; no such table.
    pub fn reset(&self, table: &str, classes: usize) -> Result<()> {
        for class in 0..classes {
            let zero = "data.http_req_cnt 0 data.gpc0 0 data.gpc1 0";
            let answer = self.ask(&format!("set table {table} key {class} {zero}"))?;
            if !answer.trim().is_empty() {
                bail!("HAProxy's table {table} is not reset: {}", printable(&answer));
            }
        }
        Ok(())
    }

    /// HAProxy's version, as in `3.0.11-1+deb13u1`.
    ///
    /// # Errors
    /// Those of [`Self::ask`]; another program.
    pub fn version(&self) -> Result<String> {
        let answer = self.ask("show info")?;
        let version = answer.lines().find_map(|line| line.strip_prefix("Version: "));
        let name = self.socket.display();
        version
            .map(printable)
            .ok_or_else(|| anyhow!("what listens on {name} is not HAProxy"))
    }

    /// A command that answers nothing when it is carried out.
    fn carry_out(&self, map: &Path, commands: &str) -> Result<()> {
        match self.ask(commands)?.trim() {
            "" => Ok(()),
            refusal => Err(self.refused(map, refusal)),
        }
    }

    fn refused(&self, map: &Path, answer: &str) -> anyhow::Error {
        let (map, answer) = (map.display(), printable(answer));
        let remedy = "is what `tarn classes haproxy` prints in its configuration?";
        anyhow!(
            "HAProxy at {} does not change the map {map}: {answer}; {remedy}",
            self.socket.display()
        )
    }
}

/// Joined to parts that HAProxy takes at a time.
fn parts(lines: &[String], separator: char) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for line in lines {
        match parts.last_mut() {
            Some(part) if part.len() + line.len() < ASKED_MOST => {
                part.push(separator);
                part.push_str(line);
            }
            _ => parts.push(line.clone()),
        }
    }
    parts
}

/// The beginning of an answer, as a line of a log can have it in it.
fn printable(answer: &str) -> String {
    let line = answer.trim().lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(WORDS_MOST).collect()
}

/// A number of a line of `key=value` pairs.
fn field(line: &str, name: &str) -> Result<u64> {
    let mut pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value);
    let value = value.and_then(|value| value.parse().ok());
    value.ok_or_else(|| anyhow!("HAProxy's table does not count {name}: write it as `tarn classes haproxy` prints it"))
}
