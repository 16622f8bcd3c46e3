//! The rules in force, in the state directory: those of the configuration and those that were added since.
//!
//! `rules.jsonl` is a log. Its first line holds the limit, each other one adds a rule or removes one:
//!
//! ```json
//! {"limit":65536}
//! {"add":{"id":0,"protocol":"udp","from":"192.168.64.2:8080","to":"10.0.1.2:8083","origin":"config"}}
//! {"remove":0}
//! ```
//!
//! A line is on the disk before the kernel changes, so that what the kernel carries out is always known; a last line
//! that a crash tore is dropped. `up` writes the file anew.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::overlap::{self, Conflict, Kind};
use super::rule::{Match, Origin, Rule};
use tarn_base::error::Usage;
use tarn_base::output::{Priority, log_at};

/// The file's name in the state directory.
pub const FILE: &str = "rules.jsonl";

/// The default of `max_rules`.
pub const LIMIT_DEFAULT: u32 = 65_536;

/// The most that `max_rules` may be.
pub const LIMIT_MAX: u32 = 4_194_304;

/// The longest line, in bytes: a rule with the longest note, every character of it escaped.
const LINE_MAX: u64 = 4096;

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    Limit(u32),
    Add(Rule),
    Remove(u32),
}

/// The rules by id. Ids are slots: small numbers that stay with a rule and are given again when it is gone.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    slots: Vec<Option<Rule>>,
    count: usize,
    limit: u32,
    /// The length in bytes of what is whole in the file.
    whole: u64,
}

/// What a configuration makes of the rules in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// All rules from now on, by id.
    pub rules: Vec<Rule>,
    /// Those that are new.
    pub added: Vec<Rule>,
    /// Those that are no more.
    pub removed: Vec<Rule>,
}

impl Store {
    /// Reads the rules of a state directory; without the file there are none. Nothing is written.
    ///
    /// # Errors
    /// A file that cannot be read or is damaged before its last line.
    pub fn open(directory: &Path) -> Result<Self> {
        let mut store = Self::empty(directory.join(FILE), LIMIT_DEFAULT);
        match File::open(&store.path) {
            Ok(file) => store.replay(BufReader::with_capacity(1 << 20, file))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", store.path.display())),
        }
        Ok(store)
    }

    fn empty(path: PathBuf, limit: u32) -> Self {
        Store {
            path,
            slots: Vec::new(),
            count: 0,
            limit,
            whole: 0,
        }
    }

    fn replay(&mut self, mut file: impl BufRead) -> Result<()> {
        let shown = self.path.display().to_string();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = file.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
            if read.with_context(|| format!("cannot read {shown}"))? == 0 {
                break;
            }
            match serde_json::from_slice(&line) {
                Ok(parsed) if line.ends_with(b"\n") => self.apply(parsed),
                _ if file.fill_buf().is_ok_and(<[u8]>::is_empty) => {
                    log_at(
                        Priority::Notice,
                        "redirect",
                        format!("dropped the torn last line of {shown}"),
                    );
                    break;
                }
                _ => bail!("line {number} of {shown} is damaged: 'tarn down' and 'tarn up' begin it anew"),
            }
            self.whole += line.len() as u64;
        }
        Ok(())
    }

    fn apply(&mut self, line: Line) {
        match line {
            Line::Limit(limit) => self.limit = limit.min(LIMIT_MAX),
            Line::Add(rule) => drop(self.put(rule)),
            Line::Remove(id) => drop(self.take(id)),
        }
    }

    fn put(&mut self, rule: Rule) -> Option<Rule> {
        let slot = rule.id as usize;
        if rule.id >= LIMIT_MAX {
            return None;
        }
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        let before = self.slots[slot].replace(rule);
        self.count += usize::from(before.is_none());
        before
    }

    fn take(&mut self, id: u32) -> Option<Rule> {
        let taken = self.slots.get_mut(id as usize).and_then(Option::take);
        self.count -= usize::from(taken.is_some());
        taken
    }

    /// Every rule, by id.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.slots.iter().flatten()
    }

    /// The most rules there may be.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The rule with this id.
    pub fn get(&self, id: u32) -> Option<&Rule> {
        self.slots.get(id as usize)?.as_ref()
    }

    /// Adds rules: all of them, or none. Returns them with their ids.
    ///
    /// With `replace`, a rule for the same packets as one that is there takes its place and its id. Returned are then the
    /// new rules, and those that they take the places of; rules that are there already are among neither.
    ///
    /// # Errors
    /// [`Usage`] when they cannot stand together with those that are there, or are too many; a full disk.
    pub fn add(&mut self, mut rules: Vec<Rule>, replace: bool) -> Result<(Vec<Rule>, Vec<Rule>)> {
        let present = by_match(self.rules().filter(|_| replace));
        let is_there = |rule: &Rule| {
            present
                .get(&rule.matched())
                .is_some_and(|other| other.same_effect(rule))
        };
        rules.retain(|rule| !is_there(rule));
        let places: Vec<Option<u32>> = rules.iter().map(|rule| id_at(&present, rule)).collect();
        let replaced: HashSet<u32> = places.iter().flatten().copied().collect();
        self.room_for(rules.len() - replaced.len())?;
        self.fit_in(&rules, &replaced)?;
        let mut free = self.free_ids();
        for (rule, place) in rules.iter_mut().zip(places) {
            rule.id = place
                .or_else(|| free.next())
                .context("there is no number left for a rule")?;
        }
        drop(free);
        let before = replaced.iter().filter_map(|id| self.get(*id)).cloned().collect();
        self.put_all(&rules)?;
        Ok((rules, before))
    }

    /// Takes back what [`Store::add`] did.
    ///
    /// # Errors
    /// A full disk.
    pub fn take_back(&mut self, added: &[Rule], replaced: &[Rule]) -> Result<()> {
        let gone = added.iter().map(|rule| Line::Remove(rule.id));
        self.append(gone.chain(replaced.iter().cloned().map(Line::Add)))?;
        added.iter().for_each(|rule| drop(self.take(rule.id)));
        replaced.iter().for_each(|rule| drop(self.put(rule.clone())));
        Ok(())
    }

    fn put_all(&mut self, rules: &[Rule]) -> Result<()> {
        self.append(rules.iter().cloned().map(Line::Add))?;
        rules.iter().for_each(|rule| drop(self.put(rule.clone())));
        Ok(())
    }

    /// Removes rules by their ids and returns them: all of them, or none.
    ///
    /// # Errors
    /// [`Usage`] for an id that no rule has; a full disk.
    pub fn remove(&mut self, ids: &[u32]) -> Result<Vec<Rule>> {
        if let Some(id) = ids.iter().find(|id| self.get(**id).is_none()) {
            let text = format!("there is no rule {id}: 'tarn redirect list' shows those there are");
            return Err(Usage(text).into());
        }
        self.append(ids.iter().copied().map(Line::Remove))?;
        Ok(ids.iter().filter_map(|id| self.take(*id)).collect())
    }

    /// What `configured` and `limit` make of the rules: those of the configuration before go unless they are the same
    /// ones, those that were added by command stay. A rule that stays keeps its id. Nothing is changed.
    ///
    /// # Errors
    /// [`Usage`] when a rule that was added by command cannot stand together with the configuration's, or they are
    /// too many.
    pub fn reconciled(&self, configured: Vec<Rule>, limit: u32) -> Result<Reconciled> {
        let mut next = Self::empty(self.path.clone(), limit);
        let mut unknown = Vec::new();
        let present = by_match(self.rules().filter(|rule| rule.id < limit));
        for rule in configured {
            match present.get(&rule.matched()) {
                Some(other) if other.same_effect(&rule) && next.get(other.id).is_none() => {
                    drop(next.put(Rule { id: other.id, ..rule }));
                }
                _ => unknown.push(rule),
            }
        }
        for rule in self.rules().filter(|rule| rule.origin == Origin::Command) {
            match next.get(rule.id) {
                Some(_) => {}
                None if rule.id < limit => drop(next.put(rule.clone())),
                None => unknown.push(rule.clone()),
            }
        }
        next.room_for(unknown.len())?;
        let stays = |rule: &Rule| next.get(rule.id).is_some_and(|other| other.same_effect(rule));
        let removed: Vec<Rule> = self.rules().filter(|rule| !stays(rule)).cloned().collect();
        let ids = next.ids_for(&unknown, &removed);
        let added: Vec<Rule> = unknown
            .into_iter()
            .zip(ids)
            .map(|(rule, id)| Rule { id, ..rule })
            .collect();
        added.iter().for_each(|rule| drop(next.put(rule.clone())));
        let rules: Vec<Rule> = next.slots.into_iter().flatten().collect();
        refuse(&rules, rules.len(), &overlap::conflicts(&rules))?;
        Ok(Reconciled { rules, added, removed })
    }

    /// Writes the file of a state directory anew with these rules, which have their ids; what it held is not read.
    ///
    /// # Errors
    /// A full disk: the file is as it was then.
    pub fn replace(directory: &Path, rules: &[Rule], limit: u32) -> Result<()> {
        let path = directory.join(FILE);
        let new = path.with_extension("jsonl.new");
        write_anew(&new, rules, limit)
            .and_then(|()| Ok(std::fs::rename(&new, &path)?))
            .and_then(|()| Ok(File::open(directory)?.sync_all()?))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn room_for(&self, more: usize) -> Result<()> {
        let (total, limit) = (self.count + more, self.limit);
        if total > limit as usize {
            let text =
                format!("{total} rules are more than max_rules = {limit} in the section [redirect] allows: raise it");
            return Err(Usage(text).into());
        }
        Ok(())
    }

    /// Whether new rules can stand together with one another and those that are there and stay.
    fn fit_in(&self, rules: &[Rule], replaced: &HashSet<u32>) -> Result<()> {
        const COMPARED_MAX: usize = 16;
        let staying = || self.rules().filter(|rule| !replaced.contains(&rule.id));
        if rules.len() > COMPARED_MAX {
            let all: Vec<Rule> = staying().chain(rules).cloned().collect();
            let known = all.len() - rules.len();
            return refuse(&all, known, &overlap::conflicts(&all));
        }
        for (number, rule) in rules.iter().enumerate() {
            for other in staying() {
                refuse_pair([other, rule], 1)?;
            }
            for other in &rules[..number] {
                refuse_pair([other, rule], 0)?;
            }
        }
        Ok(())
    }

    fn free_ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.limit).filter(|id| self.get(*id).is_none())
    }

    /// Ids for new rules, in their order. A rule that takes another's place takes its id. Of the others, one that is
    /// freed in the same go is given only when there is no other: so a carrier sees a slot change hands as seldom as
    /// possible.
    fn ids_for(&self, rules: &[Rule], freed: &[Rule]) -> Vec<u32> {
        let is_free = |rule: &&Rule| self.get(rule.id).is_none() && rule.id < self.limit;
        let places = by_match(freed.iter().filter(is_free));
        let inherited: Vec<Option<u32>> = rules.iter().map(|rule| id_at(&places, rule)).collect();
        let taken: HashSet<u32> = inherited.iter().flatten().copied().collect();
        let freed: HashSet<u32> = freed.iter().map(|rule| rule.id).collect();
        let free = || self.free_ids().filter(|id| !taken.contains(id));
        let mut others = free()
            .filter(|id| !freed.contains(id))
            .chain(free().filter(|id| freed.contains(id)));
        inherited
            .into_iter()
            .filter_map(|id| id.or_else(|| others.next()))
            .collect()
    }

    /// Appends lines: on the disk when it returns, or not at all.
    fn append(&mut self, lines: impl Iterator<Item = Line>) -> Result<()> {
        let mut bytes = Vec::new();
        if self.whole == 0 {
            write_line(&mut bytes, &Line::Limit(self.limit))?;
        }
        for line in lines {
            write_line(&mut bytes, &line)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&self.path);
        let file = file.with_context(|| format!("cannot open {}", self.path.display()))?;
        let written = file
            .set_len(self.whole)
            .and_then(|()| file.write_all_at(&bytes, self.whole))
            .and_then(|()| file.sync_data());
        if let Err(error) = written {
            // What was written of it does not count: the next line is written over it.
            let _ = file.set_len(self.whole);
            return Err(anyhow!(error).context(format!("cannot write {}", self.path.display())));
        }
        self.whole += bytes.len() as u64;
        Ok(())
    }
}

fn write_line(to: &mut impl Write, line: &Line) -> Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")?;
    Ok(())
}

fn write_anew(path: &Path, rules: &[Rule], limit: u32) -> Result<()> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    write_line(&mut writer, &Line::Limit(limit))?;
    for rule in rules {
        write_line(&mut writer, &Line::Add(rule.clone()))?;
    }
    let file = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(file.sync_all()?)
}

/// Of a rule of the configuration and one added by command, the number of the latter.
fn by_command(rule: &Rule, other: &Rule) -> Option<u32> {
    match (rule.origin, other.origin) {
        (Origin::Config, Origin::Command) => Some(other.id),
        (Origin::Command, Origin::Config) => Some(rule.id),
        _ => None,
    }
}

/// Rules that stand together, by what they match: for the same packets there is one at most.
fn by_match<'a>(rules: impl Iterator<Item = &'a Rule>) -> HashMap<Match, &'a Rule> {
    rules.map(|rule| (rule.matched(), rule)).collect()
}

/// The id of the rule for the same packets.
fn id_at(rules: &HashMap<Match, &Rule>, rule: &Rule) -> Option<u32> {
    rules.get(&rule.matched()).map(|other| other.id)
}

/// The conflict between two rules as an error, the new one complained about where both could be.
fn refuse_pair([other, new]: [&Rule; 2], known: usize) -> Result<()> {
    let found = [(new, other, 1), (other, new, 0)]
        .into_iter()
        .find_map(|(rule, other, index)| overlap::between(rule, other).map(|kind| (kind, index)));
    let Some((kind, rule)) = found else { return Ok(()) };
    let conflict = Conflict {
        kind,
        rule,
        other: 1 - rule,
    };
    refuse(&[other.clone(), new.clone()], known, &[conflict])
}

/// The conflicts as an error, if there are any. The first `known` of the rules are there, with ids that people see.
fn refuse(rules: &[Rule], known: usize, conflicts: &[Conflict]) -> Result<()> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let place = |index: usize| match rules[index].origin {
        Origin::Config => "of the configuration".to_owned(),
        Origin::Command if index < known => format!("rule {}, added by command", rules[index].id),
        Origin::Command => "new".to_owned(),
    };
    let lines = conflicts.iter().map(|conflict| {
        let (message, mut remedy) = conflict.describe(rules, place);
        let (rule, other) = (&rules[conflict.rule], &rules[conflict.other]);
        if conflict.kind == Kind::Ports && conflict.rule >= known && conflict.other < known && rule.same_match(other) {
            remedy = "`tarn redirect add --replace` leads that rule elsewhere".to_owned();
        }
        if let Some(id) = by_command(rule, other).filter(|_| conflict.rule < known) {
            remedy = format!("change the configuration, or `tarn redirect del {id}`");
        }
        format!(
            "{} ({}): {message}; {remedy}",
            rules[conflict.rule],
            place(conflict.rule)
        )
    });
    Err(Usage(lines.collect::<Vec<_>>().join("\n")).into())
}

#[cfg(test)]
mod tests;
