//! What outlives an agent that dies in a storm: a process of its own that has the threads go last and softirqs receive again.
//!
//! A priority without a guard is the one state of tarn's that is not safe to leave behind: the threads of a flood would end everything
//! else on their CPUs. The agent's standard input of this process is a pipe that the kernel closes at the agent's end; an agent that
//! lives but does not look any more is known by its last beat, in the map that the programs go by, too. What is to be put back stands
//! in the maps of devices and of threads that go first. While a storm goes on, the threads only go last: with softirqs, each network
//! call of a program would last for milliseconds again, those of an agent that is started again among them. This process has the agent's priority, which the threads never have, and sleeps.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgMatches, value_parser};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::STAGE;
use crate::calm::{self, Business};
use crate::programs::Maps;
use crate::standing::Maps as Numbers;
use crate::threads::{self, GUARD};
use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::{monotonic_ns, readable};
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_kernel::sysfs::Sysfs;

/// Looks in a row in which the threads have little to do, after which a storm is over.
const CALM_LOOKS: u32 = 2;

/// The hidden verb by which the agent starts it.
pub const VERB: &str = "keep";
/// Its argument.
const MAPS: &str = "maps";

/// How often it looks for a beat.
const INTERVAL: Duration = Duration::from_millis(100);
/// An agent that has not looked for so long is stuck: fifty looks.
pub const STUCK: Duration = Duration::from_millis(500);

/// The verb.
pub fn command() -> clap::Command {
    let maps = Arg::new(MAPS)
        .num_args(Numbers::COUNT)
        .required(true)
        .value_parser(value_parser!(u32));
    clap::Command::new(VERB).hide(true).arg(maps)
}

/// Starts it. It ends after its standard input is closed.
///
/// # Errors
/// The program cannot be started again.
pub fn start(numbers: &Numbers) -> Result<Child> {
    let program = std::env::current_exe().context("cannot find this program")?;
    Command::new(program)
        .args([STAGE, VERB])
        .args(numbers.to_array().map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the process that outlives the agent")
}

/// The verb: waits for the agent's end.
///
/// # Errors
/// The maps are gone.
pub fn keep(matches: &ArgMatches) -> Result<()> {
    let given: Vec<u32> = matches.get_many(MAPS).unwrap_or_default().copied().collect();
    let numbers = given.try_into().map(Numbers::from_array);
    let numbers = numbers.map_err(|_| anyhow!("the agent starts this verb itself"))?;
    let maps = Maps::open(&numbers).context("the agent that started this has ended")?;
    let sysfs = Sysfs::of_this_namespace()?;
    // Whoever ends all of a service's processes must not end this one before it has done its work.
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.context("cannot ignore a signal")?;
    if set_policy(0, Policy::Fifo(GUARD)).is_err() {
        log_at(Priority::Notice, STAGE, "no real-time priority is allowed here");
    }
    wait_for_the_end(&maps, &sysfs)
}

fn wait_for_the_end(maps: &Maps, sysfs: &Sysfs) -> Result<()> {
    let input = std::io::stdin();
    let mut stuck = None;
    let mut own_beat = None;
    loop {
        if readable(&[input.as_fd()], INTERVAL) == [true] && is_closed(&input)? {
            return calm_down(maps, sysfs);
        }
        let last = maps.last_beat();
        let ago = monotonic_ns().saturating_sub(last.unwrap_or_default());
        if ago <= STUCK.as_nanos() as u64 && last != own_beat {
            stuck = None;
            continue;
        }
        if stuck.is_none() {
            let what = "the agent does not look any more: threads go last, and softirqs receive again, until it does";
            log_at(Priority::Warning, STAGE, what);
        }
        let after = stuck.get_or_insert_with(After::default);
        after.look(maps, sysfs);
        own_beat = maps.last_beat();
    }
}

/// After the agent's end. Another one that is started meanwhile puts the devices back itself.
fn calm_down(maps: &Maps, sysfs: &Sysfs) -> Result<()> {
    let mut after = After::default();
    while !after.look(maps, sysfs) {
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}

/// What is done for an agent that does nothing any more.
#[derive(Default)]
struct After {
    business: Business,
    calm: u32,
}

impl After {
    /// Has threads go last, and softirqs receive again once it is calm. Returns whether all is put back.
    fn look(&mut self, maps: &Maps, sysfs: &Sysfs) -> bool {
        calm::demote(maps);
        let is_threaded = || maps.devices().iter().any(|(_, shown)| shown.threaded != 0);
        if !is_threaded() {
            // The weights.
            calm::all(maps, sysfs);
            return true;
        }
        let is_busy = threads::as_ordinary(|| self.business.look(maps));
        self.calm = if is_busy { 0 } else { self.calm + 1 };
        let is_over = self.calm >= CALM_LOOKS;
        if is_over {
            calm::all(maps, sysfs);
        }
        is_over
    }
}

/// The agent writes nothing into the pipe.
fn is_closed(mut input: &std::io::Stdin) -> Result<bool> {
    match std::io::Read::read(&mut input, &mut [0; 16]) {
        Ok(count) => Ok(count == 0),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error).context("cannot read from the agent"),
    }
}
