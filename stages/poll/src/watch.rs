//! The agent's loop: looks at what NAPIs do, has a guard decide, and carries that out.

use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::unistd::getpid;

use crate::STAGE;
use crate::awake;
use crate::calm;
use crate::config::Config;
use crate::device::{self, Device};
use crate::guard::{Look, Rules, TICK};
use crate::keeper;
use crate::prepare;
use crate::programs::Programs;
use crate::stand_in::StandIn;
use crate::threads::{self, GUARD};
use crate::watched::{May, Watched, together};
use crate::weights::Weights;
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
    stand_in: Arc<StandIn>,
    sysfs: Sysfs,
    devices: Vec<Watched>,
    /// Devices that somebody else manages, by index.
    left_alone: Vec<u32>,
    /// Devices that the journal has still, though nothing is to be put back on them.
    to_forget: Vec<u32>,
    /// Devices that went to another namespace while they were threaded, by index.
    away: Vec<u32>,
    /// Devices that `up` has prepared, and whether they can shed.
    prepared: Vec<(u32, bool)>,
    keeper: Option<Child>,
    weights: Weights,
    /// Whether the kernel lets threads go first here.
    goes_first: bool,
    last: u64,
    listed: u64,
    /// How often it has looked.
    window: u32,
    /// Whether any device has another stage's program as well.
    has_next: bool,
    /// The number of the program that sheds.
    program: u32,
}

impl Watch {
    /// With programs that are loaded, devices that were prepared, by index, with whether they can shed, and devices that an earlier agent
    /// may have made threaded and that have gone to another namespace since, or are back and still down. Others are found when it runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(
        config: Config,
        programs: Programs,
        sysfs: Sysfs,
        prepared: Vec<(u32, bool)>,
        away: Vec<u32>,
    ) -> Result<Self> {
        let program = attach::program_id(programs.shed())?;
        Ok(Self {
            stand_in: Arc::new(StandIn::new(Arc::clone(&programs.maps))),
            programs,
            sysfs,
            devices: Vec::new(),
            left_alone: Vec::new(),
            to_forget: Vec::new(),
            away,
            prepared,
            keeper: None,
            weights: Weights::new(config.weight),
            goes_first: false,
            last: 0,
            listed: 0,
            window: 0,
            has_next: false,
            program,
            config,
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
        let _awake = self.config.stays_awake.then(awake::stay_awake);
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
        if monotonic_ns().saturating_sub(self.listed) >= LIST_EVERY.as_nanos() as u64 {
            let stand_in = Arc::clone(&self.stand_in);
            stand_in.while_ordinary(|| self.list())?;
            self.listed = monotonic_ns();
        }
        let demoted = self.stand_in.take_demoted();
        for watched in &mut self.devices {
            watched.were_demoted(&demoted);
        }
        // A list may take long, and so may this.
        if self.is_stuck() {
            self.begin_anew();
        }
        let now = monotonic_ns();
        let elapsed = Duration::from_nanos(now.saturating_sub(self.last));
        self.last = now;
        self.window = self.window.wrapping_add(1);
        self.beat(now)?;
        let looks: Vec<Look> = (self.devices.iter_mut())
            .map(|watched| {
                let look = watched.look(&self.programs, elapsed);
                watched.find_program(&self.programs, &look);
                look
            })
            .collect();
        let together = together(&self.devices, elapsed);
        let mut before = Vec::with_capacity(looks.len());
        for (watched, look) in self.devices.iter_mut().zip(looks) {
            let ran = watched.on_its_cpus(&together).unwrap_or_default().max(look.ran);
            let look = Look { ran, ..look };
            before.push(watched.guard.mode());
            watched.guard.look(&look);
            watched.announce(&self.programs.maps, &look);
        }
        // Before threads begin, for which others may have to get the CPU first: what exceeds a share is shed from now on.
        self.beat(now)?;
        // Their map has one entry a queue, of whatever device.
        let mut is_taken = self.devices.iter().any(Watched::redirects);
        for (watched, before) in self.devices.iter_mut().zip(before) {
            let was_threaded = watched.is_threaded();
            let may = May {
                go_first: self.goes_first,
                redirect: !is_taken || watched.redirects(),
            };
            watched.carry_out(&self.programs, &self.sysfs, &self.config, may);
            is_taken |= watched.redirects();
            watched.report(before);
            if watched.is_threaded() != was_threaded && self.weights.are_wanted() {
                self.listed = 0; // they are due
            }
        }
        Ok(())
    }

    /// Says that the agent looks, and what it has decided for all devices.
    fn beat(&self, now: u64) -> Result<()> {
        let sheds = self.devices.iter().any(|watched| watched.guard.share() > 0);
        let redirects = self.devices.iter().any(Watched::redirects);
        self.programs
            .maps
            .beat(now, self.window, sheds, self.has_next, redirects)
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
        let is_here = |index: u32| wanted.iter().any(|device| device.index == index);
        if !self.devices.iter().all(|watched| is_here(watched.device.index)) {
            // To have softirqs receive again may take long (calm.rs), and nobody guards meanwhile.
            calm::demote(&self.programs.maps);
            self.devices.iter_mut().for_each(Watched::went_last);
        }
        self.prepared.retain(|(index, _)| is_here(*index));
        let (programs, sysfs) = (&self.programs, &self.sysfs);
        let (away, to_forget) = (&mut self.away, &mut self.to_forget);
        self.devices.retain_mut(|watched| {
            let found = wanted.iter().find(|device| device.index == watched.device.index);
            match found {
                Some(device) => watched.device.name.clone_from(&device.name),
                None => {
                    let index = watched.device.index;
                    // Should it come back threaded, somebody else has made it so.
                    to_forget.extend((!watched.is_threaded()).then_some(index));
                    watched.leave(programs, sysfs);
                    away.extend(watched.is_away(sysfs).then_some(index));
                }
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
        let mut devices = self.devices.iter().map(|watched| watched.device.index);
        self.has_next = devices.any(|index| self.programs.has_next(index));
        let mut foreign = Vec::new();
        for watched in &mut self.devices {
            watched.list(&self.programs)?;
            watched.check_program(self.program)?;
            if watched.is_foreign(&self.sysfs) {
                foreign.push(watched.device.index);
            }
        }
        // What looks like somebody else's change may be the keeper's by now.
        if self.is_stuck() {
            self.begin_anew();
            return Ok(());
        }
        for index in foreign {
            self.leave_alone(index);
        }
        let threaded = self.devices.iter().filter(|watched| watched.is_threaded());
        self.weights
            .set(threaded.map(|watched| (watched.device.index, watched.queues())));
        Ok(())
    }

    /// Whether the agent has not looked for so long that the keeper puts back what it has done.
    fn is_stuck(&self) -> bool {
        monotonic_ns().saturating_sub(self.last) >= keeper::STUCK.as_nanos() as u64
    }

    fn take(&mut self, mut device: Device) -> Result<()> {
        let Some(is_threaded) = threads::is_threaded(&self.sysfs, &device.name) else {
            return Ok(()); // it has another name by now, or is gone: the next look
        };
        let is_back = is_threaded && self.away.contains(&device.index);
        if is_threaded && !is_back {
            self.left_alone.push(device.index);
            log(STAGE, format!("{} is left alone: it is threaded already", device.name));
            return Ok(());
        }
        let prepared = self.prepared.iter().find(|(index, _)| *index == device.index);
        let can_shed = match prepared {
            Some((_, can_shed)) => Some(*can_shed),
            None => prepare::prepare_later(&device, &self.config, &self.programs)?,
        };
        let Some(can_shed) = can_shed else {
            return Ok(()); // another tarn is at work: the next look
        };
        device.can_shed = can_shed;
        let rules = Rules {
            sheds: can_shed,
            keeps_threads: self.config.always_threads || !can_shed,
        };
        let napis = netdev::napis(device.index).ok().flatten();
        let has_napi = napis.is_none_or(|napis| !napis.is_empty());
        log(STAGE, described(&device, rules, has_napi));
        self.away.retain(|index| *index != device.index);
        self.to_forget.retain(|index| *index != device.index);
        let watched = if is_back { Watched::back } else { Watched::new };
        self.devices
            .push(watched(device, rules, &self.programs.maps, Arc::clone(&self.stand_in)));
        Ok(())
    }

    /// Somebody else manages this device's threads from now on.
    fn leave_alone(&mut self, index: u32) {
        let Some(at) = self.devices.iter().position(|watched| watched.device.index == index) else {
            return;
        };
        let watched = self.devices.remove(at);
        watched.give_up(&self.programs.maps);
        let name = &watched.device.name;
        if threads::is_threaded(&self.sysfs, name).is_none() {
            // It is elsewhere, or has another name.
            watched.forget_next(&self.programs);
            self.away.extend(watched.is_threaded().then_some(index));
        } else {
            self.prepared.retain(|(prepared, _)| *prepared != index);
            self.left_alone.push(index);
            self.to_forget.push(index);
            let text = format!("somebody else has changed whether {name} is threaded: it is left alone");
            log_at(Priority::Notice, STAGE, text);
        }
    }

    /// The agent was stopped for so long that the keeper has put back what it had done, or does so once it is calm.
    fn begin_anew(&mut self) {
        calm::demote(&self.programs.maps);
        threads::as_ordinary(|| {
            for watched in &mut self.devices {
                watched.was_put_back(&self.sysfs);
            }
        });
    }

    /// Softirqs receive again from all devices.
    fn end(&mut self) {
        calm::all(&self.programs.maps, &self.sysfs);
        self.begin_anew();
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

fn described(device: &Device, rules: Rules, has_napi: bool) -> String {
    let threads = match rules.keeps_threads {
        true if !has_napi => "softirqs receive from it, because it has no NAPI; threads do as soon as it has one",
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
