//! What is done with a device, decided by what its NAPIs did since the last look. It reads nothing and changes nothing.
//!
//! ```text
//!             every poll full for two looks
//!   CALM  ─────────────────────────────────────▶  THREADS, first (SCHED_FIFO)
//!   softirqs                                        │ ▲
//!     ▲                   thread above 80 % of a CPU │ │ at most 55 % for five looks
//!     │                                              ▼ │ or all is shed that may be, and it is time for a trial
//!     └────────── ten calm seconds ───────────────  THREADS, last (nice 0)
//! ```
//!
//! - Below saturation softirqs are the best there is; threads cost others (see docs/poll.md).
//! - Under overload the softirqs of kernels since 6.4 take what programs need for their network calls. A thread can be bounded: it runs before ordinary threads
//!   as long as it leaves them something, and as one of them when not. A demoted thread says little of the load by its CPU time, as it
//!   gets no more than its part; how many of its packets are dropped decides.
//! - What is beyond a fair share is dropped before it costs much, so that the thread leaves near half of the CPU: the share follows the
//!   thread's CPU time. It also frees a NAPI from the softirq, which lets go only when the NAPI has nothing more to poll, or when
//!   it is asked to (handover.rs): until then, a device does not become threaded.
//! - Connections of TCP are never shed: they slow down by themselves, and a download at full speed is no flood. Where they are most of what
//!   exceeds a share, the share is not lowered: others would pay for them.
//!
//! Where nothing can be shed, a device is threaded from the start: during the overload it is too late.

use std::time::Duration;

/// Time between two looks.
pub const TICK: Duration = Duration::from_millis(10);
/// Above this part of a CPU a thread goes last, in thousandths. 50 % would be too early: a busy hour is no storm.
const TOO_MUCH: u32 = 800;
/// What a thread may take while packets are shed, in thousandths.
const AIM: u32 = 550;
/// Below this, packets are shed less, in thousandths.
const LOW: u32 = 500;
/// A poll has a weight of 64 packets: half of that a NAPI finds only when it is behind.
const HALF_FULL: u64 = 32;
/// For so long each poll is full in an overload: two looks, or one that came late because of it. A burst is shorter.
const OVERLOADED_AFTER: Duration = Duration::from_millis(15);
/// Looks in a row after which a thread goes first again.
const QUIET_LOOKS: u32 = 5;
/// After so many looks a thread that sheds all that it may goes first once again: at nice 0 it falls behind, and loses others' packets,
/// also where it could keep up. Twice as many after each trial that fails.
const TRIAL_AFTER: u32 = 5;
/// The most: five seconds.
const TRIAL_MOST: u32 = 500;
/// Without an overload and without a packet shed for so long, a storm is over.
const OVER_AFTER: Duration = Duration::from_secs(10);
/// The least share: who sends fewer than 800 packets a second is hardly ever shed by the source.
const SHARE_LEAST: u32 = 8;
/// The largest.
const SHARE_MOST: u32 = 1 << 20;
/// So many times a source's share a port may get. Of a flood from as many sources each is met by its own share, and light clients of the
/// port pass.
const PORTS_MOST: u32 = 64;
/// At first, until it is known whether that leaves others enough.
const PORTS_FIRST: u32 = 8;
/// The same while the least share is too much: more sources than that flood, or more ports than one.
const PORTS_LEAST: u32 = 4;

/// The least that a source, and that a port may get.
pub fn least() -> (u32, u32) {
    (SHARE_LEAST, SHARE_LEAST * PORTS_LEAST)
}

/// What the NAPIs of a device did since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// The time since.
    pub elapsed: Duration,
    /// Packets of all NAPIs.
    pub work: u64,
    /// Packets a poll, of the NAPI where they are the most, as if a poll might take 64; 0 without a poll.
    pub mean_work: u64,
    /// Whether some NAPI was polled, and each of its polls was full.
    pub is_full: bool,
    /// What the busiest thread ran.
    pub ran: Duration,
    /// Whether a thread was made to go last meanwhile, because it took too much.
    pub was_demoted: bool,
    /// Packets that were shed.
    pub shed: u64,
    /// Packets beyond their share that passed, because they belong to a TCP connection.
    pub spared: u64,
}

impl Look {
    /// The part of a CPU that the busiest thread took, in thousandths.
    pub fn share_of_cpu(&self) -> u32 {
        let elapsed = self.elapsed.as_micros().max(1);
        u32::try_from(self.ran.as_micros() * 1000 / elapsed).unwrap_or(u32::MAX)
    }

    /// Whether a thread that took so much must not go first.
    pub fn is_too_much(&self) -> bool {
        self.share_of_cpu() > TOO_MUCH
    }
}

/// How a device is received from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By softirqs.
    Calm,
    /// By threads that go before ordinary ones.
    First,
    /// By threads that are ordinary ones.
    Last,
}

impl Mode {
    /// As figures have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "softirqs",
            Self::First => "threads, first",
            Self::Last => "threads, last",
        }
    }

    /// The mode by its number in `struct poll_device`.
    pub fn of(number: u32) -> Self {
        match number {
            1 => Self::First,
            2 => Self::Last,
            _ => Self::Calm,
        }
    }
}

/// What is possible and wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether packets can be shed.
    pub sheds: bool,
    /// Whether the device stays threaded.
    pub keeps_threads: bool,
}

/// The guard of a device.
#[derive(Debug, Clone)]
pub struct Guard {
    rules: Rules,
    mode: Mode,
    share: u32,
    ports: u32,
    overloaded: Duration,
    quiet: u32,
    /// Looks since the thread's place has changed.
    waited: u32,
    /// After how many the next trial is.
    trial: u32,
    calm: Duration,
    storms: u64,
    demotions: u64,
}

impl Guard {
    /// Nothing has happened yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            mode: if rules.keeps_threads { Mode::First } else { Mode::Calm },
            share: 0,
            ports: PORTS_MOST,
            overloaded: Duration::ZERO,
            quiet: 0,
            waited: 0,
            trial: TRIAL_AFTER,
            calm: Duration::ZERO,
            storms: 0,
            demotions: 0,
        }
    }

    /// Threads receive already, as in a storm, which may be over.
    pub fn of_threads(rules: Rules) -> Self {
        Self {
            mode: Mode::First,
            ..Self::new(rules)
        }
    }

    /// How the device is to be received from.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How many packets one source may send in a window on each CPU; 0: nothing is shed.
    pub fn share(&self) -> u32 {
        self.share
    }

    /// How many packets one port may get in a window on each CPU, from all sources.
    pub fn port(&self) -> u32 {
        self.share.saturating_mul(self.ports)
    }

    /// How many storms there were, and how often a thread took too much.
    pub fn counts(&self) -> (u64, u64) {
        (self.storms, self.demotions)
    }

    /// Looks, and decides.
    pub fn look(&mut self, look: &Look) {
        self.overloaded = if look.is_full {
            self.overloaded + look.elapsed
        } else {
            Duration::ZERO
        };
        // In calm times, only an alarm sheds (poll.bpf.c).
        let is_alarm = self.mode == Mode::Calm && look.shed > 0;
        let is_overload = is_alarm || self.overloaded >= OVERLOADED_AFTER;
        if is_overload || look.shed > 0 {
            self.calm = Duration::ZERO;
        } else {
            self.calm += look.elapsed;
        }
        if self.mode == Mode::Calm {
            if is_overload {
                self.storms += 1;
                self.mode = Mode::First;
                self.quiet = 0;
                self.begin_to_shed(look);
            }
            return;
        }
        self.judge_thread(look);
        if self.rules.sheds {
            self.adapt_share(look, is_overload);
        }
        if self.calm >= OVER_AFTER {
            self.share = 0;
            if !self.rules.keeps_threads {
                self.mode = Mode::Calm;
            }
        }
    }

    /// Of what comes, one source passes little at first, so that a NAPI soon has nothing more to poll. More is found out by looking.
    fn begin_to_shed(&mut self, look: &Look) {
        if self.rules.sheds {
            // A late look is several windows.
            let in_a_window = u128::from(look.work) * TICK.as_nanos() / look.elapsed.as_nanos().max(TICK.as_nanos());
            let little = u32::try_from(in_a_window / 32).unwrap_or(SHARE_MOST);
            self.share = little.clamp(SHARE_LEAST, SHARE_MOST);
            self.ports = PORTS_FIRST;
        }
    }

    fn judge_thread(&mut self, look: &Look) {
        let used = look.share_of_cpu();
        self.waited = self.waited.saturating_add(1);
        if self.mode == Mode::First {
            if look.was_demoted || look.is_too_much() {
                self.demote(look);
            } else if self.waited >= TRIAL_MOST {
                self.trial = TRIAL_AFTER;
            }
            return;
        }
        let is_quiet = match self.rules.sheds {
            // At nice 0 it gets no more than its part, however much waits.
            true => used <= AIM && !look.is_full,
            false => !look.is_full && look.mean_work < HALF_FULL,
        };
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        let is_trial = self.is_least() && self.waited >= self.trial;
        if is_trial {
            self.trial = (self.trial * 2).min(TRIAL_MOST);
        }
        if is_trial || self.quiet >= QUIET_LOOKS {
            self.mode = Mode::First;
            self.waited = 0;
        }
    }

    fn demote(&mut self, look: &Look) {
        self.mode = Mode::Last;
        self.demotions += 1;
        self.quiet = 0;
        self.waited = 0;
        if self.share == 0 {
            self.storms += u64::from(self.rules.keeps_threads);
            self.begin_to_shed(look);
        }
    }

    /// Whether all is shed that may be.
    fn is_least(&self) -> bool {
        self.share == SHARE_LEAST && self.ports == PORTS_LEAST
    }

    fn adapt_share(&mut self, look: &Look, is_overload: bool) {
        if self.share == 0 {
            return;
        }
        let used = look.share_of_cpu();
        // A softirq that polls still takes no CPU time of the thread, which begins once there is nothing more to poll; a thread at nice 0
        // gets no more than its part, whatever waits.
        let is_too_much = used > AIM || is_overload;
        let is_little = used < LOW && look.shed > 0 && !look.is_full;
        let has_room = !is_too_much && !look.is_full && look.shed > 0;
        if has_room && self.ports < PORTS_MOST && (is_little || self.share > SHARE_LEAST) {
            self.ports = (self.ports + self.ports / 4 + 1).min(PORTS_MOST);
            if !is_little {
                // Sources pay for it: what they exceed is theirs, what a port exceeds is everybody's who uses it.
                self.share = (self.share - self.share / 5).max(SHARE_LEAST);
            }
            return;
        }
        if look.spared > look.shed {
            return;
        }
        if is_too_much && self.share == SHARE_LEAST {
            self.ports = (self.ports / 2).max(PORTS_LEAST);
            return;
        }
        self.share = if used > AIM {
            // At most by half at a time: the CPU time follows a window later.
            (u64::from(self.share) * u64::from(AIM.max(used / 2)) / u64::from(used)) as u32
        } else if is_overload {
            self.share / 2
        } else if is_little {
            self.share + self.share / 10 + 1
        } else {
            self.share
        }
        .clamp(SHARE_LEAST, SHARE_MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHEDS: Rules = Rules {
        sheds: true,
        keeps_threads: false,
    };
    const THREADS_ONLY: Rules = Rules {
        sheds: false,
        keeps_threads: true,
    };

    fn look(work: u64, is_full: bool, used: u64, shed: u64) -> Look {
        Look {
            elapsed: TICK,
            was_demoted: false,
            work,
            mean_work: if is_full { 64 } else { 10 },
            is_full,
            ran: TICK * used as u32 / 1000,
            shed,
            spared: 0,
        }
    }

    /// The part of the CPU that it takes to let some of the packets through, in thousandths: 3.5 us a packet, a tenth of that for one
    /// that is shed.
    fn used(allowed: u64, packets: u64) -> u64 {
        let cost = allowed * 3_500 + (packets - allowed) * 350;
        (cost * 1000 / TICK.as_nanos() as u64).min(1000)
    }

    /// A flood of so many packets a look.
    fn storm(guard: &mut Guard, looks: u32, packets: u64) {
        for _ in 0..looks {
            let allowed = match guard.share() {
                0 => packets,
                share => packets.min(u64::from(share)),
            };
            let used = used(allowed, packets);
            guard.look(&look(allowed, used >= 1000, used, packets - allowed));
        }
    }

    /// Sources that each send little, to some ports: only what a port may get bounds them.
    #[test]
    fn a_flood_of_forged_sources_is_bounded_within_a_fifth_of_a_second() {
        for (packets, ports) in [(4_000, 1), (40_000, 1), (4_000, 8), (40_000, 30)] {
            let mut guard = Guard::new(SHEDS);
            let through = |guard: &Guard| match guard.port() {
                0 => packets,
                port => packets.min(u64::from(port) * ports),
            };
            for _ in 0..20 {
                let allowed = through(&guard);
                // Only what is passed costs: beyond some rate, dropping takes the CPU.
                let used = (allowed * 350 / 1000).min(1000);
                guard.look(&look(allowed, used >= 1000, used, packets - allowed));
            }
            let allowed = through(&guard);
            assert!(
                allowed * 350 / 1000 <= 600,
                "{packets} to {ports} ports: {allowed} pass"
            );
        }
    }

    #[test]
    fn a_burst_is_no_storm() {
        let mut guard = Guard::new(SHEDS);
        for _ in 0..100 {
            guard.look(&look(1000, true, 0, 0));
            guard.look(&look(1000, false, 0, 0));
        }
        assert_eq!((guard.mode(), guard.share()), (Mode::Calm, 0));
    }

    /// What the programs do by themselves must not be all that happens.
    #[test]
    fn an_alarm_is_a_storm() {
        let mut guard = Guard::new(SHEDS);
        guard.look(&look(4_000, false, 0, 1));
        assert_eq!(guard.mode(), Mode::First);
    }

    /// The guard itself is late where a softirq polls on and on.
    #[test]
    fn a_late_look_is_as_good_as_two() {
        let mut guard = Guard::new(SHEDS);
        guard.look(&Look {
            elapsed: TICK * 2,
            ..look(8_000, true, 0, 0)
        });
        assert_eq!(guard.mode(), Mode::First);
    }

    /// The stand-in has found what the guard would have; the mean over the whole time may be less.
    #[test]
    fn a_thread_that_was_demoted_meanwhile_stays_last() {
        let mut guard = Guard::new(SHEDS);
        guard.look(&look(4_000, false, 0, 1));
        guard.look(&Look {
            was_demoted: true,
            ..look(4_000, true, 500, 0)
        });
        assert_eq!((guard.mode(), guard.counts()), (Mode::Last, (1, 1)));
    }

    #[test]
    fn an_overload_of_two_looks_is_shed() {
        let mut guard = Guard::new(SHEDS);
        guard.look(&look(8_000, true, 0, 0));
        assert_eq!(guard.mode(), Mode::Calm);
        guard.look(&look(8_000, true, 0, 0));
        assert_eq!((guard.mode(), guard.counts()), (Mode::First, (1, 0)));
        assert_eq!(guard.share(), 250);
    }

    /// What users lose if it fails: everything, for FIFO threads end all others.
    #[test]
    fn a_thread_that_takes_too_much_goes_last_at_once() {
        for rules in [SHEDS, THREADS_ONLY] {
            let mut guard = Guard::new(rules);
            (0..2).for_each(|_| guard.look(&look(8_000, true, 0, 0)));
            assert_eq!(guard.mode(), Mode::First);
            guard.look(&look(8_000, true, 810, 0));
            assert_eq!((guard.mode(), guard.counts().1), (Mode::Last, 1));
        }
    }

    #[test]
    fn the_share_settles_where_the_thread_leaves_near_half_of_the_cpu() {
        for packets in [4_250, 8_500, 25_000] {
            let mut guard = Guard::new(SHEDS);
            (0..2).for_each(|_| guard.look(&look(5_700, true, 0, 0)));
            storm(&mut guard, 200, packets);
            let allowed = u64::from(guard.share());
            let used = used(allowed, packets);
            assert!((400..=600).contains(&used) || packets > 15_000, "{packets}: {used}");
            assert_eq!(
                guard.mode(),
                if packets > 15_000 { Mode::Last } else { Mode::First },
                "{packets}"
            );
        }
    }

    /// A device that a storm has caught polls by the softirq until there is nothing left to poll for a moment.
    #[test]
    fn what_a_softirq_still_polls_is_shed_more_and_more() {
        let mut guard = Guard::new(SHEDS);
        (0..20).for_each(|_| guard.look(&look(5_000, true, 0, 3_000)));
        assert_eq!(guard.share(), SHARE_LEAST);
    }

    #[test]
    fn after_ten_calm_seconds_softirqs_receive_again() {
        let mut guard = Guard::new(SHEDS);
        (0..2).for_each(|_| guard.look(&look(8_000, true, 0, 0)));
        storm(&mut guard, 100, 5_000);
        (0..999).for_each(|_| guard.look(&look(100, false, 20, 0)));
        assert_ne!(guard.mode(), Mode::Calm);
        guard.look(&look(100, false, 20, 0));
        assert_eq!((guard.mode(), guard.share()), (Mode::Calm, 0));
    }

    /// A packet that is shed says that the storm goes on, however little the thread has to do.
    #[test]
    fn a_storm_that_is_shed_is_not_over() {
        let mut guard = Guard::new(SHEDS);
        (0..2).for_each(|_| guard.look(&look(8_000, true, 0, 0)));
        (0..4_000).for_each(|_| guard.look(&look(1_500, false, 520, 50)));
        assert_eq!((guard.mode(), guard.counts()), (Mode::First, (1, 0)));
    }

    /// An ordinary thread gets a part of the CPU only, however many packets wait: that is no sign of calm.
    #[test]
    fn without_shedding_a_thread_goes_first_when_its_polls_are_short() {
        let mut guard = Guard::new(THREADS_ONLY);
        guard.look(&look(8_000, true, 900, 0));
        assert_eq!(guard.mode(), Mode::Last);
        (0..100).for_each(|_| guard.look(&look(4_000, true, 360, 0)));
        assert_eq!((guard.mode(), guard.share()), (Mode::Last, 0));
        (0..QUIET_LOOKS).for_each(|_| guard.look(&look(400, false, 360, 0)));
        assert_eq!(guard.mode(), Mode::First);
        (0..1_000).for_each(|_| guard.look(&look(100, false, 20, 0)));
        assert_eq!(
            guard.mode(),
            Mode::First,
            "threads that cannot be had during a storm stay"
        );
    }

    /// At nice 0 it falls behind whatever it could do, and others' packets are lost in the ring: the only way to find out is to let it.
    #[test]
    fn a_thread_that_sheds_all_that_it_may_is_tried_again() {
        let mut guard = Guard::new(SHEDS);
        (0..2).for_each(|_| guard.look(&look(8_000, true, 0, 0)));
        guard.look(&look(8_000, true, 900, 100));
        assert_eq!(guard.mode(), Mode::Last);
        let behind = look(5_000, true, 380, 4_000);
        let looks = (1..).find(|_| {
            guard.look(&behind);
            guard.mode() == Mode::First
        });
        // The share has to come down first.
        assert!(looks.is_some_and(|looks| looks < 30), "{looks:?}");
        (0..1_000).for_each(|_| guard.look(&look(8_000, false, 630, 8_000)));
        assert_eq!((guard.mode(), guard.counts().1), (Mode::First, 1));
    }

    /// Where it cannot keep up, trials take next to nothing from others.
    #[test]
    fn trials_that_fail_become_rare() {
        let mut guard = Guard::new(SHEDS);
        (0..2).for_each(|_| guard.look(&look(8_000, true, 0, 0)));
        let mut first = 0;
        for _ in 0..6_000 {
            let used = if guard.mode() == Mode::First { 990 } else { 380 };
            first += u32::from(guard.mode() == Mode::First);
            guard.look(&look(8_000, true, used, 8_000));
        }
        assert!(first < 30, "{first} of 6,000 looks");
    }

    /// A download at full speed must not cost a call beside it its packets.
    #[test]
    fn others_do_not_pay_for_connections_that_are_spared() {
        let mut guard = Guard::new(SHEDS);
        (0..2).for_each(|_| guard.look(&look(4_000, true, 0, 0)));
        let share = guard.share();
        for _ in 0..1_000 {
            guard.look(&Look {
                spared: 1_000,
                ..look(3_000, true, 900, 10)
            });
        }
        assert_eq!((guard.share(), guard.mode()), (share, Mode::Last));
    }

    #[test]
    fn looks_of_any_length_are_taken() {
        let mut guard = Guard::new(SHEDS);
        for elapsed in [TICK * 2, Duration::ZERO, Duration::from_secs(1 << 40)] {
            guard.look(&Look {
                elapsed,
                is_full: true,
                work: u64::MAX,
                ran: Duration::from_secs(1 << 40),
                ..Look::default()
            });
        }
        assert!((SHARE_LEAST..=SHARE_MOST).contains(&guard.share()));
    }
}
