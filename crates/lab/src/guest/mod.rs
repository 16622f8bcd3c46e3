//! The guest's side of the lab: what runs as process 1 of the virtual machine.
//!
//! Process 1 prepares the system ([`boot`]), starts the job in a process of its own and from then on only reaps.
//! So whatever becomes of the job (an error, a panic, a crash), somebody is left to say so and to end the machine.

use std::panic::PanicHookInfo;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use self::channel::Channel;
use super::experiment::{Experiment, Guest, Measurement};
use super::protocol::{JOB_PATH, Job, Message};
use crate::{Proofs, experiments};

mod boot;
mod channel;
mod checkers;
mod harness;
mod kernel_log;
mod quiet;
mod shell;

/// Called before `main`, because a test harness has one that is not ours: as process 1 of a guest, it becomes the guest.
#[used]
// SAFETY: the section holds pointers to functions that the C library calls one after the other when a program starts;
// this one only calls what needs nothing that `main` prepares.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    if std::process::id() == 1 && matches!(job(), Ok(Job::Tests { .. })) {
        main(&[]);
    }
}

fn job() -> Result<Job> {
    let job = std::fs::read(JOB_PATH).with_context(|| format!("cannot read the job {JOB_PATH}"))?;
    serde_json::from_slice(&job).with_context(|| format!("cannot understand the job {JOB_PATH}"))
}

/// The life of process 1: boots, runs the job, ends the machine.
pub fn main(proofs: Proofs) -> ! {
    // As Rust's own start does: a program that reads no more must not end the one that writes to it.
    // SAFETY: no handler is set, and there is no other thread.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    let channel = match Channel::open() {
        Ok(channel) => channel,
        Err(error) => {
            eprintln!("tarn: the guest cannot reach its host: {error:#}");
            end_machine()
        }
    };
    if let Err(error) = supervise(proofs, &channel) {
        channel.send(&Message::Ended {
            error: Some(format!("{error:#}")),
        });
    }
    end_machine()
}

/// Boots, and runs the job in a child; an error is one that the job could not report itself.
fn supervise(proofs: Proofs, channel: &Channel) -> Result<()> {
    boot::prepare()?;
    channel.send(&Message::Started {
        kernel: boot::kernel_release()?,
    });
    let job = job()?;
    // SAFETY: process 1 has no other thread, so the child may do anything.
    match unsafe { fork() }.context("cannot start the job's process")? {
        ForkResult::Child => perform(proofs, channel, job),
        ForkResult::Parent { child } => reap_until(child),
    }
}

/// Waits for every orphan of the system until the job's own process has ended.
fn reap_until(job: Pid) -> Result<()> {
    loop {
        match waitpid(None, None).context("cannot wait for the job's process")? {
            WaitStatus::Exited(pid, 0) if pid == job => return Ok(()),
            WaitStatus::Exited(pid, code) if pid == job => bail!("the job's process ended with exit code {code}"),
            WaitStatus::Signaled(pid, signal, _) if pid == job => {
                bail!("the job's process was killed by {signal}; the end of the console log may say why")
            }
            _ => {}
        }
    }
}

/// The job's process: exit code 0 means that its end was reported.
fn perform(proofs: Proofs, channel: &Channel, job: Job) -> ! {
    let panic_channel = channel.clone();
    std::panic::set_hook(Box::new(move |panic| report_panic(&panic_channel, panic)));
    let error = run(proofs, channel, job).err().map(|error| format!("{error:#}"));
    channel.send(&Message::Ended { error });
    std::process::exit(0)
}

/// A panic on any thread ends the job: what is left of the experiment could only be wrong.
fn report_panic(channel: &Channel, panic: &PanicHookInfo<'_>) {
    eprintln!("{panic}");
    channel.send(&Message::Ended {
        error: Some(panic.to_string()),
    });
    std::process::exit(0)
}

fn run(proofs: Proofs, channel: &Channel, job: Job) -> Result<()> {
    match job {
        Job::Experiment {
            name,
            part,
            seed,
            size,
            suite,
        } => {
            let progress = channel.clone();
            let mut guest = Guest {
                part,
                seed,
                size,
                suite,
                progress: Box::new(move |step, fraction| progress.progress(step, fraction)),
            };
            channel.send(&Message::Measured(run_experiment(proofs, &name, &mut guest)?));
            Ok(())
        }
        Job::Tests { tests, circumstances } => harness::run(channel, &tests, &circumstances),
        Job::Shell => shell::run(),
    }
}

fn run_experiment(proofs: Proofs, name: &str, guest: &mut Guest) -> Result<Measurement> {
    let experiment = find_experiment(proofs, name)?;
    quiet::wait(Duration::from_secs(30))?;
    guest.progress(name, 0.0);
    let measured = (experiment.run)(guest).and_then(|measurement| {
        measurement.check()?;
        Ok(measurement)
    });
    measured.with_context(|| format!("experiment {name}"))
}

fn find_experiment(proofs: Proofs, name: &str) -> Result<&'static Experiment> {
    experiments(proofs)
        .find(|experiment| experiment.name == name)
        .with_context(|| {
            let known: Vec<_> = experiments(proofs).map(|experiment| experiment.name).collect();
            format!("there is no experiment {name:?}; known: {}", known.join(", "))
        })
}

/// Restarts the machine, which ends QEMU (`-no-reboot`). A reset stops the vCPU at once; Linux has halted a second one by
/// then. A vCPU that has powered off executes instructions until QEMU's main loop has its turn. If even the reset fails,
/// the kernel panics when process 1 ends, which ends QEMU too.
fn end_machine() -> ! {
    nix::unistd::sync();
    let Err(error) = reboot(RebootMode::RB_AUTOBOOT);
    eprintln!("tarn: cannot end the machine: {error}");
    std::process::exit(1)
}
