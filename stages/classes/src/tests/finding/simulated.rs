//! Simulated services, in front of which the module's limit and choice decide as in `dispatch.c` and `requests.c`.
//!
//! ```text
//!     clients ---> classes' queues ---> limit ---> the service's queue ---> workers ---> clients
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::limit::{Limit, OPEN};
use super::others::Other;
use super::shares::Shares;
use crate::tests::choice::WINDOW_SLOTS;
use tarn_lab::random::Random;

pub(super) const CLASSES: usize = 5;
/// In 1/10000.
pub(super) const TARGETS: [u32; CLASSES] = [9000, 8000, 7000, 6000, 5000];
const WINDOW_NS: u64 = 10_000_000_000;
const PATIENCE_NS: u64 = 2_000_000_000;

/// How a service's times vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    /// By a tenth.
    Little,
    /// As much as their mean.
    Exponential,
    /// Nine in ten take half the mean, the tenth 5.5 times as long.
    TwoKinds,
}

/// So many requests are worked on at a time, each for so long in the mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service {
    pub(super) workers: usize,
    pub(super) time: Duration,
    pub(super) spread: Spread,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Clients {
    /// At random times, so many times what the service can do.
    Random(f64),
    /// The same, but only for the first of so many seconds each.
    Bursts(f64, u64),
    /// So many, who each ask again when they are answered.
    Loop(u64),
}

/// A service and who uses it, for so long.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) service: Service,
    pub(super) clients: Clients,
    pub(super) deadline: Duration,
    /// The share of requests whose clients take so long until the service has all of them, or that wait there for something to happen.
    pub(super) slow: (f64, Duration),
    /// When the service changes, and into what; who asks at random goes on at the rate given then.
    pub(super) change: Option<(Duration, Service, f64)>,
    /// The service has the CPU for the first so long of each so long.
    pub(super) quota: Option<(Duration, Duration)>,
    /// More requests than this that wait in the service are dropped, and nobody hears of it.
    pub(super) room: usize,
    pub(super) seed: u64,
    pub(super) length: Duration,
}

/// What came of the requests that arrived in a second, or what was answered in it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Second {
    pub(super) answers: u64,
    pub(super) arrived: [u64; CLASSES],
    pub(super) in_time: [u64; CLASSES],
    /// At its end.
    pub(super) limit: u32,
}

/// How it went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) seconds: Vec<Second>,
    /// Response times, ns, sorted.
    pub(super) times: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    /// The service has all of it.
    Whole(usize),
    Worked(usize),
    /// Nobody waits for its answer any more.
    Expires(usize),
    Look,
    Slot,
    Changes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    Inside,
    Overdue,
    Answered,
}

struct Request {
    arrived: u64,
    handed_on: u64,
    class: usize,
    slot: u32,
    state: State,
}

struct Run<'a> {
    scene: &'a Scene,
    /// Without it, the kernel is stock.
    limit: Option<Limit>,
    random: Random,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    /// When it looks for overdue requests next; 0: at no time.
    look: u64,
    service: Service,
    rate: f64,
    busy: usize,
    inside: u32,
    requests: Vec<Request>,
    queue: [VecDeque<usize>; CLASSES],
    aside: VecDeque<usize>,
    whole: VecDeque<usize>,
    on_time: VecDeque<usize>,
    shares: [Shares; CLASSES],
    outcome: Outcome,
}

/// Who decides how many requests the service has at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Nobody: there are no classes.
    Stock,
    /// The module.
    Module,
    /// Another rule, in front of which are the module's classes.
    Other(Other),
}

/// Runs it.
pub(super) fn simulate(scene: &Scene, rule: Rule) -> Outcome {
    let other = if let Rule::Other(other) = rule {
        Some(other)
    } else {
        None
    };
    let mut run = Run {
        scene,
        limit: (rule != Rule::Stock).then(|| Limit::new(scene.deadline.as_nanos() as u64, other)),
        random: Random::new(scene.seed, "services"),
        now: 1,
        events: BinaryHeap::new(),
        number: 0,
        look: 0,
        service: scene.service,
        rate: 0.0,
        busy: 0,
        inside: 0,
        requests: Vec::new(),
        queue: Default::default(),
        aside: VecDeque::new(),
        whole: VecDeque::new(),
        on_time: VecDeque::new(),
        shares: Default::default(),
        outcome: Outcome {
            seconds: vec![Second::default(); scene.length.as_secs() as usize + 1],
            times: Vec::new(),
        },
    };
    run.begin();
    while run.step() {}
    run.outcome.times.sort_unstable();
    run.outcome
}

fn second(at: u64) -> usize {
    (at / 1_000_000_000) as usize
}

impl Run<'_> {
    fn begin(&mut self) {
        match self.scene.clients {
            Clients::Loop(clients) => (0..clients).for_each(|_| self.at(1, Event::Arrives)),
            Clients::Random(load) | Clients::Bursts(load, _) => {
                self.rate = load * self.capacity();
                self.at(1, Event::Arrives);
            }
        }
        self.at(WINDOW_NS / WINDOW_SLOTS as u64, Event::Slot);
        if let Some((at, ..)) = self.scene.change {
            self.at(at.as_nanos() as u64, Event::Changes);
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((time, _, event))) = self.events.pop() else {
            return false;
        };
        self.now = time;
        if time > self.scene.length.as_nanos() as u64 {
            return false;
        }
        match event {
            Event::Arrives => self.arrive(),
            Event::Whole(request) => self.get(request),
            Event::Worked(request) => self.answer(request),
            Event::Expires(request) => self.lose(request),
            Event::Look if self.look == time => self.look = 0,
            Event::Look => {}
            Event::Slot => {
                self.shares.iter_mut().for_each(|shares| shares.advance(1));
                self.at(time + WINDOW_NS / WINDOW_SLOTS as u64, Event::Slot);
            }
            Event::Changes => self.change(),
        }
        self.dispatch();
        self.work();
        self.outcome.seconds[second(time)].limit = self.limit.as_ref().map_or(OPEN, Limit::now);
        true
    }

    fn change(&mut self) {
        if let Some((_, service, load)) = self.scene.change {
            self.service = service;
            self.rate = load * self.capacity();
        }
    }

    /// Answers in a ns.
    fn capacity(&self) -> f64 {
        let has_cpu = self
            .scene
            .quota
            .map_or(1.0, |(on, of)| on.as_secs_f64() / of.as_secs_f64());
        has_cpu * self.service.workers as f64 / self.service.time.as_nanos() as f64
    }

    /// When so much work that begins now is done.
    fn done(&self, work: u64) -> u64 {
        let Some((on, of)) = self.scene.quota else {
            return self.now + work;
        };
        let (on, of) = (on.as_nanos() as u64, of.as_nanos() as u64);
        let before = self.now / of * on + (self.now % of).min(on);
        let after = before + work;
        (after - 1) / on * of + (after - 1) % on + 1
    }

    fn next_arrival(&mut self) {
        if let Clients::Loop(_) = self.scene.clients {
            return;
        }
        let next = self.now + self.random.exponential(1.0 / self.rate) as u64;
        let next = match self.scene.clients {
            Clients::Bursts(_, every) if second(next) as u64 % every != 0 => {
                (second(next) as u64).next_multiple_of(every) * 1_000_000_000
            }
            _ => next,
        };
        self.at(next, Event::Arrives);
    }

    fn arrive(&mut self) {
        let class = self.random.below(CLASSES as u64) as usize;
        let request = self.requests.len();
        self.requests.push(Request {
            arrived: self.now,
            handed_on: 0,
            class,
            slot: self.shares[class].slot(),
            state: State::Waits,
        });
        self.shares[class].request();
        self.outcome.seconds[second(self.now)].arrived[class] += 1;
        self.queue[class].push_back(request);
        let inside = self.inside;
        if let Some(limit) = self.limit.as_mut().filter(|limit| inside >= limit.now()) {
            limit.reached();
        }
        self.next_arrival();
    }

    fn hand_on(&mut self, request: usize) {
        let now = self.now;
        self.requests[request].handed_on = now;
        self.requests[request].state = State::Inside;
        self.inside += 1;
        self.on_time.push_back(request);
        let (share, lag) = self.scene.slow;
        if share > 0.0 && self.random.uniform() < share {
            self.at(now + lag.as_nanos() as u64, Event::Whole(request));
        } else {
            self.get(request);
        }
    }

    /// The service has all of it, or never hears of it.
    fn get(&mut self, request: usize) {
        if self.whole.len() < self.scene.room {
            self.whole.push_back(request);
        } else {
            self.at(self.requests[request].handed_on + PATIENCE_NS, Event::Expires(request));
        }
    }

    fn lose(&mut self, request: usize) {
        self.inside -= u32::from(self.requests[request].state == State::Inside);
        self.requests[request].state = State::Answered;
        if let Some(limit) = &mut self.limit {
            limit.lost();
        }
    }

    fn work(&mut self) {
        while self.busy < self.service.workers
            && let Some(request) = self.whole.pop_front()
        {
            let time = self.service.time.as_nanos() as f64;
            let time = match self.service.spread {
                Spread::Little => time * (0.95 + 0.1 * self.random.uniform()),
                Spread::Exponential => self.random.exponential(time),
                Spread::TwoKinds if self.random.uniform() < 0.9 => time * 0.5,
                Spread::TwoKinds => time * 5.5,
            };
            self.busy += 1;
            self.at(self.done(time as u64), Event::Worked(request));
        }
    }

    fn answer(&mut self, request: usize) {
        let Request {
            arrived,
            handed_on,
            class,
            slot,
            state,
        } = self.requests[request];
        let is_reached = self.is_waiting() && self.limit.as_ref().is_some_and(|limit| self.inside >= limit.now());
        let is_in_time = self.now - arrived <= self.scene.deadline.as_nanos() as u64;
        self.busy -= 1;
        if state == State::Inside {
            self.inside -= 1;
        }
        self.requests[request].state = State::Answered;
        if let Some(limit) = &mut self.limit {
            if is_reached {
                limit.reached();
            }
            let overdue_after = limit.likely().min(PATIENCE_NS);
            let at_most = if state == State::Overdue {
                overdue_after
            } else {
                u64::MAX
            };
            if limit.answer(handed_on, at_most, self.inside, self.now) {
                self.shares.iter_mut().for_each(Shares::judge_anew);
            }
        }
        if state == State::Overdue {
            self.shares[class].uncount_unanswered(slot);
        }
        self.shares[class].answer(slot, is_in_time);
        self.outcome.seconds[second(self.now)].answers += 1;
        self.outcome.seconds[second(arrived)].in_time[class] += u64::from(is_in_time);
        self.outcome.times.push(self.now - arrived);
        if let Clients::Loop(_) = self.scene.clients {
            self.at(self.now, Event::Arrives);
        }
    }

    fn is_waiting(&self) -> bool {
        !self.aside.is_empty() || self.queue.iter().any(|queue| !queue.is_empty())
    }

    /// `requests_become_overdue()`
    fn look_for_overdue(&mut self) {
        let Some(limit) = &mut self.limit else { return };
        while let Some(&request) = self.on_time.front() {
            let Request {
                handed_on,
                class,
                slot,
                state,
                ..
            } = self.requests[request];
            if state == State::Answered {
                self.on_time.pop_front();
                continue;
            }
            if self.now - handed_on < limit.likely().min(PATIENCE_NS) {
                break;
            }
            self.on_time.pop_front();
            self.inside -= 1;
            self.requests[request].state = State::Overdue;
            if self.shares[class].are_mostly_answered() {
                limit.back_off(handed_on, self.now);
            }
            self.shares[class].unanswered(slot);
        }
    }

    /// `set_hopeless_aside()`
    fn set_aside(&mut self) {
        let deadline = self.scene.deadline.as_nanos() as u64;
        let margin = self.limit.as_ref().map_or(0, Limit::nearly_all).min(deadline / 2);
        for queue in &mut self.queue {
            while let Some(&request) = queue.front()
                && self.now + margin > self.requests[request].arrived + deadline
            {
                queue.pop_front();
                self.aside.push_back(request);
            }
        }
    }

    fn choose(&mut self) -> Option<usize> {
        self.set_aside();
        let waiting = (0..CLASSES).filter(|class| !self.queue[*class].is_empty());
        let best = waiting.reduce(|best, other| {
            let is_behind = self.shares[other].is_further_behind(TARGETS[other], &self.shares[best], TARGETS[best]);
            if is_behind { other } else { best }
        });
        let late = match best {
            Some(class) if !self.shares[class].have_surplus(TARGETS[class]) => None,
            _ => self.aside.pop_front(),
        };
        late.or_else(|| self.queue[best?].pop_front())
    }

    fn dispatch(&mut self) {
        // The module looks when somebody waits for a place.
        let is_full = self.limit.as_ref().is_some_and(|limit| self.inside >= limit.now());
        if is_full && self.is_waiting() {
            self.look_for_overdue();
        }
        if self.limit.is_none() {
            while let Some(request) = self.queue.iter_mut().find_map(VecDeque::pop_front) {
                self.hand_on(request);
            }
            return;
        }
        while self.inside < self.limit.as_ref().map_or(OPEN, Limit::now)
            && let Some(request) = self.choose()
        {
            self.hand_on(request);
        }
        if let (true, Some(request), Some(limit)) = (self.is_waiting(), self.on_time.front(), &self.limit) {
            let overdue = self.requests[*request].handed_on + limit.likely().min(PATIENCE_NS);
            if self.look == 0 || overdue < self.look {
                self.look = overdue.max(self.now + 1);
                self.at(self.look, Event::Look);
            }
        }
    }
}

impl Outcome {
    /// Answers in these seconds.
    pub(super) fn answers(&self, seconds: std::ops::Range<usize>) -> u64 {
        self.seconds[seconds].iter().map(|second| second.answers).sum()
    }

    /// The share of each class that was in time, of what arrived in these seconds.
    pub(super) fn shares(&self, seconds: std::ops::Range<usize>) -> [f64; CLASSES] {
        std::array::from_fn(|class| {
            let seconds = &self.seconds[seconds.clone()];
            let in_time: u64 = seconds.iter().map(|second| second.in_time[class]).sum();
            let arrived: u64 = seconds.iter().map(|second| second.arrived[class]).sum();
            in_time as f64 / arrived.max(1) as f64
        })
    }

    pub(super) fn p99(&self) -> u64 {
        self.times.get(self.times.len() * 99 / 100).copied().unwrap_or_default()
    }

    /// The lowest limit there was.
    pub(super) fn lowest_limit(&self) -> u32 {
        self.seconds
            .iter()
            .map(|second| second.limit)
            .filter(|limit| *limit > 0)
            .min()
            .unwrap_or(OPEN)
    }
}
