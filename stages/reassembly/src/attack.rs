//! When an attack begins and ends, judged by how many datagrams are evicted: what the log says is about that.

use std::time::Duration;

/// An attack begins when more datagrams than this are evicted within a second.
pub const THRESHOLD: u64 = 100;
/// It ends when none was for this long.
pub const QUIET: Duration = Duration::from_secs(10);
/// No beginning is told sooner than this after another one.
pub const INTERVAL: Duration = Duration::from_secs(60);

/// What is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An attack goes on.
    Begins {
        /// Datagrams evicted within a second.
        rate: u64,
        /// Attacks that have begun and ended since the last event, too soon after it to be told one by one.
        untold: u64,
    },
    /// It is over.
    Ends {
        /// From its beginning to the last datagram evicted.
        lasted: Duration,
        /// Datagrams evicted in it.
        evicted: u64,
    },
}

/// Looks at the number of datagrams evicted, about once a second.
#[derive(Debug, Default)]
pub struct Judge {
    /// When the number was looked at last, and what it was.
    last: Option<(Duration, u64)>,
    attack: Option<Attack>,
    told: Option<Duration>,
    untold: u64,
}

/// One that goes on.
#[derive(Debug)]
struct Attack {
    since: Duration,
    /// When a datagram was last evicted.
    until: Duration,
    evicted: u64,
    is_told: bool,
}

impl Judge {
    /// Judges the number of datagrams evicted until `now`, on any clock that does not run backwards. The first number, and
    /// one that is less than the one before (the module began anew), only begin the counting.
    pub fn see(&mut self, now: Duration, evicted: u64) -> Option<Event> {
        let (before, count) = self.last.replace((now, evicted)).unwrap_or((now, evicted));
        let more = evicted.saturating_sub(count);
        let rate = rate(more, now.saturating_sub(before));
        if self.attack.is_none() && rate > THRESHOLD {
            self.attack = Some(Attack {
                since: before,
                until: now,
                evicted: 0,
                is_told: false,
            });
        }
        let attack = self.attack.as_mut()?;
        attack.evicted = attack.evicted.saturating_add(more);
        if more > 0 {
            attack.until = now;
        }
        let may_tell = self.told.is_none_or(|told| now.saturating_sub(told) >= INTERVAL);
        if !attack.is_told && may_tell && rate > THRESHOLD {
            attack.is_told = true;
            self.told = Some(now);
            let untold = std::mem::take(&mut self.untold);
            return Some(Event::Begins { rate, untold });
        }
        if now.saturating_sub(attack.until) < QUIET {
            return None;
        }
        let attack = self.attack.take()?;
        if !attack.is_told {
            self.untold += 1;
            return None;
        }
        Some(Event::Ends {
            lasted: attack.until.saturating_sub(attack.since),
            evicted: attack.evicted,
        })
    }
}

/// How many that is within a second; a shorter time counts as one.
fn rate(more: u64, elapsed: Duration) -> u64 {
    let elapsed = elapsed.max(Duration::from_secs(1)).as_millis();
    let rate = u128::from(more) * 1000 / elapsed;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of these numbers evicted in each second, with the second that each came at.
    fn events(judge: &mut Judge, seconds: &[u64]) -> Vec<(usize, Event)> {
        let (start, mut total) = judge.last.unwrap_or_default();
        judge.see(start, total);
        let mut events = Vec::new();
        for (second, evicted) in seconds.iter().enumerate() {
            total += evicted;
            let now = start + Duration::from_secs(second as u64 + 1);
            events.extend(judge.see(now, total).map(|event| (second, event)));
        }
        events
    }

    fn begins(rate: u64) -> Event {
        Event::Begins { rate, untold: 0 }
    }

    fn ends(seconds: u64, evicted: u64) -> Event {
        let lasted = Duration::from_secs(seconds);
        Event::Ends { lasted, evicted }
    }

    /// A memory that is now and then full in ordinary operation is no attack.
    #[test]
    fn a_hundred_a_second_is_none() {
        assert_eq!(events(&mut Judge::default(), &[100; 300]), []);
        assert_eq!(events(&mut Judge::default(), &[0; 300]), []);
    }

    #[test]
    fn an_attack_has_one_line_when_it_begins_and_one_when_it_ends() {
        let mut seconds = vec![0, 101];
        seconds.extend([8000; 30]);
        seconds.extend([0; 20]);
        let expected = [(1, begins(101)), (41, ends(31, 240_101))];
        assert_eq!(events(&mut Judge::default(), &seconds), expected);
    }

    /// One that abates for some seconds, or trickles, is the same attack.
    #[test]
    fn a_pause_of_nine_seconds_ends_nothing() {
        let mut seconds = vec![500];
        for _ in 0..5 {
            seconds.extend([0; 9]);
            seconds.push(1);
        }
        seconds.extend([0; 10]);
        assert_eq!(
            events(&mut Judge::default(), &seconds),
            [(0, begins(500)), (60, ends(51, 505))]
        );
    }

    /// Nobody can fill the log by attacking now and then.
    #[test]
    fn attacks_that_come_and_go_have_at_most_a_pair_of_lines_a_minute() {
        let mut judge = Judge::default();
        let mut seconds = Vec::new();
        for _ in 0..50 {
            seconds.push(200);
            seconds.extend([0; 11]);
        }
        let events = events(&mut judge, &seconds);
        assert!(events.len() <= 2 * 10, "10 minutes: {events:?}");
        let untold: u64 = events
            .iter()
            .map(|(_, event)| match event {
                Event::Begins { untold, .. } => 1 + untold,
                Event::Ends { .. } => 0,
            })
            .sum();
        assert_eq!(untold + judge.untold, 50, "each is counted: {events:?}");
    }

    /// One that begins soon after another, and stays, is told once the minute is over.
    #[test]
    fn a_long_attack_soon_after_a_short_one_is_told_late_and_whole() {
        let mut seconds = vec![200];
        seconds.extend([0; 10]);
        seconds.extend([300; 100]);
        seconds.extend([0; 10]);
        let expected = [
            (0, begins(200)),
            (10, ends(1, 200)),
            (60, begins(300)),
            (120, ends(100, 30_000)),
        ];
        assert_eq!(events(&mut Judge::default(), &seconds), expected);
    }

    /// An agent that starts does not take the past for an attack, nor does a busy host make one of a slow one.
    #[test]
    fn only_what_comes_while_it_looks_counts() {
        let mut judge = Judge::default();
        assert_eq!(judge.see(Duration::from_secs(5), 1_000_000), None);
        assert_eq!(judge.see(Duration::from_secs(15), 1_000_900), None, "90 a second");
        assert_eq!(judge.see(Duration::from_secs(16), 50), None, "the module began anew");
        assert_eq!(judge.see(Duration::from_millis(16_100), 250), Some(begins(200)));
    }
}
