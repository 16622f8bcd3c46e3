//! What tarn changed in this namespace, and how to put it back.
//!
//! The journal is a file of JSON lines in the state directory. A change is appended and on the disk **before** it is
//! made, so that whatever dies in between, the file knows of everything that may have been done; undoing something
//! that was never done is harmless. Undoing goes from the newest change to the oldest, and leaves alone what somebody
//! else has changed since. The lines are:
//!
//! ```json
//! {"header":{"format":1,"tarn":"0.1.0","boot":"1b9d6bcd-..."}}
//! {"begin":{}}
//! {"change":{"id":1,"stage":"redirect","change":{"kind":"nft-table","family":"inet","name":"tarn"}}}
//! {"complete":{}}
//! {"undone":{"id":1}}
//! {"superseded":{"id":1,"by":2}}
//! ```
//!
//! `begin` and `complete` surround one `tarn up`: changes after a `begin` that was never completed are those of an
//! `up` that was interrupted, but for those with `"apart":true`, which a verb has made since. A last line that was
//! torn by a crash is dropped: its change was not made yet. What the kernel holds ends with a reboot, and so does the
//! journal of an earlier boot.
//!
//! Open a journal only with the state directory's lock held ([`crate::state::StateDirectory::lock`]), unless it is
//! only read.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use crate::Stages;
use crate::state::StateDirectory;
use tarn_base::output::{Priority, log_at};

mod change;
mod line;
mod lost;
#[cfg(test)]
mod tests;

pub use change::{Change, OwnChange};
pub use tarn_kernel::undone::Undone;

use line::{Entry, Header, Line, Parsed};

/// A journal is written anew without its undone entries when it has this many lines more than twice the live ones.
const DEAD_LINES_LIMIT: usize = 256;

/// More changes than this are not kept: no host has that many, and a loop gone wrong must not fill the memory
/// that `/run` is in.
const CHANGES_LIMIT: usize = 1 << 20;

/// The record of changes, in the order they were made.
#[derive(Debug)]
pub struct Journal {
    /// Those that know how to undo changes of their own.
    stages: Stages,
    state: StateDirectory,
    path: PathBuf,
    boot: String,
    /// Opened for the first line that is written.
    file: Option<File>,
    /// The length in bytes of what is whole in the file; a torn end behind it is cut off by the first write.
    whole: u64,
    lines: usize,
    changes: Vec<Entry>,
    next_id: u64,
    /// The first id that belongs to an `up` that has begun and is not complete.
    unfinished: Option<u64>,
    /// Whether that `up` is this one.
    has_begun: bool,
    /// Whether a line says that changes were undone, or an `up` complete: no changes are none that were lost then.
    is_settled: bool,
}

/// What undoing has come to.
#[derive(Debug, Default)]
pub struct Summary {
    /// Changes that were put back.
    pub put_back: usize,
    /// Changes of which nothing was left to put back.
    pub gone: usize,
    /// What was left alone because somebody else has changed it since, one sentence each.
    pub left_alone: Vec<String>,
}

impl Journal {
    /// Opens the journal of a state directory; without one it is empty. Nothing is written.
    ///
    /// # Errors
    /// When it cannot be read, is damaged other than at its end, or was written by a newer tarn and holds changes
    /// that this one does not know how to undo.
    pub fn open(state: &StateDirectory) -> Result<Self> {
        Self::open_in_boot(&[], state, boot_id()?)
    }

    /// Opens it to undo what any of these stages has changed.
    ///
    /// # Errors
    /// As [`Journal::open`]; and when a stage has made a change of its own that it does not know.
    pub fn of(stages: Stages, state: &StateDirectory) -> Result<Self> {
        Self::open_in_boot(stages, state, boot_id()?)
    }

    fn open_in_boot(stages: Stages, state: &StateDirectory, boot: String) -> Result<Self> {
        let path = state.path().join("journal");
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read.with_context(|| format!("cannot read the journal {}", path.display()))?,
        };
        let mut journal = Self {
            stages,
            state: state.clone(),
            path,
            boot,
            file: None,
            whole: 0,
            lines: 0,
            changes: Vec::new(),
            next_id: 1,
            unfinished: None,
            has_begun: false,
            is_settled: false,
        };
        journal.replay(&bytes)?;
        Ok(journal)
    }

    fn replay(&mut self, bytes: &[u8]) -> Result<()> {
        let mut writer = None;
        let shown = self.path.display().to_string();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (raw, after) = rest.split_at(end + 1);
            let number = self.lines + 1;
            match line::parse(raw) {
                Parsed::Line(Line::Header(header)) if header.boot != self.boot => {
                    let text = "dropped the journal of an earlier boot: its changes are gone";
                    log_at(Priority::Notice, "journal", text);
                    return Ok(());
                }
                Parsed::Line(Line::Header(header)) => writer = Some(header.tarn),
                Parsed::Line(line) => {
                    self.check(&line)
                        .map_err(|error| self.written_by(number, writer.as_deref(), &format!("{error:#}")))?;
                    self.apply(line);
                }
                Parsed::Torn if after.is_empty() => break,
                Parsed::Torn => {
                    return Err(anyhow!(
                        "line {number} of the journal {shown} is damaged: undo by hand what the file lists, or reboot, \
                         which puts back everything tarn does; then remove the file"
                    ));
                }
                Parsed::Unknown(reason) => return Err(self.written_by(number, writer.as_deref(), &reason)),
            }
            self.lines += 1;
            self.whole += raw.len() as u64;
            rest = after;
        }
        if self.is_empty() {
            lost::refuse(&self.state, &self.path, writer.is_some(), self.is_settled)?;
        }
        Ok(())
    }

    fn written_by(&self, line: usize, writer: Option<&str>, reason: &str) -> anyhow::Error {
        let writer = writer.unwrap_or("an unknown version");
        anyhow!(
            "line {line} of the journal {} was written by tarn {writer}, and this is {}: {reason}: \
             use that version for `tarn down`",
            self.path.display(),
            env!("CARGO_PKG_VERSION")
        )
    }

    /// Refuses a change of a stage's own that the stage does not know. Without stages nothing is undone, or asked.
    fn check(&self, line: &Line) -> Result<()> {
        match line {
            Line::Change(Entry { stage, change, .. }) if !self.stages.is_empty() => self.own(stage, change).map(drop),
            _ => Ok(()),
        }
    }

    /// A change that its stage alone knows how to undo; `None` for the others.
    fn own(&self, stage: &str, change: &Change) -> Result<Option<Box<dyn OwnChange>>> {
        let Change::Own(recorded) = change else { return Ok(None) };
        let known = self.stages.iter().find(|known| known.name() == stage);
        let known = known.with_context(|| format!("this tarn has no stage {stage}"))?;
        known.own_change(recorded).map(Some)
    }

    fn undo_one(&self, stage: &str, change: &Change) -> Result<Undone> {
        match self.own(stage, change)? {
            Some(own) => own.undo(),
            None => change.undo(),
        }
    }

    /// What a change of a stage was about, for people.
    pub fn subject(&self, stage: &str, change: &Change) -> String {
        match self.own(stage, change) {
            Ok(Some(own)) => own.subject(),
            _ => change.subject(),
        }
    }

    fn apply(&mut self, line: Line) {
        self.is_settled |= matches!(line, Line::Complete {} | Line::Undone { .. });
        match line {
            Line::Header(_) => {}
            Line::Begin {} => self.unfinished = self.unfinished.or(Some(self.next_id)),
            Line::Complete {} => self.unfinished = None,
            Line::Undone { id } => self.changes.retain(|entry| entry.id != id),
            Line::Superseded { id, by } => self.replace(id, by),
            Line::Change(entry) => {
                self.next_id = self.next_id.max(entry.id.saturating_add(1));
                self.changes.push(entry);
            }
        }
    }

    /// Records a change that is about to be made; it is on the disk when this returns. The number returned is the
    /// change's own.
    ///
    /// # Errors
    /// When it cannot be written: the change must not be made then.
    pub fn record(&mut self, stage: &str, change: Change) -> Result<u64> {
        if self.changes.len() >= CHANGES_LIMIT {
            return Err(anyhow!(
                "the journal holds {CHANGES_LIMIT} changes already: run `tarn down`, then `tarn up`"
            ));
        }
        let id = self.next_id;
        let stage = stage.to_string();
        // What a verb changes stays when the next `up` puts back what an interrupted one has changed.
        let apart = self.unfinished.is_some() && !self.has_begun;
        self.append(Line::Change(Entry {
            id,
            stage,
            change,
            apart,
        }))?;
        Ok(id)
    }

    /// Records a change, unless the very same stands already.
    ///
    /// # Errors
    /// As [`Journal::record`].
    pub fn record_once(&mut self, stage: &str, change: Change) -> Result<()> {
        let stands = self.changes(stage).any(|(_, recorded)| *recorded == change);
        if !stands {
            self.record(stage, change)?;
        }
        Ok(())
    }

    /// The changes of one stage that stand, oldest first.
    pub fn changes(&self, stage: &str) -> impl DoubleEndedIterator<Item = (u64, &Change)> {
        let of_stage = self.changes.iter().filter(move |entry| entry.stage == stage);
        of_stage.map(|entry| (entry.id, &entry.change))
    }

    /// The stages that have changed anything, each once, in the order of their first change.
    pub fn stages(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        self.changes
            .iter()
            .map(|entry| entry.stage.as_str())
            .filter(|stage| seen.insert(*stage))
            .collect()
    }

    /// Whether no change stands.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Forgets a change that its stage has undone itself. Forgetting one that is not there is no error.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn forget(&mut self, id: u64) -> Result<()> {
        if self.changes.iter().any(|entry| entry.id == id) {
            self.append(Line::Undone { id })?;
        }
        Ok(())
    }

    /// Tells that the change `new` has taken the place of `old`, as one program does that of another at the same hook.
    ///
    /// There is one change from now on, under the number of `old` and as old as it: an `up` that fails afterwards does
    /// not undo it, because what stood before the `up` must stand after it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn supersede(&mut self, old: u64, new: u64) -> Result<()> {
        self.append(Line::Superseded { id: old, by: new })
    }

    fn replace(&mut self, old: u64, new: u64) {
        let Some(from) = self.changes.iter().position(|entry| entry.id == new) else {
            return;
        };
        if old < new && self.changes.iter().any(|entry| entry.id == old) {
            let by = self.changes.remove(from);
            let place = self.changes.iter_mut().find(|entry| entry.id == old);
            place.into_iter().for_each(|entry| entry.change = by.change.clone());
        }
    }

    /// Marks the beginning of an `up`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(&mut self) -> Result<()> {
        self.append(Line::Begin {})?;
        self.has_begun = true;
        Ok(())
    }

    /// Marks the end of an `up` that went well.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn complete(&mut self) -> Result<()> {
        self.append(Line::Complete {})?;
        // Without the note, less damage to the journal is noticed later: no reason to fail now.
        let _ = lost::note_completed(&self.path);
        Ok(())
    }

    /// Whether an `up` was begun and neither completed nor undone.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Puts back everything, or everything of one stage, newest first.
    ///
    /// What cannot be put back stays in the journal, and the rest is put back nevertheless.
    ///
    /// # Errors
    /// When something could not be put back; the message lists all of it.
    pub fn undo(&mut self, only: Option<&str>) -> Result<Summary> {
        self.undo_matching(|entry| only.is_none_or(|stage| entry.stage == stage))
    }

    /// Puts back some changes of a stage, newest first.
    ///
    /// # Errors
    /// As [`Journal::undo`].
    pub fn undo_of(&mut self, stage: &str, wanted: impl Fn(&Change) -> bool) -> Result<Summary> {
        self.undo_matching(|entry| entry.stage == stage && wanted(&entry.change))
    }

    /// Puts back what an `up` changed that was begun and not completed, and nothing from before it.
    ///
    /// # Errors
    /// As [`Journal::undo`].
    pub fn undo_unfinished(&mut self) -> Result<Summary> {
        let Some(first) = self.unfinished else {
            return Ok(Summary::default());
        };
        self.settle_replacements(first);
        let summary = self.undo_matching(|entry| entry.id >= first && !entry.apart)?;
        match self.complete() {
            Err(_) if self.is_empty() => self.discard()?,
            completed => completed?,
        }
        Ok(summary)
    }

    /// What stands in the place of something older stays, though the `up` that put it there died before it could say
    /// so by [`Journal::supersede`]: what stood there before is gone for good, and taking its successor away would
    /// leave nothing in its place.
    fn settle_replacements(&mut self, first: u64) {
        let (old, new): (Vec<&Entry>, Vec<&Entry>) =
            self.changes.iter().partition(|entry| entry.id < first || entry.apart);
        let older = |entry: &Entry| {
            let same = |other: &&&Entry| other.stage == entry.stage && other.change.has_place_of(&entry.change);
            old.iter().find(same).map(|other| (other.id, entry.id))
        };
        let replaced: Vec<(u64, u64)> = new
            .into_iter()
            .filter(|entry| entry.change.stands())
            .filter_map(older)
            .collect();
        for (old, new) in replaced {
            // Found out again from what stands, should it not reach the disk.
            let _ = self.append_or_apply(Line::Superseded { id: old, by: new });
        }
    }

    /// Cuts the file, of which nothing stands any more, down to what says so.
    fn discard(&mut self) -> Result<()> {
        (self.whole, self.lines) = lost::cut_down(&self.path).with_context(|| self.unwritten())?;
        (self.file, self.unfinished) = (None, None);
        Ok(())
    }

    fn undo_matching(&mut self, wanted: impl Fn(&Entry) -> bool) -> Result<Summary> {
        let newest_first: Vec<Entry> = self
            .changes
            .iter()
            .rev()
            .filter(|entry| wanted(entry))
            .cloned()
            .collect();
        let mut summary = Summary::default();
        let mut told = HashSet::new();
        let mut failures = Vec::new();
        let mut unwritten = None;
        for Entry { id, stage, change, .. } in newest_first {
            let subject = self.subject(&stage, &change);
            match self.undo_one(&stage, &change) {
                Ok(Undone::PutBack) => summary.put_back += 1,
                Ok(Undone::Gone) => summary.gone += 1,
                Ok(Undone::LeftAlone(reason)) => {
                    // A value that tarn has changed twice is told once.
                    if told.insert(subject.clone()) {
                        let line = format!("left {subject} alone: {reason}");
                        log_at(Priority::Notice, &stage, &line);
                        summary.left_alone.push(line);
                    }
                }
                Err(error) => {
                    failures.push(format!("{subject} ({error:#})"));
                    continue;
                }
            }
            // To undo it twice is harmless: a full disk keeps nothing from being put back.
            if let Err(error) = self.append_or_apply(Line::Undone { id }) {
                unwritten = unwritten.or(Some(error));
            }
        }
        if !failures.is_empty() {
            return Err(anyhow!(
                "cannot put back {}: mend that and run `tarn down` again",
                failures.join(", ")
            ));
        }
        match unwritten {
            Some(_) if self.is_empty() => self.discard()?,
            Some(error) => return Err(error),
            None => {}
        }
        Ok(summary)
    }

    /// Appends a line, on the disk when this returns. A line that cannot be written whole is taken back.
    fn append(&mut self, line: Line) -> Result<()> {
        self.write_line(&line).with_context(|| self.unwritten())?;
        self.apply(line);
        if self.lines > 2 * self.changes.len() + DEAD_LINES_LIMIT {
            self.compact().with_context(|| self.unwritten())?;
        }
        Ok(())
    }

    fn unwritten(&self) -> String {
        format!("cannot write the journal {}", self.path.display())
    }

    /// Appends a line that is true whether it is written or not.
    fn append_or_apply(&mut self, line: Line) -> Result<()> {
        let written = self.append(line.clone());
        if written.is_err() {
            self.apply(line);
        }
        written
    }

    fn write_line(&mut self, line: &Line) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(self.start_writing()?);
        }
        let bytes = line::render(line)?;
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_data()) {
            let _ = file.set_len(self.whole);
            // The next line opens it anew, and cuts it off again should that have failed.
            self.file = None;
            return Err(error.into());
        }
        self.whole += bytes.len() as u64;
        self.lines += 1;
        Ok(())
    }

    /// Opens the file for writing, its torn end cut off, its header in place.
    fn start_writing(&mut self) -> Result<File> {
        self.state.create()?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)?;
        file.set_len(self.whole)?;
        if self.whole == 0 {
            lost::forget_completed(&self.path)?;
            let header = line::render(&Line::Header(self.header()))?;
            file.write_all(&header)?;
            file.sync_data()?;
            sync_directory(self.state.path())?;
            self.whole = header.len() as u64;
            self.lines = 1;
        }
        Ok(file)
    }

    fn header(&self) -> Header {
        Header {
            format: line::FORMAT,
            tarn: env!("CARGO_PKG_VERSION").to_string(),
            boot: self.boot.clone(),
        }
    }

    /// Writes the journal anew with nothing but what stands, beside the old one, and puts it in its place.
    fn compact(&mut self) -> Result<()> {
        let mut lines = vec![Line::Header(self.header())];
        if self.is_empty() {
            // Without a change, it has to say that there is none.
            lines.push(Line::Complete {});
        }
        lines.extend(self.changes.iter().cloned().map(Line::Change));
        if let Some(first) = self.unfinished {
            let after = self.changes.iter().filter(|entry| entry.id >= first).count();
            lines.insert(lines.len() - after, Line::Begin {});
        }
        let mut bytes = Vec::new();
        for line in &lines {
            bytes.extend(line::render(line)?);
        }
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        std::fs::rename(&new, &self.path)?;
        sync_directory(self.state.path())?;
        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
        self.whole = bytes.len() as u64;
        self.lines = lines.len();
        Ok(())
    }
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// The running boot's identity.
fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}: is /proc mounted?"))?;
    Ok(id.trim().to_string())
}
