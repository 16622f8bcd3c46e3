//! Brings the stage up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::STAGE;
use crate::buffers;
use crate::calm;
use crate::change::PollChange;
use crate::config::Config;
use crate::cpus::Cpus;
use crate::device;
use crate::module::MODULE;
use crate::prepare::prepare;
use crate::probe;
use crate::programs::{Maps, Programs};
use crate::standing::{FILE, Standing, standing};
use crate::threads;
use crate::watch::Watch;
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::Stop;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running};
use tarn_kernel::modules;
use tarn_kernel::sysctl;
use tarn_kernel::sysfs::Sysfs;

impl Configured for Config {
    fn missing(&self) -> Vec<Ability> {
        let mut needed = probe::abilities();
        if self.weight.is_some() && probe::nothing_to_do(self.always_threads).is_none() {
            needed.extend(MODULE.abilities());
        }
        let needed = needed.into_iter();
        needed.filter(|ability| ability.required && !ability.present).collect()
    }

    fn fits(&self, _: &StateDirectory) -> Result<()> {
        self.cpus.as_ref().map_or(Ok(()), Cpus::check)
    }

    fn plan(&self) -> Result<Vec<String>> {
        if let Some(reason) = probe::nothing_to_do(self.always_threads) {
            return Ok(vec![format!("# nothing: {reason}")]);
        }
        self.cpus.as_ref().map_or(Ok(()), Cpus::check)?;
        let mut plan = Vec::new();
        if let Some(weight) = self.weight {
            plan.extend(modules::command(MODULE.name));
            plan.push(format!("# {}: a poll takes at most {weight} packets", MODULE.name));
        }
        let devices = device::wanted(self)?;
        if let Some(value) = buffers::wanted().filter(|_| devices.iter().any(|device| device.can_shed)) {
            plan.push(format!(
                "sysctl {}={value}",
                sysctl::name(Path::new(buffers::PARAMETER))
            ));
        }
        for device in devices {
            let name = &device.name;
            if device.can_shed {
                plan.push(format!("ip link set {name} xdpdrv object poll.bpf.o section xdp"));
            }
            let always = self.always_threads || !device.can_shed;
            let when = if always { "now" } else { "during a storm" };
            plan.push(format!("echo 1 >/sys/class/net/{name}/threaded   # {when}"));
            plan.push(format!(
                "chrt --fifo --pid {} PID   # its threads', while they leave others enough",
                self.priority
            ));
            if let Some(cpus) = &self.cpus {
                plan.push(format!("taskset --cpu-list --pid {cpus} PID   # its threads"));
            }
        }
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let before: Vec<Change> = journal.changes(STAGE).map(|(_, change)| change.clone()).collect();
        let earlier = standing(state)?.and_then(|standing| Maps::open(&standing.maps));
        let sysfs = Sysfs::of_this_namespace()?;
        if let Some(maps) = earlier {
            // An agent that was killed a moment ago: who outlives it has the same to do.
            calm::all(&maps, &sysfs);
        }
        if let Some(reason) = probe::nothing_to_do(self.always_threads) {
            log(STAGE, format!("nothing is changed: {reason}"));
            journal.undo_of(STAGE, |change| before.contains(change))?;
            let (config, maps) = (self.clone(), Default::default());
            state.write_json(FILE, &Standing { config, maps })?;
            return Ok(Box::new(Idle));
        }
        let programs = Programs::load()?;
        if self.weight.is_some() {
            MODULE.load(STAGE, journal)?;
            MODULE.record_configuration(STAGE, journal)?;
        }
        let mut prepared = Vec::new();
        for device in device::wanted(self)? {
            if threads::is_threaded(&sysfs, &device.name) == Some(false) {
                prepared.push((device.index, prepare(&device, self, &programs, journal)?));
            }
        }
        let sheds = prepared.iter().any(|(_, sheds)| *sheds);
        if sheds {
            buffers::enlarge(journal)?;
        }
        let away = away(&before, &sysfs);
        let maps = programs.maps.numbers()?;
        let config = self.clone();
        state.write_json(FILE, &Standing { config, maps })?;
        // Last: should anything fail before, it goes on.
        let goes_on = |change: &Change| match PollChange::of(change) {
            Some(PollChange::Threaded { index, cpus, .. }) => {
                away.contains(&index) || cpus == self.cpus && prepared.iter().any(|(known, _)| *known == index)
            }
            None if buffers::is_it(change) => sheds,
            None if matches!(change, Change::Xdp { index, .. } if away.contains(index)) => true,
            None => {
                self.weight.is_some() && matches!(change, Change::Module { .. } | Change::ModuleConfiguration { .. })
            }
        };
        let is_over = |change: &Change| before.contains(change) && !goes_on(change);
        if let Err(error) = journal.undo_of(STAGE, is_over) {
            log_at(
                Priority::Warning,
                STAGE,
                format!("what an earlier `tarn up` set up goes on: {error:#}"),
            );
        }
        Ok(Box::new(Watch::new(self.clone(), programs, sysfs, prepared, away)?))
    }
}

/// The devices that an earlier agent may have made threaded, and that are not here now: they may come back as they went. Or they have just
/// come: to change its namespace sets a device down.
fn away(changes: &[Change], sysfs: &Sysfs) -> Vec<u32> {
    let threaded = changes.iter().filter_map(|change| match PollChange::of(change)? {
        PollChange::Threaded { index, .. } => Some(index),
    });
    let is_as_it_went =
        |name: String| threads::is_down(sysfs, &name) && threads::is_threaded(sysfs, &name) == Some(true);
    threaded
        .filter(|index| calm::name_of(*index).is_none_or(is_as_it_went))
        .collect()
}

/// On a host where there is nothing to do.
struct Idle;

impl Running for Idle {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        while !stop.wait(Duration::MAX) {}
        Ok(())
    }
}
