//! The agent's part: control groups come and go with their services, and a program goes with its group.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::STAGE;
use crate::config::Config;
use crate::standing::config_of;
use crate::steer;
use tarn_base::output::{Priority, log, log_at};
use tarn_base::runtime::Stop;
use tarn_frame::journal::Journal;
use tarn_frame::{Running, up};
use tarn_kernel::cgroup;

/// How often it looks: connections that a service makes in the first second of its life keep the default.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the agent does for a configuration.
pub fn running(config: &Config) -> Box<dyn Running> {
    match config.groups[..] {
        [] => Box::new(Idle),
        _ => Box::new(Follower {
            // None is seen yet: one may be made while `tarn up` is at work.
            seen: config.groups.iter().map(|group| (group.clone(), None)).collect(),
        }),
    }
}

/// The kernel does it all.
struct Idle;

impl Running for Idle {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        while !stop.wait(Duration::MAX) {}
        Ok(())
    }
}

/// By what a group is told from one that is made anew under its name; `None` when there is none.
fn identity(group: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(cgroup::root().ok()?.join(group)).ok()?;
    Some(metadata.ino())
}

struct Follower {
    /// The groups that are named, as they were when they were last looked at.
    seen: BTreeMap<PathBuf, Option<u64>>,
}

impl Running for Follower {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        while !stop.wait(INTERVAL) {
            self.look();
        }
        Ok(())
    }
}

impl Follower {
    fn look(&mut self) {
        for (group, seen) in &mut self.seen {
            let now = identity(group);
            if now == *seen {
                continue;
            }
            // Where another tarn is at work, or the kernel refuses, the next look tries again; one line will do.
            match now.map_or(Ok(true), |_| attach(group)) {
                Ok(true) => *seen = now,
                Ok(false) => {}
                Err(error) if seen.is_none_or(|seen| seen != 0) => {
                    log_at(Priority::Warning, STAGE, format!("{}: {error:#}", group.display()));
                    *seen = Some(0);
                }
                Err(_) => {}
            }
        }
    }
}

/// Has the connections of a group take it that was made anew; false where another tarn is at work, which may wait for this agent to end.
fn attach(group: &Path) -> Result<bool> {
    let (state, _) = up::find(STAGE, "agent", config_of)?;
    let Some(_lock) = state.try_lock("pace agent")? else {
        return Ok(false);
    };
    let config = config_of(&state)?;
    if !config.is_some_and(|config| config.groups.iter().any(|named| named == group)) {
        return Ok(true);
    }
    if steer::attach_again(group, &mut Journal::open(&state)?)? {
        let group = group.display();
        log(STAGE, format!("new connections of the control group {group} take it"));
    }
    Ok(true)
}
