//! A device that is watched: what its NAPIs did, and what its guard has decided is carried out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::STAGE;
use crate::calm;
use crate::config::Config;
use crate::cpus::Cpus;
use crate::device::Device;
use crate::guard::{Guard, Look, Mode, Rules};
use crate::handover::{Handover, Seen};
use crate::lost::Lost;
use crate::module::KERNEL_WEIGHT;
use crate::programs::{Maps, Programs};
use crate::skeleton::types::{poll_device, poll_napi};
use crate::stand_in::StandIn;
use crate::threads::{self, Given};
use tarn_base::output::{Priority, log, log_at};
use tarn_kernel::attach;
use tarn_kernel::netdev;
use tarn_kernel::scheduling::{Policy, run_time_ns};
use tarn_kernel::sysfs::Sysfs;

/// A device that is watched.
pub struct Watched {
    /// Which one.
    pub device: Device,
    /// Decides what is done with it.
    pub guard: Guard,
    napis: Vec<Queue>,
    is_threaded: bool,
    shown: poll_device,
    /// Whether the map of devices has that.
    is_noted: bool,
    counts: [u64; 3],
    /// The kernel did not let it be threaded, or not, since its NAPIs were listed; and whether that was reported.
    has_refused: bool,
    is_reported: bool,
    lost: Lost,
    handover: Handover,
    /// Whether the stand-in has made one of its threads go last since the last look.
    was_demoted: bool,
    stand_in: Arc<StandIn>,
}

/// What may be done with a device now.
#[derive(Debug, Clone, Copy)]
pub struct May {
    /// Whether the kernel lets threads go first here.
    pub go_first: bool,
    /// Whether no other device has what is dropped go to sockets.
    pub redirect: bool,
}

/// A NAPI, and what it had done at the last look.
struct Queue {
    id: u32,
    thread: Option<i32>,
    counted: poll_napi,
    ran_ns: u64,
    /// What it ran at the last look, and where, if that was asked.
    ran: Duration,
    cpu: Option<u32>,
    /// Whether every poll was full at the last look, and none its thread's; and whether any was its thread's.
    is_stuck: bool,
    is_threaded: bool,
    policy: Option<Policy>,
    held: Held,
}

/// Where a thread runs.
enum Held {
    /// Where the kernel has it run.
    No,
    /// Where it was configured to.
    On(Cpus),
    /// Where somebody else has it run, or it could not be held.
    LeftAlone,
}

impl Queue {
    /// Holds its thread on these CPUs.
    fn hold(&mut self, cpus: &Cpus, device: &str) {
        let (Some(thread), Held::No) = (self.thread, &self.held) else {
            return;
        };
        self.held = match cpus.hold(thread) {
            Ok(()) => Held::On(cpus.clone()),
            Err(error) => {
                let text = format!("a thread of {device} cannot be held on the CPUs {cpus}: {error}");
                log_at(Priority::Warning, STAGE, text);
                Held::LeftAlone
            }
        };
    }

    /// Has its thread run where the kernel has it run.
    fn release(&mut self, device: &str) {
        let (Some(thread), Held::On(cpus)) = (self.thread, &self.held) else {
            return;
        };
        self.held = if cpus.release(thread) {
            Held::No
        } else {
            let text = format!("somebody else has a thread of {device} run elsewhere: left alone");
            log_at(Priority::Notice, STAGE, text);
            Held::LeftAlone
        };
    }

    /// The kernel lists it no longer: its device is down, elsewhere or gone. The thread may be there still, and keep what it was given.
    fn give_up(&self, maps: &Maps) {
        if let (Some(thread), Held::On(cpus)) = (self.thread, &self.held) {
            cpus.release(thread);
        }
        if let (Some(thread), Some(Policy::Fifo(priority))) = (self.thread, self.policy)
            && threads::demote(thread, priority)
        {
            maps.goes_first(thread, None);
        }
    }
}

/// What busy threads of all devices ran since the last look, by the CPU that they ran on: two that share one must not take all of it.
pub fn together(devices: &[Watched], elapsed: Duration) -> BTreeMap<u32, Duration> {
    let mut sums = BTreeMap::new();
    for queue in devices.iter().flat_map(|watched| &watched.napis) {
        if let Some(cpu) = queue.cpu {
            *sums.entry(cpu).or_default() += queue.ran;
        }
    }
    // A thread that moves is counted where it was found.
    sums.values_mut()
        .for_each(|sum: &mut Duration| *sum = (*sum).min(elapsed));
    sums
}

impl Watched {
    /// A device that softirqs receive from.
    pub fn new(device: Device, rules: Rules, maps: &Maps, stand_in: Arc<StandIn>) -> Self {
        Self {
            guard: Guard::new(rules),
            napis: Vec::new(),
            is_threaded: false,
            shown: poll_device::default(),
            is_noted: false,
            counts: maps.counts(device.index),
            has_refused: false,
            is_reported: false,
            lost: Lost::default(),
            handover: Handover::default(),
            was_demoted: false,
            stand_in,
            device,
        }
    }

    /// A device that was in another namespace meanwhile, and is threaded still.
    pub fn back(device: Device, rules: Rules, maps: &Maps, stand_in: Arc<StandIn>) -> Self {
        Self {
            guard: Guard::of_threads(rules),
            is_threaded: true,
            ..Self::new(device, rules, maps, stand_in)
        }
    }

    /// Its NAPIs, which come and go with its queues, and their threads.
    ///
    /// # Errors
    /// The kernel's.
    pub fn list(&mut self, programs: &Programs) -> Result<()> {
        let found = netdev::napis(self.device.index)?.unwrap_or_default();
        self.has_refused = false;
        self.napis.retain(|known| {
            let stays = found.iter().any(|napi| napi.id == known.id);
            if !stays {
                programs.maps.forget(known.id);
                known.give_up(&programs.maps);
            }
            stays
        });
        for napi in found {
            match self.napis.iter_mut().find(|known| known.id == napi.id) {
                Some(known) if known.thread != napi.thread => {
                    known.give_up(&programs.maps);
                    known.thread = napi.thread;
                    known.ran_ns = napi.thread.and_then(run_time_ns).unwrap_or_default();
                    (known.policy, known.held) = (None, Held::No);
                }
                Some(_) => {}
                None => {
                    if let Err(error) = programs.maps.follow(napi.id) {
                        log_at(Priority::Warning, STAGE, format!("{error:#}"));
                        continue;
                    }
                    self.napis.push(Queue {
                        id: napi.id,
                        thread: napi.thread,
                        counted: programs.maps.napi(napi.id).unwrap_or_default(),
                        ran_ns: napi.thread.and_then(run_time_ns).unwrap_or_default(),
                        ran: Duration::ZERO,
                        cpu: None,
                        is_stuck: false,
                        is_threaded: false,
                        policy: None,
                        held: Held::No,
                    });
                }
            }
        }
        Ok(())
    }

    /// What it did since the last look, so long ago.
    pub fn look(&mut self, programs: &Programs, elapsed: Duration) -> Look {
        let counts = programs.maps.counts(self.device.index);
        let before = std::mem::replace(&mut self.counts, counts);
        let [source, port, spared] = [0, 1, 2].map(|what| counts[what].saturating_sub(before[what]));
        let mut look = Look {
            elapsed,
            shed: source + port,
            spared,
            was_demoted: std::mem::take(&mut self.was_demoted),
            ..Look::default()
        };
        for queue in &mut self.napis {
            let Some(now) = programs.maps.napi(queue.id) else {
                continue;
            };
            let before = std::mem::replace(&mut queue.counted, now);
            let polls = now.polls.saturating_sub(before.polls);
            let work = now.work.saturating_sub(before.work);
            look.work += work;
            let mean = (work * u64::from(KERNEL_WEIGHT)).checked_div(polls * now.weight);
            look.mean_work = look.mean_work.max(mean.unwrap_or_default());
            let is_full = polls > 0 && now.full.saturating_sub(before.full) == polls;
            look.is_full |= is_full;
            (queue.ran, queue.cpu) = (Duration::ZERO, None);
            if let Some(ran) = queue.thread.and_then(run_time_ns) {
                let ran_since = ran.saturating_sub(std::mem::replace(&mut queue.ran_ns, ran));
                queue.ran = Duration::from_nanos(ran_since);
                look.ran = look.ran.max(queue.ran);
                if queue.ran * 32 > elapsed {
                    queue.cpu = queue.thread.and_then(threads::cpu_of);
                }
            }
            queue.is_threaded = now.threaded > before.threaded;
            queue.is_stuck = is_full && !queue.is_threaded && queue.thread.is_some();
        }
        look
    }

    /// Without the program nothing is shed, and then the device has to be threaded before an overload.
    ///
    /// # Errors
    /// The kernel's.
    pub fn check_program(&mut self, program: u32) -> Result<()> {
        if self.device.can_shed && attach::xdp_program(self.device.index)? != Some(program) {
            let name = &self.device.name;
            let text = format!(
                "somebody else has taken the XDP program from {name}: nothing is shed there, and threads receive"
            );
            log_at(Priority::Notice, STAGE, text);
            self.cannot_shed();
        }
        Ok(())
    }

    fn cannot_shed(&mut self) {
        self.device.can_shed = false;
        self.handover = Handover::default();
        self.guard = Guard::new(Rules {
            sheds: false,
            keeps_threads: true,
        });
    }

    /// Attaches the program anew where packets were to be dropped, and the driver has not run it.
    pub fn find_program(&mut self, programs: &Programs, look: &Look) {
        let is_due = self.device.can_shed && self.shown.share > 0;
        if !is_due || !self.lost.look(programs.maps.has_run(self.device.index), look.is_full) {
            return;
        }
        let name = &self.device.name;
        let what = format!("{name}: its driver does not run the program that sheds, since it was set up anew");
        let attach = || self.lost.attach_anew(&self.device, programs.shed());
        match self.stand_in.while_ordinary(attach) {
            Ok(()) => log_at(Priority::Notice, STAGE, format!("{what}: attached again")),
            Err(error) => {
                log_at(
                    Priority::Warning,
                    STAGE,
                    format!("{what}: {error:#}: nothing is shed there until the next `tarn up`, and threads receive"),
                );
                self.cannot_shed();
            }
        }
    }

    /// The most that threads of all devices ran together on a CPU of its threads.
    pub fn on_its_cpus(&self, together: &BTreeMap<u32, Duration>) -> Option<Duration> {
        let cpus = self.napis.iter().filter_map(|queue| queue.cpu);
        cpus.filter_map(|cpu| together.get(&cpu)).max().copied()
    }

    /// Without NAPIs (a device that is down, Wi-Fi) there is nothing to thread.
    fn can_be_threaded(&self) -> bool {
        !self.napis.is_empty() && !self.has_refused
    }

    /// Says in the map of devices what the guard has decided: the programs shed accordingly.
    pub fn announce(&mut self, maps: &Maps, look: &Look) {
        let (storms, demotions) = self.guard.counts();
        let mode = self.guard.mode();
        let is_threaded = mode != Mode::Calm;
        self.shown = poll_device {
            share: self.guard.share(),
            threaded: (self.is_threaded || is_threaded && self.can_be_threaded()).into(),
            mode: mode as u32,
            used: look.share_of_cpu(),
            storms,
            demotions,
        };
        // Before the device becomes threaded, and after it is no longer: whoever puts it back must know.
        self.is_noted = (is_threaded || !self.is_threaded) && self.note(maps);
    }

    /// Does what the guard has decided, which was announced.
    pub fn carry_out(&mut self, programs: &Programs, sysfs: &Sysfs, config: &Config, may: May) {
        let mode = self.guard.mode();
        let is_threaded = mode != Mode::Calm;
        let is_due = is_threaded != self.is_threaded
            && self.can_be_threaded()
            && (is_threaded || !threads::would_wait_for_ever(sysfs, &self.device.name));
        if is_due && (self.is_noted || !is_threaded) {
            self.thread(programs, sysfs, is_threaded);
            self.shown.threaded = self.is_threaded.into();
            self.note(&programs.maps);
        }
        if self.is_threaded {
            if let Some(cpus) = &config.cpus {
                self.napis
                    .iter_mut()
                    .for_each(|queue| queue.hold(cpus, &self.device.name));
            }
            let wanted = match mode {
                Mode::First if may.go_first && !self.handover.is_under_way() => Policy::Fifo(config.priority),
                _ => Policy::Ordinary,
            };
            self.give(&programs.maps, wanted);
            self.hand_over(programs, may.redirect);
        }
    }

    /// `may_redirect`: no other device has what is dropped go to sockets.
    fn hand_over(&mut self, programs: &Programs, may_redirect: bool) {
        let stuck = self.napis.iter().filter(|queue| queue.is_stuck);
        let stuck: Vec<u32> = stuck.map(|queue| queue.id).collect();
        let seen = Seen {
            stuck: &stuck,
            is_polled_by_threads: self.napis.iter().any(|queue| queue.is_threaded),
            queues: self.napis.len(),
        };
        let map = programs.handovers.as_ref().filter(|_| may_redirect);
        let is_under_way = self.handover.is_under_way();
        let mut look = || self.handover.look(&self.device, seen, map);
        if stuck.is_empty() || !is_under_way {
            look();
        } else {
            self.stand_in.meanwhile(look);
        }
    }

    /// Whether what is dropped has to go to sockets for a while.
    pub fn redirects(&self) -> bool {
        self.handover.needs_packets()
    }

    /// Says in the map of devices what is done with it. Whether that was possible: the map may be full.
    fn note(&self, maps: &Maps) -> bool {
        maps.set_device(self.device.index, &self.shown, self.guard.port(), self.device.can_shed)
            .is_ok()
    }

    /// Has threads receive from it, or softirqs.
    fn thread(&mut self, programs: &Programs, sysfs: &Sysfs, threaded: bool) {
        if !threaded {
            self.give(&programs.maps, Policy::Ordinary);
            self.release();
            self.handover = Handover::default();
        }
        let stand_in = Arc::clone(&self.stand_in);
        stand_in.while_ordinary(|| {
            self.set_threaded(sysfs, threaded);
            // Its threads have begun. Where the kernel does not list them now, it does in a second.
            let _ = self.list(programs);
        });
    }

    fn set_threaded(&mut self, sysfs: &Sysfs, threaded: bool) {
        match threads::set_threaded(sysfs, &self.device.name, threaded) {
            Ok(()) => self.is_threaded = threaded,
            Err(error) => {
                self.has_refused = true;
                if !std::mem::replace(&mut self.is_reported, true) {
                    log_at(Priority::Warning, STAGE, format!("{error:#}"));
                }
            }
        }
    }

    fn give(&mut self, maps: &Maps, wanted: Policy) {
        for queue in &mut self.napis {
            let Some(thread) = queue.thread.filter(|_| queue.policy != Some(wanted)) else {
                continue;
            };
            // First of all: no thread goes first that the keeper does not know of.
            if let Policy::Fifo(priority) = wanted
                && !maps.goes_first(thread, Some(priority))
            {
                continue;
            }
            let mut before = queue.policy;
            if let (Some(Policy::Fifo(priority)), Policy::Ordinary) = (before, wanted) {
                if !threads::demote(thread, priority) {
                    continue; // the next look tries again
                }
                before = Some(wanted);
            }
            let given = threads::give(thread, before, wanted);
            match given {
                Given::Done => queue.policy = Some(wanted),
                Given::LeftAlone if queue.policy.is_some() => {
                    let name = &self.device.name;
                    log_at(
                        Priority::Notice,
                        STAGE,
                        format!("somebody else has changed the priority of a thread of {name}: left alone"),
                    );
                    queue.policy = Some(wanted);
                }
                Given::LeftAlone | Given::Gone | Given::Refused => {}
            }
            if given != Given::Done || wanted == Policy::Ordinary {
                maps.goes_first(thread, None);
            }
        }
    }

    /// A line each way.
    pub fn report(&self, before: Mode) {
        let now = self.guard.mode();
        if now == before {
            return;
        }
        let name = &self.device.name;
        let text = match (before, now) {
            (Mode::Calm, _) => format!("{name}: more comes in than this CPU can take: threads receive"),
            (_, Mode::Calm) => format!("{name}: the storm is over: softirqs receive"),
            (_, Mode::Last) => format!("{name}: its threads take too much of a CPU: they go last"),
            (_, Mode::First) => format!("{name}: its threads leave enough to others: they go first"),
        };
        log(STAGE, text);
    }

    /// Whether threads receive from it.
    pub fn is_threaded(&self) -> bool {
        self.is_threaded
    }

    /// How many NAPIs it has.
    pub fn queues(&self) -> usize {
        self.napis.len()
    }

    /// Whether somebody else has changed whether it is threaded.
    pub fn is_foreign(&self, sysfs: &Sysfs) -> bool {
        threads::is_threaded(sysfs, &self.device.name) != Some(self.is_threaded)
    }

    /// Its threads run where the kernel has them run.
    fn release(&mut self) {
        self.napis.iter_mut().for_each(|queue| queue.release(&self.device.name));
    }

    /// The keeper has done what it does for an agent that does not look, as far as it could: see calm.rs.
    pub fn was_put_back(&mut self, sysfs: &Sysfs) {
        self.is_threaded = threads::is_threaded(sysfs, &self.device.name).unwrap_or(self.is_threaded);
        if !self.is_threaded {
            self.release();
        }
        self.handover = Handover::default();
        self.went_last();
    }

    /// The stand-in has made these threads go last, of this device or others.
    pub fn were_demoted(&mut self, threads: &[i32]) {
        let is_one = |queue: &&mut Queue| queue.thread.is_some_and(|thread| threads.contains(&thread));
        for queue in self.napis.iter_mut().filter(is_one) {
            queue.policy = Some(Policy::Ordinary);
            self.was_demoted = true;
        }
    }

    /// Its threads have no priority any more.
    pub fn went_last(&mut self) {
        self.napis.iter_mut().for_each(|queue| queue.policy = None);
    }

    /// Whether it has gone elsewhere while it was threaded.
    pub fn is_away(&self, sysfs: &Sysfs) -> bool {
        self.is_threaded && threads::is_threaded(sysfs, &self.device.name) != Some(false)
    }

    /// It is gone, or no longer wanted.
    pub fn leave(&self, programs: &Programs, sysfs: &Sysfs) {
        self.forget_next(programs);
        self.napis.iter().for_each(|queue| queue.give_up(&programs.maps));
        calm::device(&programs.maps, sysfs, self.device.index, &self.shown);
        self.give_up(&programs.maps);
    }

    /// No other stage's program runs behind this stage's here any more.
    pub fn forget_next(&self, programs: &Programs) {
        if self.device.can_shed {
            programs.forget_next(self.device.index);
        }
    }

    /// Nothing is done with it any more. In another namespace its threads go on: as ordinary ones.
    pub fn give_up(&self, maps: &Maps) {
        self.napis.iter().for_each(|queue| queue.give_up(maps));
        self.napis.iter().for_each(|queue| maps.forget(queue.id));
        maps.forget_device(self.device.index);
    }
}
