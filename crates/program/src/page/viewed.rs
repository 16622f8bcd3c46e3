//! The figures that clients get: read while one asks for them, and at most once a second, however many there are.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use hyper::body::Bytes;
use tarn_watch::reader::{AGENT_PATIENCE, IDLE_FACTOR, Reader, Request, cpu_time};
use tarn_watch::{Frame, Record, Report};

use super::document::{ROWS_MOST, document};

/// How often figures are read.
const INTERVAL: Duration = Duration::from_secs(1);
/// A stage is looked at as long as it was asked for so lately, and all of them, too.
const INTEREST: Duration = Duration::from_secs(10);

/// A namespace's figures.
pub struct Viewed {
    frame: Frame,
    recent: Mutex<Recent>,
    metrics: Mutex<Option<Metrics>>,
}

/// What `tarn metrics` prints.
struct Metrics {
    text: Bytes,
    read: Instant,
    /// For how long they are not read again.
    fresh: Duration,
}

/// What is known since a client has begun to ask.
#[derive(Default)]
struct Recent {
    reader: Option<Reader>,
    record: Record,
    asked: Option<Instant>,
    /// The stages that were asked for, by their places, and when.
    opened: HashMap<usize, Instant>,
    /// The answers since the last reading, by the stage that was opened.
    answers: HashMap<Option<usize>, Bytes>,
    /// For how long there had been no reading in them.
    silent_s: Option<u64>,
}

impl Viewed {
    /// Nothing has been read yet.
    pub fn of(frame: Frame) -> Self {
        Self {
            frame,
            recent: Mutex::default(),
            metrics: Mutex::default(),
        }
    }

    /// The place of a stage of this name.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.frame.stages.iter().position(|stage| stage.name() == name)
    }

    /// What the page shows, as JSON, with the tables of the stage at this place. The first answer has no figures yet.
    ///
    /// # Errors
    /// There is no thread to read the figures.
    pub fn now(&self, stage: Option<usize>) -> Result<Bytes> {
        let mut recent = lock(&self.recent);
        recent.take(self.frame.clone(), stage)?;
        Ok(recent.answer(stage))
    }

    /// What `tarn metrics` prints, at most a second old, or as old as keeps reading it to a fifth of a CPU.
    ///
    /// # Errors
    /// What is up cannot be found out.
    pub fn metrics(&self) -> Result<Bytes> {
        // Others who ask meanwhile wait, and get the same.
        let mut kept = lock(&self.metrics);
        if let Some(metrics) = kept.as_ref().filter(|kept| kept.read.elapsed() < kept.fresh) {
            return Ok(metrics.text.clone());
        }
        let before = cpu_time();
        let text = Bytes::from(Report::of(&self.frame, AGENT_PATIENCE)?.metrics());
        *kept = Some(Metrics {
            text: text.clone(),
            read: Instant::now(),
            fresh: INTERVAL.max(cpu_time().saturating_sub(before) * IDLE_FACTOR),
        });
        Ok(text)
    }

    /// Whether figures are read.
    #[cfg(test)]
    pub fn is_reading(&self) -> bool {
        lock(&self.recent).reader.is_some()
    }

    /// Stops reading when no client has asked for a while. Does not wait for one that is being answered.
    pub fn stop_idle(&self) {
        if let Ok(mut recent) = self.recent.try_lock()
            && recent.asked.is_some_and(|asked| asked.elapsed() >= INTEREST)
        {
            *recent = Recent::default();
        }
        if let Ok(mut kept) = self.metrics.try_lock() {
            kept.take_if(|kept| kept.read.elapsed() >= INTEREST.max(kept.fresh));
        }
    }
}

impl Recent {
    /// Notes that a client asks, and takes what has been read since.
    fn take(&mut self, frame: Frame, stage: Option<usize>) -> Result<()> {
        let now = Instant::now();
        self.asked = Some(now);
        self.opened.retain(|_, asked| asked.elapsed() < INTEREST);
        self.opened.extend(stage.map(|place| (place, now)));
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(Reader::start(frame, INTERVAL)?),
        };
        let mut opened: Vec<usize> = self.opened.keys().copied().collect();
        opened.sort_unstable();
        reader.ask(Request {
            opened,
            rows: ROWS_MOST,
        });
        loop {
            match reader.take() {
                Ok(Some(sample)) => {
                    self.record.add(sample);
                    self.answers.clear();
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    // Another one is started for the next client.
                    self.reader = None;
                    return Err(error);
                }
            }
        }
    }

    fn answer(&mut self, stage: Option<usize>) -> Bytes {
        let silent_s = self.reader.as_ref().and_then(Reader::silent_s);
        if std::mem::replace(&mut self.silent_s, silent_s) != silent_s {
            self.answers.clear();
        }
        if let Some(answer) = self.answers.get(&stage) {
            return answer.clone();
        }
        let answer = Bytes::from(document(&self.record, stage, silent_s).to_string());
        self.answers.insert(stage, answer.clone());
        answer
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
