//! What the probes to one target tell of an uplink.

use std::collections::VecDeque;
use std::time::Duration;

use super::distribution::RoundTrips;

/// Probes that may wait for their answer; of more, the oldest is given up.
const OUTSTANDING_MOST: usize = 256;
/// So many probes count whole to begin with.
const WHOLE: u64 = 200;
/// How many of the last probes tell how the uplink is at this moment: one may have had bad luck.
pub const RECENT: usize = 3;
/// Before so many answers have come, nothing is known of an uplink.
pub const KNOWN: u64 = 5;
/// What is expected of an uplink of which nothing is known.
const EXPECTED_UNKNOWN: Duration = Duration::from_millis(500);
/// An answer that comes so much later than the mean is on time, however even the answers have been so far.
const SLACK: Duration = Duration::from_millis(2);
/// The same, as a part of the mean: a quarter.
const SLACK_PART: u32 = 4;
/// The gain of the smoothed round trip time (RFC 6298, section 2: alpha).
const GAIN: f64 = 1.0 / 8.0;
/// What a lost packet costs whoever waits for its content: the least time after which TCP sends it again (RFC 6298, 2.4).
const LOSS_COST_US: f64 = 1e6;

/// A probe that has been sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    sequence: u16,
    at: Duration,
    /// It was so long ago that it counts as lost; an answer that comes now is late.
    lost: bool,
    /// The uplink was known to be dead then.
    in_outage: bool,
    /// Nobody knows when it was really sent.
    is_untimed: bool,
    /// How much it counts: as much as the time for which it stands.
    weight: f64,
}

/// Figures of the recent past. What is older counts less: half as much with every half-life.
#[derive(Debug, Clone, Default)]
struct Memory {
    at: Duration,
    /// The sum of the weights of all round trips, which is their number if none has lost weight yet.
    weight: f64,
    mean: f64,
    /// The sum of weighted squares of the distance to the mean.
    squares: f64,
    /// Weights of the probes that were lost.
    lost: f64,
}

impl Memory {
    fn forget(&mut self, now: Duration, half_life: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        let left = (-passed / half_life.as_secs_f64()).exp2();
        self.weight *= left;
        self.squares *= left;
        self.lost *= left;
        self.at = now;
    }

    /// Welford's update (Knuth, TAOCP volume 2, 4.2.2), of weighted values.
    fn add(&mut self, value: f64, weight: f64) {
        self.weight += weight;
        let distance = value - self.mean;
        self.mean += distance * weight / self.weight;
        self.squares += weight * distance * (value - self.mean);
    }

    fn deviation(&self) -> f64 {
        if self.weight > 1.0 {
            (self.squares / self.weight).max(0.0).sqrt()
        } else {
            0.0
        }
    }

    fn loss(&self) -> f64 {
        let all = self.weight + self.lost;
        if all > 0.0 { self.lost / all } else { 0.0 }
    }
}

/// What is known of an uplink by one target. Times are since any one moment.
#[derive(Debug, Clone, Default)]
pub struct Estimate {
    half_life: Duration,
    /// After which a probe counts as lost.
    timeout: Duration,
    memory: Memory,
    /// The smoothed round trip time, in microseconds.
    pub smoothed_us: Option<f64>,
    /// What came of the last probes that were answered, the newest last.
    recent: VecDeque<Duration>,
    /// The last round trips.
    pub round_trips: RoundTrips,
    outstanding: VecDeque<Sent>,
    next: u16,
    /// Probes sent so far.
    pub asked: u64,
    /// When the last one was.
    last_sent: Option<Duration>,
    /// The time from one probe to the next while nothing speaks for more: those that follow one another sooner count less, or a
    /// moment that was looked at closely would count more than minutes. `None`: each counts the same.
    pub unit: Option<Duration>,
    /// Answers so far.
    pub answers: u64,
    /// When the last one came.
    pub last_answer: Option<Duration>,
    /// When the last one came that was not late: later than the time after which a probe counts as lost.
    pub last_in_time: Option<Duration>,
    /// When the first answer came since the device can send.
    acquainted: Option<Duration>,
    /// When the newest of the answered probes was sent.
    newest_answered: Option<Duration>,
    /// Whether the uplink is known to be dead: probes that are lost then do not count, or an uplink that has healed would be
    /// taken for one that loses packets.
    pub is_outage: bool,
}

impl Estimate {
    /// Nothing is known yet.
    pub fn new(half_life: Duration, timeout: Duration) -> Self {
        Self {
            half_life,
            timeout,
            ..Self::default()
        }
    }

    /// Notes that the device can send, anew or again: the neighbour's address has to be found out first.
    pub fn set_up(&mut self) {
        self.acquainted = None;
    }

    /// Notes a probe that is sent now. Returns the sequence number it has to bear.
    pub fn sent(&mut self, now: Duration) -> u16 {
        self.expire(now);
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        let weight = self.weight_of_a_probe(now);
        self.asked += 1;
        self.last_sent = Some(now);
        if self.outstanding.len() == OUTSTANDING_MOST {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(Sent {
            sequence,
            at: now,
            lost: false,
            in_outage: self.is_outage,
            is_untimed: false,
            weight,
        });
        sequence
    }

    /// The first ones count whole: nothing else is known yet.
    fn weight_of_a_probe(&self, now: Duration) -> f64 {
        let (Some(unit), Some(last)) = (self.unit, self.last_sent.filter(|_| self.asked > WHOLE)) else {
            return 1.0;
        };
        (now.saturating_sub(last).as_secs_f64() / unit.as_secs_f64()).min(1.0)
    }

    /// Whether a probe of this moment or later was answered.
    pub fn has_answered_what_was_sent_since(&self, moment: Duration) -> bool {
        self.newest_answered.is_some_and(|sent| sent >= moment)
    }

    /// Whether anything has come within the last so long.
    pub fn is_heard_within(&self, time: Duration, now: Duration) -> bool {
        self.last_answer.is_some_and(|last| now.saturating_sub(last) < time)
    }

    /// Whether one or two probes were not answered in time, or the last answer was late: too few to judge by.
    pub fn is_doubtful(&self, now: Duration) -> bool {
        let is_late = self.recent.back().is_some_and(|last| *last > self.expected());
        self.is_known() && ((1..RECENT).contains(&self.overdue(now)) || is_late)
    }

    /// Notes that probes since this moment may have been sent later than noted: who sends them had no processor. They still tell
    /// whether the uplink lives.
    pub fn distrust(&mut self, since: Duration) {
        let doubtful = self.outstanding.iter_mut().filter(|sent| sent.at >= since);
        doubtful.for_each(|sent| sent.is_untimed = true);
    }

    /// Notes that the probe of this number was answered, at a time that is not known: the uplink lives.
    pub fn answered_sometime(&mut self, sequence: u16, now: Duration) {
        self.take(sequence, now);
    }

    /// Takes a probe out that has been answered, if it has been waited for. What was sent before the first answer came has waited
    /// for the neighbour's address, a late one was counted when its time was over, and of some nobody knows when they were sent:
    /// none of them is given back.
    fn take(&mut self, sequence: u16, now: Duration) -> Option<Sent> {
        self.expire(now);
        let at = self.outstanding.iter().position(|sent| sent.sequence == sequence)?;
        let sent = self.outstanding.remove(at)?;
        self.newest_answered = self.newest_answered.max(Some(sent.at));
        self.last_answer = Some(now);
        self.last_in_time = if sent.lost { self.last_in_time } else { Some(now) };
        let acquainted = *self.acquainted.get_or_insert(now);
        (!sent.lost && !sent.is_untimed && sent.at >= acquainted).then_some(sent)
    }

    /// Notes the answer to the probe of this number. One that is not waited for (a second answer, or one to somebody else's
    /// probe) is ignored.
    pub fn answered(&mut self, sequence: u16, now: Duration) {
        let Some(sent) = self.take(sequence, now) else { return };
        self.answers += 1;
        let round_trip = now.saturating_sub(sent.at);
        let value = round_trip.as_secs_f64() * 1e6;
        self.memory.forget(now, self.half_life);
        self.memory.add(value, sent.weight);
        self.smoothed_us = Some(
            self.smoothed_us
                .map_or(value, |before| before + GAIN * (value - before)),
        );
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(round_trip);
        self.round_trips.add(round_trip);
    }

    /// Counts the probes whose time is over as lost, but for those that an outage explains.
    fn expire(&mut self, now: Duration) {
        let mut lost = 0.0;
        for sent in &mut self.outstanding {
            if !sent.lost && now.saturating_sub(sent.at) > self.timeout {
                sent.lost = true;
                lost += if sent.in_outage || self.is_outage {
                    0.0
                } else {
                    sent.weight
                };
            }
        }
        if lost > 0.0 {
            self.memory.forget(now, self.half_life);
            self.memory.lost += lost;
        }
        // An answer that takes ten times as long as it may is not waited for any more.
        let is_over = |sent: &Sent| now.saturating_sub(sent.at) > self.timeout * 10;
        while self.outstanding.front().is_some_and(is_over) {
            self.outstanding.pop_front();
        }
    }

    /// Whether enough answers have come to tell anything.
    pub fn is_known(&self) -> bool {
        self.answers >= KNOWN
    }

    /// Whether what was sent last has had as long as an answer may take, and nothing has come meanwhile, not even something late.
    pub fn is_mute(&self, now: Duration) -> bool {
        let heard = self.last_answer.map(|last| now.saturating_sub(last));
        if heard.is_some_and(|ago| ago < self.timeout) {
            return false;
        }
        let is_newer = |sent: &&Sent| self.newest_answered.is_none_or(|newest| sent.at > newest);
        let first = self.outstanding.iter().filter(is_newer).map(|sent| sent.at).min();
        first.is_some_and(|first| now.saturating_sub(first) >= self.timeout)
    }

    /// The round trip time's standard deviation over the memory, in microseconds.
    pub fn deviation_us(&self) -> f64 {
        self.memory.deviation()
    }

    /// The share of probes that was lost, over the memory.
    pub fn loss(&self) -> f64 {
        self.memory.loss()
    }

    /// Within which nearly every answer comes: the mean and four standard deviations, as TCP reckons when it has to
    /// give up waiting (RFC 6298, 2.3). At most the time after which a probe counts as lost.
    pub fn expected(&self) -> Duration {
        if !self.is_known() {
            return EXPECTED_UNKNOWN.min(self.timeout);
        }
        let mean = Duration::from_secs_f64(self.memory.mean / 1e6);
        let deviations = Duration::from_secs_f64(4.0 * self.memory.deviation() / 1e6);
        (mean + deviations.max(SLACK + mean / SLACK_PART)).min(self.timeout)
    }

    /// How calm it is, in microseconds; less is calmer: the time within which nearly every answer comes, and what losses cost.
    pub fn score_us(&self) -> f64 {
        self.memory.mean + 4.0 * self.memory.deviation() + self.memory.loss() * LOSS_COST_US
    }

    /// The standard error of the score, in microseconds, from how few round trips it was taken: that of a mean and of four standard
    /// deviations, whose variances are one and eight times that of the round trips, over their number.
    pub fn doubt_us(&self) -> f64 {
        3.0 * self.memory.deviation() / self.memory.weight.max(1.0).sqrt()
    }

    /// When the next probe becomes overdue that is not yet.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let (expected, newest) = (self.expected(), self.newest_answered);
        let unanswered = self.outstanding.iter().filter(|sent| Some(sent.at) > newest);
        unanswered
            .map(|sent| sent.at + expected)
            .filter(|deadline| *deadline > now)
            .min()
    }

    /// How many probes wait for an answer that were sent after every one that has one.
    pub fn unanswered(&self) -> usize {
        let newest = self.newest_answered;
        self.outstanding.iter().filter(|sent| Some(sent.at) > newest).count()
    }

    /// Probes that should have been answered by now and were not, and were sent after every one that was.
    pub fn overdue(&self, now: Duration) -> usize {
        self.ages_overdue(now).count()
    }

    /// How many answers were due since anything came last, and have not come. While answers come late, but come, it is few:
    /// a queue that fills up spreads them, it does not hold them back.
    pub fn overdue_in_vain(&self, now: Duration) -> usize {
        let expected = self.expected();
        let heard = self.last_answer.map(|last| now.saturating_sub(last));
        let is_since = |age: &Duration| heard.is_none_or(|ago| *age - expected < ago);
        self.ages_overdue(now).filter(is_since).count()
    }

    /// The least round trip time that one of the last [`RECENT`] probes had, or has already while its answer is overdue: that one
    /// takes as long as the last one at least, as far as is known. `None` when there were not so many.
    pub fn present(&self, now: Duration) -> Option<Duration> {
        let last = self.recent.back().copied().unwrap_or_default();
        let overdue = self.ages_overdue(now).map(|age| age.max(last));
        let times = overdue.chain(self.recent.iter().rev().copied());
        let times: Vec<Duration> = times.take(RECENT).collect();
        (times.len() == RECENT).then(|| times.into_iter().min()).flatten()
    }

    /// For how long each probe has been waiting that is overdue, the newest first. One that was sent before a probe that was
    /// answered was lost by itself.
    fn ages_overdue(&self, now: Duration) -> impl Iterator<Item = Duration> {
        let (expected, newest) = (self.expected(), self.newest_answered);
        let unanswered = self.outstanding.iter().rev().filter(move |sent| Some(sent.at) > newest);
        unanswered
            .filter(|sent| !sent.is_untimed)
            .map(move |sent| now.saturating_sub(sent.at))
            .filter(move |age| *age >= expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Duration = Duration::from_secs(60);
    const TIMEOUT: Duration = Duration::from_secs(1);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// An estimate after these round trips, a probe every 100 ms.
    fn after(round_trips: impl IntoIterator<Item = Option<u64>>) -> (Estimate, Duration) {
        let mut estimate = Estimate::new(MEMORY, TIMEOUT);
        let mut now = Duration::ZERO;
        for round_trip in round_trips {
            now += ms(100);
            let sequence = estimate.sent(now);
            if let Some(round_trip) = round_trip {
                estimate.answered(sequence, now + ms(round_trip));
            }
        }
        (estimate, now)
    }

    #[test]
    fn steady_answers_are_their_own_mean() {
        let (estimate, _) = after([Some(30); 200]);
        assert!((estimate.memory.mean - 30_000.0).abs() < 1e-6);
        assert_eq!((estimate.deviation_us(), estimate.loss()), (0.0, 0.0));
        assert_eq!(estimate.smoothed_us, Some(30_000.0));
        assert_eq!(estimate.expected(), ms(30) + ms(2) + Duration::from_micros(7500));
    }

    /// One spike of a second among many steady seconds bars an uplink for minutes.
    #[test]
    fn a_spike_is_remembered() {
        let spike = (0..300).map(|index| Some(if (200..210).contains(&index) { 200 } else { 20 }));
        let (estimate, _) = after(spike);
        let (steady, _) = after([Some(30); 300]);
        assert!(estimate.score_us() > 2.0 * steady.score_us(), "{}", estimate.score_us());
    }

    #[test]
    fn lost_probes_count_as_lost_and_never_as_round_trips() {
        let (mut estimate, now) = after((0..600).map(|index| (index % 20 != 0).then_some(20)));
        estimate.sent(now + ms(5000));
        assert!((0.04..0.06).contains(&estimate.loss()), "{}", estimate.loss());
        assert!(estimate.deviation_us() < 1.0);
    }

    /// Duplicates and forged numbers must not make an uplink look better than it is.
    #[test]
    fn an_answer_counts_once_and_only_if_it_was_asked_for() {
        let (mut estimate, now) = after([Some(90)]);
        assert_eq!(
            estimate.answers, 0,
            "the first one says nothing: it has waited for the neighbour's address"
        );
        let sequence = estimate.sent(now + ms(100));
        estimate.answered(sequence.wrapping_add(7), now + ms(101));
        assert_eq!(estimate.answers, 0);
        estimate.answered(sequence, now + ms(120));
        estimate.answered(sequence, now + ms(130));
        assert_eq!(estimate.answers, 1);
        assert_eq!(estimate.memory.mean, 20_000.0);
    }

    /// A second until the router behind a device that has come back is found would bar the uplink for minutes.
    #[test]
    fn what_has_waited_for_the_neighbour_tells_no_round_trip() {
        let (mut estimate, now) = after([Some(20); 100]);
        let answers = estimate.answers;
        estimate.set_up();
        let waiting = [200, 400, 600].map(|after| estimate.sent(now + ms(after)));
        for sequence in waiting {
            estimate.answered(sequence, now + ms(900));
        }
        assert_eq!((estimate.answers, estimate.deviation_us()), (answers, 0.0));
        let sequence = estimate.sent(now + ms(1000));
        estimate.answered(sequence, now + ms(1020));
        assert_eq!(estimate.answers, answers + 1);
    }

    /// The last second of an outage would be held against an uplink for minutes.
    #[test]
    fn what_was_sent_in_an_outage_is_no_loss_when_it_has_ended() {
        let (mut estimate, now) = after([Some(20); 100]);
        estimate.is_outage = true;
        for after in [100, 200, 300] {
            estimate.sent(now + ms(after));
        }
        let sequence = estimate.sent(now + ms(400));
        estimate.answered(sequence, now + ms(420));
        estimate.is_outage = false;
        estimate.sent(now + ms(2000));
        assert_eq!(estimate.loss(), 0.0);
        estimate.sent(now + ms(4000));
        assert!(estimate.loss() > 0.0, "and one that is sent later is");
    }

    #[test]
    fn an_answer_after_its_time_was_a_loss_already() {
        let mut estimate = Estimate::new(MEMORY, TIMEOUT);
        let sequence = estimate.sent(ms(0));
        estimate.sent(ms(1500));
        assert!(estimate.loss() > 0.0);
        estimate.answered(sequence, ms(1600));
        assert_eq!((estimate.answers, estimate.last_answer), (0, Some(ms(1600))));
    }

    /// Silence is noticed while it lasts, not when the last probe's time is over.
    #[test]
    fn how_it_is_now_is_seen_from_probes_that_are_overdue() {
        let (mut estimate, now) = after([Some(20); 100]);
        assert_eq!(estimate.present(now), Some(ms(20)));
        for after in [50, 60, 70] {
            estimate.sent(now + ms(after));
        }
        assert_eq!(estimate.overdue(now + ms(75)), 0);
        assert_eq!(estimate.overdue(now + ms(110)), 3);
        assert_eq!(estimate.present(now + ms(110)), Some(ms(40)));
    }

    /// An agent that gets the processor late must not take that for a slow uplink, nor for a dead one.
    #[test]
    fn what_was_sent_or_read_at_an_unknown_time_tells_only_that_the_uplink_lives() {
        let (mut estimate, now) = after([Some(20); 100]);
        let (answers, calm) = (estimate.answers, estimate.deviation_us());
        let sequences = [100, 110, 120].map(|after| estimate.sent(now + ms(after)));
        estimate.distrust(now + ms(100));
        assert_eq!((estimate.overdue(now + ms(300)), estimate.unanswered()), (0, 3));
        assert_eq!(estimate.present(now + ms(300)), Some(ms(20)));
        sequences
            .into_iter()
            .for_each(|sequence| estimate.answered(sequence, now + ms(300)));
        assert_eq!((estimate.answers, estimate.deviation_us()), (answers, calm));
        assert_eq!(estimate.last_answer, Some(now + ms(300)));
    }

    /// A path that loses one packet in ten is not silent.
    #[test]
    fn a_probe_lost_before_one_that_was_answered_says_nothing_about_now() {
        let (mut estimate, now) = after([Some(20); 100]);
        for after in [50, 60, 70] {
            estimate.sent(now + ms(after));
        }
        let sequence = estimate.sent(now + ms(80));
        estimate.answered(sequence, now + ms(100));
        assert_eq!(estimate.overdue(now + ms(500)), 0);
        assert_eq!(estimate.present(now + ms(500)), Some(ms(20)));
    }

    #[test]
    fn numbers_go_round_and_memory_is_bounded() {
        let (mut estimate, _) = after([Some(20)]);
        for index in 200..200_000_u64 {
            estimate.sent(ms(index));
        }
        assert!(estimate.outstanding.len() <= OUTSTANDING_MOST);
        let sequence = estimate.sent(ms(200_001));
        estimate.answered(sequence, ms(200_002));
        assert_eq!(estimate.answers, 1);
    }
}
