//! The agent's loop: looks at what NAPIs do, has a guard decide, and carries that out.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::unistd::getpid;

use crate::STAGE;
use crate::calm;
use crate::config::Config;
use crate::device::{self, Device};
use crate::guard::{Guard, Look, Mode, Rules, TICK};
use crate::keeper;
use crate::prepare;
use crate::programs::Programs;
use crate::skeleton::types::{poll_device, poll_napi};
use crate::threads::{self, GUARD, Given};
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::{Stop, monotonic_ns};
use tarn_frame::Running;
use tarn_kernel::attach;
use tarn_kernel::netdev;
use tarn_kernel::scheduling::{Policy, run_time_ns, set_policy};
use tarn_kernel::sysfs::Sysfs;

/// How often devices and their NAPIs are listed.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// The loop of a stage that is up.
pub struct Watch {
    config: Config,
    programs: Programs,
    sysfs: Sysfs,
    devices: Vec<Watched>,
    /// Devices that somebody else manages, by index.
    left_alone: Vec<u32>,
    /// Those of them that the journal has still.
    to_forget: Vec<u32>,
    /// Devices that `up` has prepared, and whether they can shed.
    prepared: Vec<(u32, bool)>,
    keeper: Option<Child>,
    /// Whether the kernel lets threads go first here.
    goes_first: bool,
    last: u64,
    listed: u64,
    /// How often it has looked.
    window: u32,
    /// The number of the program that sheds.
    program: u32,
}

/// A device that is watched.
struct Watched {
    device: Device,
    guard: Guard,
    napis: Vec<Queue>,
    is_threaded: bool,
    shown: poll_device,
    counts: [u64; 3],
    /// The kernel did not let it be threaded, or not.
    has_refused: bool,
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
    policy: Option<Policy>,
}

impl Queue {
    /// The kernel lists it no longer: its device is down, elsewhere or gone. The thread may be there still, and keep what it was given.
    fn give_up(&self) {
        if let (Some(thread), Some(_)) = (self.thread, self.policy) {
            let _ = set_policy(thread, Policy::Ordinary);
        }
    }
}

impl Watch {
    /// With programs that are loaded, and devices that were prepared, by index, with whether they can shed. Others are found when it runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(config: Config, programs: Programs, sysfs: Sysfs, prepared: Vec<(u32, bool)>) -> Result<Self> {
        let program = attach::program_id(programs.shed())?;
        Ok(Self {
            config,
            programs,
            sysfs,
            devices: Vec::new(),
            left_alone: Vec::new(),
            to_forget: Vec::new(),
            prepared,
            keeper: None,
            goes_first: false,
            last: 0,
            listed: 0,
            window: 0,
            program,
        })
    }
}

impl Running for Watch {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        // A guard that cannot see what a thread runs must not let it go first.
        let sees = run_time_ns(getpid().as_raw()).is_some_and(|ran| ran > 0);
        self.goes_first = sees && set_policy(0, Policy::Fifo(GUARD)).is_ok();
        if !self.goes_first {
            let why = "no real-time priority is allowed here (a control group without a budget for it?), or no run times are counted";
            log_at(
                Priority::Notice,
                STAGE,
                format!("{why}: threads that receive stay ordinary ones"),
            );
        }
        self.keeper = Some(keeper::start(&self.programs.maps.numbers()?)?);
        self.last = monotonic_ns();
        let outcome = self.look_until(&stop);
        // Also after an error: this is run again, but not at once.
        self.end();
        outcome
    }
}

impl Watch {
    fn look_until(&mut self, stop: &Stop) -> Result<()> {
        while !stop.wait(TICK) {
            self.look()?;
        }
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        let now = monotonic_ns();
        if now.saturating_sub(self.last) >= keeper::STUCK.as_nanos() as u64 {
            self.begin_anew();
        }
        if now.saturating_sub(self.listed) >= LIST_EVERY.as_nanos() as u64 {
            threads::as_ordinary(|| self.list())?;
            self.listed = now;
        }
        let elapsed = Duration::from_nanos(now.saturating_sub(self.last));
        self.last = now;
        let is_active = self.devices.iter().any(|watched| watched.guard.share() > 0);
        self.window = self.window.wrapping_add(1);
        self.programs.maps.beat(now, self.window, is_active)?;
        let looks: Vec<Look> = (self.devices.iter_mut())
            .map(|watched| watched.look(&self.programs, elapsed))
            .collect();
        let together = together(&self.devices, elapsed);
        for (watched, look) in self.devices.iter_mut().zip(looks) {
            let ran = watched.on_its_cpus(&together).unwrap_or_default().max(look.ran);
            let look = Look { ran, ..look };
            let before = watched.guard.mode();
            watched.guard.look(&look);
            watched.carry_out(&self.programs, &self.sysfs, &self.config, self.goes_first, &look);
            watched.report(before);
        }
        let is_active = self.devices.iter().any(|watched| watched.guard.share() > 0);
        self.programs.maps.beat(now, self.window, is_active)
    }

    /// Devices come and go, and so do their queues.
    fn list(&mut self) -> Result<()> {
        if self
            .keeper
            .as_mut()
            .is_some_and(|keeper| !matches!(keeper.try_wait(), Ok(None)))
        {
            bail!("the process that outlives the agent has ended");
        }
        let wanted = device::wanted(&self.config)?;
        let (programs, sysfs) = (&self.programs, &self.sysfs);
        self.devices.retain_mut(|watched| {
            let found = wanted.iter().find(|device| device.index == watched.device.index);
            match found {
                Some(device) => watched.device.name.clone_from(&device.name),
                None => watched.leave(programs, sysfs),
            }
            found.is_some()
        });
        self.left_alone
            .retain(|index| wanted.iter().any(|device| device.index == *index));
        for device in wanted {
            let is_known = self.devices.iter().any(|watched| watched.device.index == device.index);
            if !is_known && !self.left_alone.contains(&device.index) {
                self.take(device)?;
            }
        }
        let mut not_yet = Vec::new();
        for index in std::mem::take(&mut self.to_forget) {
            if !prepare::forget_later(index)? {
                not_yet.push(index);
            }
        }
        self.to_forget = not_yet;
        if monotonic_ns().saturating_sub(self.last) >= keeper::STUCK.as_nanos() as u64 {
            self.begin_anew();
            return Ok(());
        }
        let mut foreign = Vec::new();
        for watched in &mut self.devices {
            watched.list(&self.programs)?;
            watched.check_program(self.program)?;
            if threads::is_threaded(&self.sysfs, &watched.device.name) != Some(watched.is_threaded) {
                foreign.push(watched.device.index);
            }
        }
        for index in foreign {
            self.leave_alone(index);
        }
        Ok(())
    }

    fn take(&mut self, mut device: Device) -> Result<()> {
        if threads::is_threaded(&self.sysfs, &device.name) != Some(false) {
            self.left_alone.push(device.index);
            let why = "it is threaded already, or has no NAPIs";
            log(STAGE, format!("{} is left alone: {why}", device.name));
            return Ok(());
        }
        let prepared = self.prepared.iter().find(|(index, _)| *index == device.index);
        let can_shed = match prepared {
            Some((_, can_shed)) => Some(*can_shed),
            None => prepare::prepare_later(&device, &self.programs)?,
        };
        let Some(can_shed) = can_shed else {
            return Ok(()); // another tarn is at work: the next look
        };
        device.can_shed = can_shed;
        let rules = Rules {
            sheds: can_shed,
            keeps_threads: self.config.always_threads || !can_shed,
        };
        log(STAGE, described(&device, rules));
        let counts = self.programs.maps.counts(device.index);
        self.devices.push(Watched {
            guard: Guard::new(rules),
            device,
            napis: Vec::new(),
            is_threaded: false,
            shown: poll_device::default(),
            counts,
            has_refused: false,
        });
        Ok(())
    }

    /// Somebody else manages this device's threads from now on.
    fn leave_alone(&mut self, index: u32) {
        let Some(at) = self.devices.iter().position(|watched| watched.device.index == index) else {
            return;
        };
        let watched = self.devices.remove(at);
        watched.give_up(&self.programs);
        let name = &watched.device.name;
        if threads::is_threaded(&self.sysfs, name).is_some() {
            self.left_alone.push(index);
            self.to_forget.push(index);
            let text = format!("somebody else has changed whether {name} is threaded: it is left alone");
            log_at(Priority::Notice, STAGE, text);
        }
    }

    /// The agent was stopped for so long that the keeper has put back what it had done.
    fn begin_anew(&mut self) {
        calm::all(&self.programs.maps, &self.sysfs);
        for watched in &mut self.devices {
            watched.is_threaded = false;
            watched.napis.iter_mut().for_each(|queue| queue.policy = None);
        }
    }

    /// Softirqs receive again from all devices.
    fn end(&mut self) {
        self.begin_anew();
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

/// What busy threads of all devices ran, by the CPU that they ran on: two that share one must not take all of it.
fn together(devices: &[Watched], elapsed: Duration) -> BTreeMap<u32, Duration> {
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

fn described(device: &Device, rules: Rules) -> String {
    let threads = match rules.keeps_threads {
        true => "threads receive from it",
        false => "threads receive from it during storms",
    };
    let shed = if rules.sheds {
        ", and what exceeds a fair share is dropped"
    } else {
        ""
    };
    format!("{}: {threads}{shed}", device.name)
}

impl Watched {
    /// Its NAPIs, which come and go with its queues, and their threads.
    fn list(&mut self, programs: &Programs) -> Result<()> {
        let found = netdev::napis(self.device.index)?.unwrap_or_default();
        self.napis.retain(|known| {
            let stays = found.iter().any(|napi| napi.id == known.id);
            if !stays {
                programs.maps.forget(known.id);
                known.give_up();
            }
            stays
        });
        for napi in found {
            match self.napis.iter_mut().find(|known| known.id == napi.id) {
                Some(known) if known.thread != napi.thread => {
                    known.thread = napi.thread;
                    known.ran_ns = napi.thread.and_then(run_time_ns).unwrap_or_default();
                    known.policy = None;
                }
                Some(_) => {}
                None => {
                    if let Err(error) = programs.maps.follow(napi.id) {
                        log_at(Priority::Warning, STAGE, format!("{error:#}"));
                        continue;
                    }
                    self.has_refused = false;
                    self.napis.push(Queue {
                        id: napi.id,
                        thread: napi.thread,
                        counted: programs.maps.napi(napi.id).unwrap_or_default(),
                        ran_ns: napi.thread.and_then(run_time_ns).unwrap_or_default(),
                        ran: Duration::ZERO,
                        cpu: None,
                        policy: None,
                    });
                }
            }
        }
        Ok(())
    }

    fn look(&mut self, programs: &Programs, elapsed: Duration) -> Look {
        let counts = programs.maps.counts(self.device.index);
        let before = std::mem::replace(&mut self.counts, counts);
        let [source, port, spared] = [0, 1, 2].map(|what| counts[what].saturating_sub(before[what]));
        let mut look = Look {
            elapsed,
            shed: source + port,
            spared,
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
            look.mean_work = look.mean_work.max(work.checked_div(polls).unwrap_or_default());
            look.is_full |= polls > 0 && now.full.saturating_sub(before.full) == polls;
            (queue.ran, queue.cpu) = (Duration::ZERO, None);
            if let Some(ran) = queue.thread.and_then(run_time_ns) {
                let ran_since = ran.saturating_sub(std::mem::replace(&mut queue.ran_ns, ran));
                queue.ran = Duration::from_nanos(ran_since);
                look.ran = look.ran.max(queue.ran);
                if queue.ran * 4 > elapsed {
                    queue.cpu = queue.thread.and_then(threads::cpu_of);
                }
            }
        }
        look
    }

    /// Without the program nothing is shed, and then the device has to be threaded before an overload.
    fn check_program(&mut self, program: u32) -> Result<()> {
        if self.device.can_shed && attach::xdp_program(self.device.index)? != Some(program) {
            let name = &self.device.name;
            let text = format!(
                "somebody else has taken the XDP program from {name}: nothing is shed there, and threads receive"
            );
            log_at(Priority::Notice, STAGE, text);
            self.device.can_shed = false;
            self.guard = Guard::new(Rules {
                sheds: false,
                keeps_threads: true,
            });
        }
        Ok(())
    }

    /// The most that threads of all devices ran together on a CPU of its threads.
    fn on_its_cpus(&self, together: &BTreeMap<u32, Duration>) -> Option<Duration> {
        let cpus = self.napis.iter().filter_map(|queue| queue.cpu);
        cpus.filter_map(|cpu| together.get(&cpu)).max().copied()
    }

    /// Does what the guard has decided, and says so in the map of devices.
    fn carry_out(&mut self, programs: &Programs, sysfs: &Sysfs, config: &Config, goes_first: bool, look: &Look) {
        let (storms, demotions) = self.guard.counts();
        let mode = self.guard.mode();
        let is_threaded = mode != Mode::Calm;
        let shown = poll_device {
            share: self.guard.share(),
            threaded: is_threaded.into(),
            mode: mode as u32,
            used: look.share_of_cpu(),
            storms,
            demotions,
        };
        // Before the device becomes threaded, and after it is no longer: whoever puts it back must know.
        let is_told = |shown: &poll_device| {
            programs
                .maps
                .set_device(self.device.index, shown, self.device.can_shed)
                .is_ok()
        };
        if is_threaded || !self.is_threaded {
            is_told(&shown);
        }
        // Without NAPIs (a device that is down, Wi-Fi) there is nothing to thread.
        if is_threaded != self.is_threaded && !(self.napis.is_empty() || self.has_refused) {
            if !is_threaded {
                self.give(Policy::Ordinary);
            }
            match threads::as_ordinary(|| threads::set_threaded(sysfs, &self.device.name, is_threaded)) {
                Ok(()) => self.is_threaded = is_threaded,
                Err(error) => {
                    self.has_refused = true;
                    log_at(Priority::Warning, STAGE, format!("{error:#}"));
                }
            }
            let _ = self.list(programs);
            let _ = programs
                .maps
                .set_device(self.device.index, &shown, self.device.can_shed);
        }
        self.shown = shown;
        if self.is_threaded {
            self.give(match mode {
                Mode::First if goes_first => Policy::Fifo(config.priority),
                _ => Policy::Ordinary,
            });
        }
    }

    fn give(&mut self, wanted: Policy) {
        for queue in &mut self.napis {
            let Some(thread) = queue.thread.filter(|_| queue.policy != Some(wanted)) else {
                continue;
            };
            match threads::give(thread, queue.policy, wanted) {
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
        }
    }

    /// A line each way.
    fn report(&self, before: Mode) {
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

    /// It is gone, or no longer wanted.
    fn leave(&self, programs: &Programs, sysfs: &Sysfs) {
        calm::device(&programs.maps, sysfs, self.device.index, &self.shown);
        self.give_up(programs);
    }

    /// Nothing is done with it any more. In another namespace its threads go on: as ordinary ones.
    fn give_up(&self, programs: &Programs) {
        self.napis.iter().for_each(Queue::give_up);
        self.napis.iter().for_each(|queue| programs.maps.forget(queue.id));
        programs.maps.forget_device(self.device.index);
    }
}
