//! Whether traffic over an uplink is answered: an uplink in use that dies is noticed by the silence of its traffic, and need not be
//! asked all the time.
//!
//! What comes in by a device stands for answers. Where it was coming and has stopped, an alarm is raised: the uplink is asked closely
//! until it answers. Conversations end, too, so that most alarms are false. They are limited, for whoever pays for volume.

use std::collections::VecDeque;
use std::time::Duration;

use tarn_kernel::links::Packets;

/// For so long nothing comes in before there is an alarm: less than the 100 ms promised by two looks.
const QUIET: Duration = Duration::from_millis(60);
/// Over which time it is known what usually comes in.
const USUAL: f64 = 1.0;
/// Nothing is quiet that was not heard within the last seconds: less than a packet in five.
const HEARD_LEAST: f64 = 0.2;
/// So many packets ought to have come in during a silence that nobody has sent anything in: a download has ended, perhaps.
const AWAITED: f64 = 2.0;
/// An alarm that nothing confirms is over after so long.
const ALARM_MOST: Duration = Duration::from_secs(1);
/// What still comes in while an uplink is dead, as a part of what usually does: what its own network chats about.
const CHATTER: f64 = 0.3;
/// As many false alarms may follow one another,
const ALARMS: f64 = 10.0;
/// and then one in so many seconds.
const ALARM_EVERY_S: f64 = 10.0;

/// What is known of the traffic of an uplink.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// The looks of the last [`QUIET`], and one before.
    looks: VecDeque<(Duration, Packets)>,
    /// Packets a second that usually come in.
    usual: f64,
    /// Since when nothing has come in, though something was sent; and whether more was.
    unanswered: Option<(Duration, bool)>,
    /// Whether anything has come in since the last alarm.
    is_armed: bool,
    alarm: Option<Duration>,
    /// How many alarms are left.
    left: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            looks: VecDeque::new(),
            usual: 0.0,
            unanswered: None,
            is_armed: false,
            alarm: None,
            left: ALARMS,
        }
    }
}

impl Traffic {
    /// Since when there is an alarm, if there is.
    pub fn alarm(&self) -> Option<Duration> {
        self.alarm
    }

    /// The uplink has answered: it lives, whatever its traffic does.
    pub fn end_alarm(&mut self) {
        self.alarm = None;
    }

    /// Whether anything was heard in the last seconds: then it is worth looking often.
    pub fn is_heard(&self) -> bool {
        self.usual >= HEARD_LEAST
    }

    /// Takes a look at the device's counters, without probes and their answers.
    pub fn look(&mut self, now: Duration, counters: Packets) {
        let last = self.looks.back().copied();
        let Some((before, old)) =
            last.filter(|(_, old)| old.sent <= counters.sent && old.received <= counters.received)
        else {
            // The first look, or another device.
            self.looks = VecDeque::from([(now, counters)]);
            self.unanswered = None;
            return;
        };
        self.looks.push_back((now, counters));
        while self
            .looks
            .get(1)
            .is_some_and(|(at, _)| now.saturating_sub(*at) >= QUIET)
        {
            self.looks.pop_front();
        }
        let elapsed = now.saturating_sub(before).as_secs_f64();
        self.left = (self.left + elapsed / ALARM_EVERY_S).min(ALARMS);
        self.note(now, counters.sent > old.sent, counters.received > old.received);
        match self.is_quiet(now, counters) {
            true if self.alarm.is_none() && self.is_armed && self.left >= 1.0 => {
                self.left -= 1.0;
                self.is_armed = false;
                self.alarm = Some(now);
            }
            true => {}
            false => self.alarm = None,
        }
        if self.alarm.is_none_or(|since| now.saturating_sub(since) >= ALARM_MOST) {
            let rate = (counters.received - old.received) as f64 / elapsed.max(1e-3);
            self.usual += (rate - self.usual) * (1.0 - (-elapsed / USUAL).exp());
        }
    }

    fn note(&mut self, now: Duration, has_sent: bool, has_received: bool) {
        self.is_armed |= has_received;
        self.unanswered = match self.unanswered.filter(|_| !has_received) {
            Some((since, is_more)) => Some((since, is_more || has_sent)),
            None => (has_sent && !has_received).then_some((now, false)),
        };
    }

    /// Whether what usually comes in has stopped, and either much was to come, or more was sent in vain.
    fn is_quiet(&self, now: Duration, counters: Packets) -> bool {
        let Some((first, old)) = self.looks.front() else {
            return false;
        };
        let elapsed = now.saturating_sub(*first);
        let awaited = self.usual * elapsed.as_secs_f64();
        let has_stopped = (counters.received - old.received) as f64 <= CHATTER * awaited;
        let is_in_vain = self
            .unanswered
            .is_some_and(|(since, is_more)| is_more && now.saturating_sub(since) >= QUIET);
        self.is_heard() && elapsed >= QUIET && has_stopped && (awaited >= AWAITED || is_in_vain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(20);

    /// Looks at a device every 20 ms for so long, that sends and receives so many packets a second. Returns when alarms began.
    fn watch(
        traffic: &mut Traffic,
        now: &mut Duration,
        counters: &mut [f64; 2],
        rates: [f64; 2],
        length: Duration,
    ) -> Vec<Duration> {
        let (end, mut alarms) = (*now + length, Vec::new());
        while *now < end {
            *now += LOOK;
            for (count, rate) in counters.iter_mut().zip(rates) {
                *count += rate * LOOK.as_secs_f64();
            }
            let before = traffic.alarm();
            let [sent, received] = counters.map(|count| count as u64);
            traffic.look(*now, Packets { sent, received });
            if before.is_none() {
                alarms.extend(traffic.alarm());
            }
        }
        alarms
    }

    /// A game, a download and pings would go on for seconds by an uplink that is dead.
    #[test]
    fn traffic_that_is_answered_no_more_is_noticed_within_100_ms() {
        for (before, after) in [
            ([60.0, 60.0], [60.0, 0.0]),
            ([60.0, 60.0], [60.0, 10.0]),
            ([500.0, 1000.0], [0.0, 0.0]),
            ([20.0, 20.0], [20.0, 0.0]),
        ] {
            let (mut traffic, mut now, mut counters) = (Traffic::default(), Duration::ZERO, [0.0; 2]);
            let s = Duration::from_secs;
            assert_eq!(
                watch(&mut traffic, &mut now, &mut counters, before, s(5)),
                [],
                "{before:?}"
            );
            let alarms = watch(&mut traffic, &mut now, &mut counters, after, s(1));
            let most = if before[0] < 50.0 { 160 } else { 100 };
            let is_soon = |at: &Duration| *at <= s(5) + Duration::from_millis(most);
            assert!(alarms.len() == 1 && alarms.iter().all(is_soon), "{after:?}: {alarms:?}");
        }
    }

    /// Who only sends, as to a log, is not answered by anybody; and a host that is idle costs nothing.
    #[test]
    fn what_nobody_answers_is_no_alarm() {
        let (mut traffic, mut now, mut counters) = (Traffic::default(), Duration::ZERO, [0.0; 2]);
        for rates in [[100.0, 0.0], [0.0, 0.0], [0.0, 0.5], [0.1, 0.1]] {
            let alarms = watch(&mut traffic, &mut now, &mut counters, rates, Duration::from_secs(60));
            assert_eq!(alarms, [], "{rates:?}");
        }
    }

    /// Traffic in bursts, all day, would cost what asking all the time does.
    #[test]
    fn false_alarms_are_limited() {
        let (mut traffic, mut now, mut counters) = (Traffic::default(), Duration::ZERO, [0.0; 2]);
        let mut alarms = 0;
        for _ in 0..2000 {
            for rates in [[100.0, 100.0], [100.0, 0.0]] {
                let found = watch(&mut traffic, &mut now, &mut counters, rates, Duration::from_millis(500));
                alarms += found.len();
                traffic.end_alarm();
            }
        }
        let most = ALARMS + now.as_secs_f64() / ALARM_EVERY_S;
        assert!((most * 0.9..=most).contains(&(alarms as f64)), "{alarms} of {most}");
    }
}
