//! What long-running loops share: how they are told to end, and how they wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Tells loops to end, once and for ever. Backed by an eventfd, so that a loop can wait for it together with
/// its other descriptors: the descriptor is readable from the moment [`Stop::fire`] is called.
#[derive(Debug)]
pub struct Stop(EventFd);

impl Stop {
    /// A stop that has not fired.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        let fd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        fd.map(Self).context("cannot make an eventfd")
    }

    /// Tells every loop that waits for this stop to end. Firing twice is the same as firing once.
    pub fn fire(&self) {
        // The only failure is an overflow of the counter, and then the descriptor is readable already.
        let _ = self.0.write(1);
    }

    /// Whether it has fired.
    pub fn fired(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits until it fires, at most `limit`. Returns whether it has fired.
    pub fn wait(&self, limit: Duration) -> bool {
        readable(&[self.as_fd()], limit).first().copied().unwrap_or(false)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors can be read, at most `limit`; says of each whether it can.
///
/// A descriptor in error or at its end counts as readable: reading it is how its owner learns so. An
/// interruption by a signal does not end the wait.
pub fn readable(descriptors: &[BorrowedFd<'_>], limit: Duration) -> Vec<bool> {
    let end = Instant::now().checked_add(limit);
    let mut polled: Vec<PollFd> = descriptors
        .iter()
        .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
        .collect();
    loop {
        let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
        // Rounded up, or the last fraction of a millisecond would be spent spinning.
        let milliseconds = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, timeout) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return vec![false; descriptors.len()],
            Ok(_) => return polled.iter().map(|fd| fd.any().unwrap_or(false)).collect(),
        }
    }
}

/// Signals, such as those that ask a process to end (SIGTERM, SIGINT), received as a descriptor instead of a handler.
///
/// They are blocked in the calling thread and those it starts afterwards: make this before any thread.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks SIGTERM and SIGINT and receives them here from now on.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        Self::of(&[Signal::SIGTERM, Signal::SIGINT])
    }

    /// Blocks these signals and receives them here from now on.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn of(signals: &[Signal]) -> Result<Self> {
        let mask: SigSet = signals.iter().copied().collect();
        mask.thread_block().context("cannot block signals")?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        fd.map(Self).context("cannot receive signals by a descriptor")
    }

    /// The name of a signal that has arrived, if one has.
    pub fn arrived(&self) -> Option<&'static str> {
        let signal = self.0.read_signal().ok().flatten()?;
        let number = i32::try_from(signal.ssi_signo).ok()?;
        Signal::try_from(number).ok().map(Signal::as_str)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A point in time as people and machines read it: `2026-11-20T14:56:12Z`. Seconds since 1970, UTC.
pub fn timestamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from a day count: the year begins in March, so that the leap day is its last (Hinnant,
    // "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The seconds since 1970 of what [`timestamp`] has written; `None` for anything else.
pub fn seconds_of(timestamp: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| timestamp.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if year == 0 || !(1..=12).contains(&month) || timestamp.len() != 20 {
        return None;
    }
    // days_from_civil, of the same source.
    let year = year - u64::from(month <= 2);
    let shifted = (month + 9) % 12;
    let day_of_year = (153 * shifted + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + day_of_year;
    let days = (year / 400 * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// CLOCK_MONOTONIC, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The seconds since 1970, UTC.
pub fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// A duration in its two largest units: `3 d 4 h`, `2 min 5 s`, `12 s`.
pub fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_loop_that_waits_ends_when_it_is_told_to() {
        let stop = Arc::new(Stop::new().unwrap());
        assert!(!stop.fired());
        assert!(!stop.wait(Duration::from_millis(5)));
        let waiting = std::thread::spawn({
            let stop = stop.clone();
            move || stop.wait(Duration::from_secs(60))
        });
        stop.fire();
        stop.fire();
        assert!(waiting.join().unwrap());
        assert!(
            stop.fired() && stop.wait(Duration::MAX),
            "it stays fired for those who come later"
        );
    }

    #[test]
    fn a_wait_is_not_shorter_than_asked_for() {
        let stop = Stop::new().unwrap();
        let start = Instant::now();
        stop.wait(Duration::from_micros(20_300));
        assert!(start.elapsed() >= Duration::from_micros(20_300));
    }

    #[test]
    fn log_lines_bear_the_right_date() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(timestamp(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(timestamp(1_795_186_572), "2026-11-20T14:56:12Z");
        for seconds in [0, 951_782_400, 951_868_799, 1_709_251_199, 4_107_542_400, 1_795_186_572] {
            assert_eq!(seconds_of(&timestamp(seconds)), Some(seconds));
        }
        for wrong in [
            "",
            "2026-11-20",
            "1969-12-31T23:59:59Z",
            "2026-13-20T14:56:12Z",
            "2026-11-20T14:56:12+01:00",
        ] {
            assert_eq!(seconds_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(125), "2 min 5 s");
        assert_eq!(duration(7_325), "2 h 2 min");
        assert_eq!(duration(273_600), "3 d 4 h");
    }
}
