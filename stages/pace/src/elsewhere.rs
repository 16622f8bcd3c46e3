//! The congestion control that a tarn of another network namespace has registered: its name is the whole kernel's.
//!
//! A namespace that is deleted takes its agent with it or not, but never the name: nobody is left there to take it out. So `tarn up`
//! does it, where nothing lives in the namespace any more.

use anyhow::{Context, Result, bail};

use crate::STAGE;
use crate::change::PaceChange;
use crate::registration::NAME;
use crate::standing::registered;
use tarn_base::output::log;
use tarn_frame::agent;
use tarn_frame::journal::{Journal, OwnChange};
use tarn_frame::state::StateDirectory;
use tarn_kernel::netns;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Whether one of its name can be chosen.
fn is_available() -> Result<bool> {
    let text = std::fs::read_to_string(AVAILABLE).with_context(|| format!("cannot read {AVAILABLE}"))?;
    Ok(text.split_whitespace().any(|name| name == NAME))
}

/// Where nothing of it is up in this namespace: whether it can be registered.
///
/// # Errors
/// Another namespace has it, or nobody knows who.
pub fn check(state: &StateDirectory) -> Result<()> {
    if !is_available()? {
        return Ok(());
    }
    let Some(other) = owner(state)? else {
        bail!(
            "a congestion control {NAME} is registered, and no tarn knows of it: \
             `bpftool struct_ops unregister name {NAME}` takes it out"
        );
    };
    if is_alive(&other)? {
        let agent = agent::information(&other);
        let agent = agent.map_or_else(String::new, |agent| format!(", whose agent is process {}", agent.pid));
        bail!(
            "another network namespace has {NAME} ({}{agent}), and it is the whole kernel's: \
             `tarn down` there takes it out",
            other.name()
        );
    }
    Ok(())
}

/// Takes out what a namespace that is gone has left.
///
/// # Errors
/// The kernel's.
pub fn clear(state: &StateDirectory) -> Result<()> {
    if !is_available()? {
        return Ok(());
    }
    let Some(other) = owner(state)? else { return Ok(()) };
    let mut journal = Journal::open(&other)?;
    let changes: Vec<(u64, PaceChange)> = journal
        .changes(STAGE)
        .rev()
        .filter_map(|(id, change)| Some((id, PaceChange::of(change)?)))
        .collect();
    for (id, change) in changes {
        // What else its journal has is of the namespace, and has gone with it.
        if let PaceChange::CongestionControl(_) | PaceChange::GroupProgram { .. } = change {
            change.undo()?;
            journal.forget(id)?;
        }
    }
    log(
        STAGE,
        format!("{NAME} was left by a network namespace that is gone, {}", other.name()),
    );
    Ok(())
}

/// The namespace whose journal has it.
fn owner(state: &StateDirectory) -> Result<Option<StateDirectory>> {
    for other in state.others()? {
        if registered(&Journal::open(&other)?)?.is_some() {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

fn is_alive(other: &StateDirectory) -> Result<bool> {
    if agent::is_running(other) {
        return Ok(true);
    }
    let name = other.name();
    let cookie = name.rsplit('-').next().and_then(|cookie| cookie.parse().ok());
    let cookie: u64 = cookie.with_context(|| format!("{name} is no name of a network namespace"))?;
    Ok(netns::living()?.contains(&cookie))
}
