//! Reads the stages' figures on a thread of its own: an agent that hangs, or a hundred thousand counters, must not keep the keys
//! waiting.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};
use tarn_base::error::paragraph;
use tarn_base::runtime::{monotonic_ns, now};
use tarn_frame::Stage;

use crate::follower::Follower;
use crate::frame::Frame;
use crate::report::{Report, StageView};

use crate::sample::{Detail, Event, Sample};

/// Reading takes at most a fifth of a CPU's time: after a reading, none is begun for so many times as long as it took.
pub const IDLE_FACTOR: u32 = 4;
/// How long the agent may take to answer: it is asked again soon.
pub const AGENT_PATIENCE: Duration = Duration::from_secs(2);
/// Without figures for so much longer than the interval, the screen says so.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the screen wants to know beside the figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The stages that somebody looks at, by their places.
    pub opened: Vec<usize>,
    /// The rows that each of its tables has at most.
    pub rows: usize,
}

/// The thread, as the screen sees it. It ends by itself when this is dropped; nobody waits for it.
pub struct Reader {
    requests: Sender<Request>,
    samples: Receiver<Result<Sample, String>>,
    requested: Request,
    interval: Duration,
    /// When the last sample came.
    since: Instant,
}

impl Reader {
    /// Starts the thread, which reads once an interval, or less often where that takes long.
    ///
    /// # Errors
    /// When the kernel has no thread left.
    pub fn start(frame: Frame, interval: Duration) -> Result<Self> {
        let (requests, requested) = channel();
        let (sink, samples) = sync_channel(1);
        let run = move || read(&frame, interval, &requested, &sink);
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(run);
        thread.context("cannot start a thread")?;
        Ok(Self {
            requests,
            samples,
            requested: Request::default(),
            interval,
            since: Instant::now(),
        })
    }

    /// Asks for stages' tables; a new request is answered as soon as reading would not take too much of a CPU.
    pub fn ask(&mut self, request: Request) {
        if self.requested != request {
            self.requested = request.clone();
            // A thread that has ended is found by `take`.
            let _ = self.requests.send(request);
        }
    }

    /// The next sample, or why there is none; `None` while the thread reads or sleeps.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn take(&mut self) -> Result<Option<Result<Sample, String>>> {
        match self.samples.try_recv() {
            Ok(sample) => {
                self.since = Instant::now();
                Ok(Some(sample))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => bail!("the thread that reads the figures has ended"),
        }
    }

    /// For how many seconds no sample has come, where that is longer than it should be.
    pub fn silent_s(&self) -> Option<u64> {
        let silent = self.since.elapsed();
        (silent > self.interval + PATIENCE).then_some(silent.as_secs())
    }
}

/// Reads until nobody wants the samples any more.
fn read(frame: &Frame, interval: Duration, requests: &Receiver<Request>, samples: &SyncSender<Result<Sample, String>>) {
    let mut request = Request::default();
    let mut follower = Follower::of(&frame.state);
    loop {
        let (began, worked) = (Instant::now(), cpu_time());
        let sample = sample(frame, &request, &mut follower).map_err(|error| paragraph(&error));
        let took = began.elapsed();
        if samples.send(sample).is_err() {
            return;
        }
        let idle = cpu_time().saturating_sub(worked) * IDLE_FACTOR;
        let next = Instant::now() + idle;
        let pause = interval.checked_sub(took).unwrap_or(interval).max(idle);
        match requests.recv_timeout(pause) {
            Ok(first) => {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                // Only the last one counts.
                request = requests.try_iter().last().unwrap_or(first);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What the calling thread has taken of the CPU. Waiting for an agent that hangs takes nothing.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// What every stage says now.
fn sample(frame: &Frame, request: &Request, follower: &mut Follower) -> Result<Sample> {
    let report = Report::of(frame, AGENT_PATIENCE)?;
    let (agent, mut troubles) = (report.agent(), report.troubles());
    let stages = report.into_stages();
    let logged = follower.more().unwrap_or_else(|error| {
        troubles.push(paragraph(&error));
        Vec::new()
    });
    let opened = request
        .opened
        .iter()
        .filter(|place| stages.get(**place).is_some_and(is_up));
    let stage = |place: &usize| Some((*place, *frame.stages.get(*place)?));
    let details = opened.filter_map(stage);
    let details = details
        .map(|(place, stage)| detail(frame, place, stage, request.rows))
        .collect();
    Ok(Sample {
        at_ns: monotonic_ns(),
        at: now(),
        troubles,
        agent,
        details,
        stages,
        logged: logged.into_iter().filter_map(Event::logged).collect(),
    })
}

fn is_up(stage: &StageView) -> bool {
    matches!(stage.figures, Ok(Some(_)))
}

fn detail(frame: &Frame, place: usize, stage: &dyn Stage, rows: usize) -> Detail {
    let tables = stage.detail(&frame.state, rows);
    Detail {
        stage: place,
        tables: tables.map_err(|error| paragraph(&error)),
    }
}

#[cfg(test)]
mod tests;
