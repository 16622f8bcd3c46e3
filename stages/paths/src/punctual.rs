//! Whether the agent itself was late: then what it has sent and read tells how busy this host is, and nothing of uplinks.
//!
//! The kernel could note when packets come. But as soon as one socket asks for that, it does so for every packet of the host. How
//! long a thread had to wait for the processor it counts anyway.

use std::time::Duration;

use tarn_kernel::scheduling::{self, Waiting};

use super::STAGE;
use tarn_base::output::{Priority, log_at};

/// Who wakes up so much later than was to be, or has waited so long for the processor, is late for the answers that are there by
/// then.
const LATE: Duration = Duration::from_millis(5);

/// How late the agent was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Whether it is for the answers that are there now.
    pub reads: bool,
    /// Since when it may have been for what was sent.
    pub sent_since: Option<Duration>,
}

/// What the agent knows of its own time. Times are since any one moment.
#[derive(Default)]
pub struct Punctuality {
    waiting: Option<Waiting>,
    /// When the last round began.
    began: Duration,
    /// When the next one was to begin at the latest.
    due: Option<Duration>,
}

impl Punctuality {
    /// Of the calling thread, which goes before ordinary ones from now on.
    pub fn of_this_thread() -> Self {
        if let Err(error) = scheduling::go_first() {
            log_at(
                Priority::Notice,
                STAGE,
                format!("{error:#}: on a busy host, fewer probes are measured"),
            );
        }
        Self {
            waiting: Waiting::of_this_thread(),
            ..Self::default()
        }
    }

    /// Notes that a round begins. Returns how late the agent was.
    pub fn begin(&mut self, now: Duration) -> Lateness {
        let waited = self.waiting.as_mut().map(Waiting::since).unwrap_or_default();
        let overslept = self.due.map(|due| now.saturating_sub(due)).unwrap_or_default();
        let since = std::mem::replace(&mut self.began, now);
        // Who waited for the processor may have done so just when a probe was to be sent.
        let is_sending_late = waited > LATE;
        Lateness {
            reads: is_sending_late || overslept > LATE,
            sent_since: is_sending_late.then_some(since),
        }
    }

    /// Notes that a round has ended, and when the next one begins at the latest.
    pub fn end(&mut self, due: Duration) {
        self.due = Some(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// An answer that was read late would look like an uplink that is slow.
    #[test]
    fn who_oversleeps_is_late_once() {
        let mut punctuality = Punctuality::default();
        let late = |reads, sent_since| Lateness { reads, sent_since };
        assert_eq!(punctuality.begin(ms(100)), late(false, None));
        punctuality.end(ms(150));
        assert_eq!(punctuality.begin(ms(154)), late(false, None));
        punctuality.end(ms(200));
        assert_eq!(punctuality.begin(ms(300)), late(true, None));
        punctuality.end(ms(350));
        assert_eq!(punctuality.begin(ms(350)), late(false, None));
    }
}
