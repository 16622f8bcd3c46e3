//! Has polls of watched devices take fewer packets than the kernel lets them, where that is configured.

use std::collections::BTreeMap;

use anyhow::Result;
use nix::errno::Errno;

use crate::STAGE;
use crate::module::{KERNEL_WEIGHT, Module, Rule};
use tarn_base::output::{Priority, log_at};
use tarn_kernel::genl::refusal;

/// Sets weights, and keeps them set.
pub struct Weights {
    weight: Option<u32>,
    /// Whether the last time succeeded: a failure is reported once.
    has_failed: bool,
}

impl Weights {
    /// This many packets a poll; `None`: nothing is done.
    pub fn new(weight: Option<u32>) -> Self {
        let has_failed = false;
        Self { weight, has_failed }
    }

    /// Whether anything is to be done.
    pub fn are_wanted(&self) -> bool {
        self.weight.is_some()
    }

    /// Sets the weight of devices' NAPIs, of those too that have come since the last time; others have the kernel's again. `devices` has the devices' indices, and how
    /// many NAPIs each has.
    pub fn set(&mut self, devices: impl Iterator<Item = (u32, usize)>) {
        let Some(weight) = self.weight else { return };
        let outcome = set(weight, devices);
        if let Err(error) = &outcome
            && !self.has_failed
        {
            log_at(
                Priority::Warning,
                STAGE,
                format!("polls take as many packets as the kernel lets them: {error:#}"),
            );
        }
        self.has_failed = outcome.is_err();
    }
}

/// Goes on after a failure, and returns the first.
fn set(weight: u32, devices: impl Iterator<Item = (u32, usize)>) -> Result<()> {
    let mut module = Module::loaded()?;
    let known = module.napis()?;
    let devices: Vec<(u32, usize)> = devices.collect();
    let is_set = |device: u32| {
        known
            .iter()
            .filter(move |napi| napi.device == device && napi.weight == weight)
    };
    // A NAPI whose driver has chosen a weight stays out: asked for again, nothing happens.
    let due = devices
        .iter()
        .filter(|(device, count)| is_set(*device).count() < *count);
    let mut wanted = due.map(|(device, _)| (*device, weight)).collect::<BTreeMap<_, _>>();
    let left = known
        .iter()
        .filter(|napi| devices.iter().all(|(device, _)| *device != napi.device));
    wanted.extend(left.map(|napi| (napi.device, KERNEL_WEIGHT)));
    let outcomes = wanted
        .into_iter()
        .map(|(device, weight)| module.set(device, Rule::Fixed(weight)));
    let is_failure = |outcome: &Result<()>| {
        outcome
            .as_ref()
            .is_err_and(|error| refusal(error) != Some(Errno::ENODEV))
    };
    let failures: Vec<Result<()>> = outcomes.filter(is_failure).collect();
    failures.into_iter().next().unwrap_or(Ok(()))
}

/// Gives the NAPIs of this namespace their weight back. A module that is not loaded has set none.
///
/// # Errors
/// The kernel's.
pub fn put_back() -> Result<()> {
    let Some(mut module) = Module::find()? else {
        return Ok(());
    };
    match module.stop() {
        // In a container that may not stop anything, nothing was set either.
        Err(error) if refusal(&error) == Some(Errno::EPERM) => Ok(()),
        outcome => outcome.map(drop),
    }
}
