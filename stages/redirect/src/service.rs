//! Brings the stage up, and keeps it up.

use std::cell::Cell;

use anyhow::Result;

use super::choice::Choice;
use super::config::Config;
use super::firewall;
use super::forwarding;
use super::handover::Handover;
use super::ipsec;
use super::nft::flows::forget_all;
use super::rule::Rule;
use super::store::{Reconciled, Store};
use super::{STAGE, bpf, choice, listeners, store};
use tarn_base::output::{Priority, log, log_at};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running, up};

/// The stage with a valid configuration.
pub struct Prepared {
    config: Config,
    choice: Choice,
    /// What [`Configured::fits`] has found, for the `up` behind it: the state directory's lock is held from one to the other.
    reconciled: Cell<Option<Reconciled>>,
}

impl Prepared {
    /// Chooses the carrier.
    pub fn new(config: Config) -> Self {
        let choice = Choice::of(&config);
        Self {
            config,
            choice,
            reconciled: Cell::default(),
        }
    }

    /// The rules that will stand: the configuration's, and those added by command to what runs.
    fn reconciled(&self, state: &StateDirectory, store: &Store) -> Result<Reconciled> {
        if let Some(known) = self.reconciled.take() {
            return Ok(known);
        }
        let reconciled = store.reconciled(self.config.rules.clone(), self.config.max_rules)?;
        let is_guarded = |rule: &&Rule| !self.config.over_listeners.contains(&rule.matched());
        // Those that were there before stay, whatever has begun to listen since.
        if let Err(error) =
            listeners::refuse_covered(reconciled.added.iter().filter(is_guarded), self.choice.takes_answers())
        {
            // After a boot nothing was there before, and nobody is here to choose: the host is to come up as it did last time.
            if std::env::var_os("NOTIFY_SOCKET").is_none() {
                return Err(error);
            }
            log_at(Priority::Warning, STAGE, format!("{error:#}"));
        }
        self.choice.carrier(state).room(&reconciled.rules)?;
        Ok(reconciled)
    }
}

impl Configured for Prepared {
    fn missing(&self) -> Vec<Ability> {
        let mut missing = self.choice.missing();
        // Where BPF redirects past policies already, with no agent that would act on them, `up` ends that, and fails.
        if redirects_by_bpf() {
            missing.retain(|ability| ability.name != ipsec::NAME);
        }
        missing
    }

    fn fits(&self, state: &StateDirectory) -> Result<()> {
        self.reconciled
            .set(Some(self.reconciled(state, &Store::open(state.path())?)?));
        Ok(())
    }

    fn plan(&self) -> Result<Vec<String>> {
        let state = StateDirectory::of_this_namespace()?;
        let rules = self.reconciled(&state, &Store::open(state.path())?)?.rules;
        let settings = forwarding::settings(&rules)?;
        let mut plan = forwarding::commands(&settings);
        plan.extend(forwarding::unguarded(&settings).map(|notice| format!("# {notice}")));
        plan.extend(self.choice.carrier(&state).plan(&rules)?);
        plan.extend(self.notices()?.iter().map(|notice| format!("# {notice}")));
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let before = Before::of(state)?;
        self.bring_up(state, &before, journal)
            .map_err(|error| up::gone_on(error, before.carry_on(state, journal)))
    }
}

impl Prepared {
    fn bring_up(&self, state: &StateDirectory, before: &Before, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let reconciled = self.reconciled(state, &before.store)?;
        let carrier = self.choice.carrier(state);
        carrier.make_room(&reconciled)?;
        let rules = &reconciled.rules;
        forwarding::apply(journal, &forwarding::settings(rules)?)?;
        Store::replace(state.path(), rules, self.config.max_rules)?;
        let running = self.choice.take_over(state, journal, rules, &reconciled.added)?;
        let translated = matches!(before.choice, Some(Choice::Nftables { .. }));
        if translated && !matches!(self.choice, Choice::Nftables { .. }) {
            let redirected: Vec<Rule> = rules.iter().chain(&reconciled.removed).cloned().collect();
            forget_all(&redirected);
        }
        let carried = match rules.len() {
            1 => "1 rule is".to_owned(),
            count => format!("{count} rules are"),
        };
        log(STAGE, format!("{carried} carried out by {}", carrier.name()));
        for notice in self.notices()? {
            log_at(Priority::Notice, STAGE, notice);
        }
        Ok(match self.choice {
            Choice::Nftables { .. } => running,
            Choice::Bpf { .. } => {
                let successor = self.choice.successor(self.config.mode);
                Box::new(Handover::new(state.clone(), running, successor))
            }
        })
    }

    /// What an administrator has to know of how the rules are carried out, a line each.
    fn notices(&self) -> Result<Vec<String>> {
        let absent = self.choice.devices().absent()?;
        let mut notices: Vec<String> = absent.iter().map(|name| absence(name)).collect();
        if matches!(self.choice, Choice::Bpf { .. }) {
            notices.extend(firewall::bypassed());
        }
        Ok(notices)
    }
}

fn absence(device: &str) -> String {
    format!("there is no device {device} now: packets from it will be redirected once there is; `ip link` shows all")
}

/// Whether an earlier `tarn up` has BPF redirect in this namespace.
fn redirects_by_bpf() -> bool {
    let running = StateDirectory::of_this_namespace().and_then(|state| Choice::running(&state));
    matches!(running, Ok(Some(Choice::Bpf { .. })))
}

/// What an earlier `tarn up` had set up: it goes on when this one fails.
struct Before {
    choice: Option<Choice>,
    store: Store,
}

impl Before {
    fn of(state: &StateDirectory) -> Result<Self> {
        Ok(Self {
            choice: Choice::running(state)?,
            store: Store::open(state.path())?,
        })
    }

    fn carry_on(&self, state: &StateDirectory, journal: &mut Journal) -> Result<()> {
        // Without one, all there is was recorded by the `up` that fails, and is put back from its journal.
        let Some(choice) = &self.choice else { return Ok(()) };
        let rules: Vec<Rule> = self.store.rules().cloned().collect();
        Store::replace(state.path(), &rules, self.store.limit())?;
        if Choice::running(state)?.as_ref() != Some(choice) {
            choice.save(state)?;
        }
        choice.carrier(state).carry_on(journal, &rules)
    }
}

/// Forgets the connections that the rules had redirected: the kernel would go on to redirect them, or to drop their
/// answers, as long as anything else tracks connections. Then the files that tell what is up.
pub fn clean_up(state: &StateDirectory) -> Result<()> {
    if matches!(Choice::running(state)?, Some(Choice::Nftables { .. })) {
        let rules: Vec<Rule> = Store::open(state.path())?.rules().cloned().collect();
        forget_all(&rules);
    }
    state.remove_files(&[store::FILE, bpf::FILE, choice::FILE])
}

#[cfg(test)]
mod tests;
