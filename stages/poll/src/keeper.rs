//! What outlives an agent that dies in a storm: a process of its own that has the threads go last and softirqs receive again.
//!
//! A priority without a guard is the one state of tarn's that is not safe to leave behind: the threads of a flood would end everything
//! else on their CPUs. The agent's standard input of this process is a pipe that the kernel closes at the agent's end; an agent that
//! lives but does not look any more is known by its last beat, in the map that the programs go by, too. What is to be put back stands
//! in the maps of devices and of threads that go first. This process has the agent's priority, which the threads never have, and sleeps.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgMatches, value_parser};
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::STAGE;
use crate::calm;
use crate::programs::Maps;
use crate::standing::Maps as Numbers;
use crate::threads::GUARD;
use tarn_base::output::{Priority, log_at};
use tarn_base::runtime::{monotonic_ns, readable};
use tarn_kernel::scheduling::{Policy, set_policy};
use tarn_kernel::sysfs::Sysfs;

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
    // systemd ends what is left of a service: this has to finish first, which takes a moment.
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.context("cannot ignore a signal")?;
    if set_policy(0, Policy::Fifo(GUARD)).is_err() {
        log_at(Priority::Notice, STAGE, "no real-time priority is allowed here");
    }
    wait_for_the_end(&maps, &sysfs)
}

fn wait_for_the_end(maps: &Maps, sysfs: &Sysfs) -> Result<()> {
    let input = std::io::stdin();
    let mut is_stuck = false;
    loop {
        if readable(&[input.as_fd()], INTERVAL) == [true] && is_closed(&input)? {
            calm::all(maps, sysfs);
            return Ok(());
        }
        let last = maps.last_beat().unwrap_or_default();
        let was_stuck = std::mem::replace(
            &mut is_stuck,
            monotonic_ns().saturating_sub(last) > STUCK.as_nanos() as u64,
        );
        if is_stuck {
            calm::all(maps, sysfs);
            if !was_stuck {
                log_at(
                    Priority::Warning,
                    STAGE,
                    "the agent does not look any more: softirqs receive again until it does",
                );
            }
        }
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
