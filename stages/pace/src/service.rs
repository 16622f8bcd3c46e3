//! Brings the stage up.

use std::path::Path;

use anyhow::Result;

use crate::STAGE;
use crate::change::PaceChange;
use crate::config::Config;
use crate::elsewhere;
use crate::existing;
use crate::follow;
use crate::probe;
use crate::queues;
use crate::registration::{NAME, Registration};
use crate::standing::{DEFAULT, FILE, registered};
use crate::steer;
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running, sysctl as frame_sysctl, up};
use tarn_kernel::sysctl;

impl Configured for Config {
    fn missing(&self) -> Vec<Ability> {
        let chooses = !self.destinations.is_empty() || !self.groups.is_empty();
        let needed = probe::abilities().into_iter();
        needed
            .chain(chooses.then(probe::choice))
            .filter(|ability| ability.required && !ability.present)
            .collect()
    }

    fn fits(&self, state: &StateDirectory) -> Result<()> {
        queues::check(self)?;
        match registered(&Journal::open(state)?)? {
            Some(_) => Ok(()),
            None => elsewhere::check(state),
        }
    }

    fn plan(&self) -> Result<Vec<String>> {
        let mut plan = vec![format!("# the congestion control {NAME} is registered")];
        let destinations = self.destinations.iter();
        plan.extend(destinations.map(|to| format!("# new connections to {to} take it")));
        let groups = self.groups.iter();
        plan.extend(groups.map(|group| format!("# new connections of the control group {} take it", group.display())));
        if self.everybody {
            plan.push(format!("sysctl {}={NAME}", sysctl::name(Path::new(DEFAULT))));
        }
        plan.extend(queues::plan(self)?);
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let before: Option<Config> = state.read_json(FILE)?;
        self.bring_up(state, journal)
            .map_err(|error| up::gone_on(error, carry_on(before.as_ref(), state, journal)))?;
        log(STAGE, self.described());
        Ok(follow::running(self))
    }
}

/// After an `up` that failed: what an earlier one set up goes on as before. What this one has added, the journal puts back.
fn carry_on(before: Option<&Config>, state: &StateDirectory, journal: &Journal) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    if let Some((.., registration)) = registered(journal)? {
        registration.set(&before.parameters())?;
    }
    state.write_json(FILE, before)
}

impl Config {
    fn bring_up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<()> {
        let before: Vec<Change> = journal.changes(STAGE).map(|(_, change)| change.clone()).collect();
        let default = default_before(journal)?;
        // First in the journal, so last to be undone: when nothing chooses it for connections any more.
        if self.existing {
            record_existing(journal, &default)?;
        }
        self.register(state, journal)?;
        let paced = queues::set(self, journal)?;
        steer::attach(self, journal)?;
        if self.everybody {
            set_default(journal)?;
        }
        if self.existing {
            self.take_existing(&default)?;
        }
        state.write_json(FILE, self)?;
        if !self.existing {
            forget_existing(journal)?;
        }
        // Last: should anything fail before, they go on.
        let is_over = |change: &Change| match change {
            Change::Sysctl { .. } => !self.everybody,
            other => match PaceChange::of(other) {
                Some(PaceChange::GroupProgram { .. }) => true,
                Some(PaceChange::Queue { index, .. }) => !paced.contains(&index),
                _ => false,
            },
        };
        if let Err(error) = journal.undo_of(STAGE, |change| before.contains(change) && is_over(change)) {
            log_at(
                Priority::Warning,
                STAGE,
                format!("what an earlier `tarn up` has chosen goes on: {error:#}"),
            );
        }
        Ok(())
    }

    /// Has connections that stand take it. `default` was the default before any `up`.
    fn take_existing(&self, default: &str) -> Result<()> {
        let moved = existing::take(self, default)?;
        let refused = match moved.refused {
            0 => String::new(),
            refused => format!("; the kernel refused {refused}"),
        };
        log(
            STAGE,
            format!("connections that stood and take {NAME} now: {}{refused}", moved.taken),
        );
        Ok(())
    }

    /// Has the congestion control registered, with the parameters. Another build's makes room: connections that use it keep it, and
    /// for about 20 ms those that begin find none and take the kernel's default.
    fn register(&self, state: &StateDirectory, journal: &mut Journal) -> Result<()> {
        let standing = registered(journal)?;
        if let Some((_, identity, registration)) = &standing
            && Registration::is_current(identity)
        {
            registration.set(&self.parameters())?;
            return Ok(());
        }
        if standing.is_none() {
            elsewhere::clear(state)?;
        }
        let mut recorded = None;
        let registered = Registration::new(&self.parameters(), |identity| {
            let new = journal.record(STAGE, PaceChange::CongestionControl(identity.clone()).into())?;
            recorded = Some(new);
            match &standing {
                Some((_, _, old)) => old.remove().map(drop),
                None => Ok(()),
            }
        });
        if let (Some((old, ..)), Some(new)) = (&standing, recorded) {
            journal.supersede(*old, new)?;
        }
        registered.map(drop)
    }

    fn described(&self) -> String {
        let mut who = Vec::new();
        if self.everybody {
            who.push("all new connections".to_owned());
        }
        if !self.destinations.is_empty() {
            who.push(format!("new connections to {} destinations", self.destinations.len()));
        }
        if !self.groups.is_empty() {
            who.push(format!("new connections of {} control groups", self.groups.len()));
        }
        if who.is_empty() {
            who.push("sockets that ask for it".to_owned());
        }
        format!("{NAME} is for {}", who.join(" and "))
    }
}

/// Notes that connections that stood give it back when it goes.
fn record_existing(journal: &mut Journal, default: &str) -> Result<()> {
    let before = default.to_owned();
    journal.record_once(STAGE, PaceChange::Connections { before }.into())
}

/// Those that have taken it keep it, like those that begin.
fn forget_existing(journal: &mut Journal) -> Result<()> {
    let is_one = |change: &Change| matches!(PaceChange::of(change), Some(PaceChange::Connections { .. }));
    let changes = journal.changes(STAGE).filter(|(_, change)| is_one(change));
    let ids: Vec<u64> = changes.map(|(id, _)| id).collect();
    ids.into_iter().try_for_each(|id| journal.forget(id))
}

/// Makes it the default of this network namespace. The default is a program and no name: another build's has to be chosen anew.
fn set_default(journal: &mut Journal) -> Result<()> {
    let path = Path::new(DEFAULT);
    frame_sysctl::change(journal, STAGE, path, NAME)?;
    if sysctl::read(path)? == NAME {
        sysctl::write(path, NAME)?;
    }
    Ok(())
}

/// The namespace's default without us.
fn default_before(journal: &Journal) -> Result<String> {
    let ours = journal.changes(STAGE).find_map(|(_, change)| match change {
        Change::Sysctl { path, before, .. } if path == DEFAULT => Some(before.clone()),
        _ => None,
    });
    ours.map_or_else(|| sysctl::read(Path::new(DEFAULT)), Ok)
}
