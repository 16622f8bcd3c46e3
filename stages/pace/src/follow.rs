//! The agent's part: control groups come and go with their services, and a program goes with its group.

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
            // One may be made while `tarn up` is at work.
            groups: config.groups.iter().map(|path| Group::unseen(path.clone())).collect(),
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
    groups: Vec<Group>,
}

/// A group that is named, relative to the root.
struct Group {
    path: PathBuf,
    /// The one whose connections take it: by its [`identity`].
    followed: Option<u64>,
    /// Whether the log has the reason why the one that is there could not be followed.
    reported: bool,
}

impl Running for Follower {
    fn run(&mut self, stop: Arc<Stop>) -> Result<()> {
        while !stop.wait(INTERVAL) {
            self.groups.iter_mut().for_each(Group::look);
        }
        Ok(())
    }
}

impl Group {
    fn unseen(path: PathBuf) -> Self {
        Self {
            path,
            followed: None,
            reported: false,
        }
    }

    /// Follows the group that is there now. Where another tarn is at work, or the kernel refuses, the next look tries again.
    fn look(&mut self) {
        let now = identity(&self.path);
        self.reported &= now.is_some();
        if now == self.followed {
            return;
        }
        match now.map_or(Ok(true), |_| attach(&self.path)) {
            Ok(true) => (self.followed, self.reported) = (now, false),
            Ok(false) => {}
            Err(error) if !self.reported => {
                log_at(Priority::Warning, STAGE, format!("{}: {error:#}", self.path.display()));
                self.reported = true;
            }
            Err(_) => {}
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
