//! Brings the stage up, and adopts what runs.

use std::collections::BTreeMap;

use anyhow::Result;

use super::STAGE;
use super::clients::{Change, Client, Store};
use super::config::{Config, Service, percent};
use super::haproxy::steering::end_others;
use super::known::Known;
use super::module::{Entry, MODULE, Module, Origin, SERVICES_MOST, State};
use super::watch::Watch;
use tarn_base::network::Prefix;
use tarn_base::output::{Priority, log, log_at};
use tarn_base::{size, time};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running, up};
use tarn_kernel::modules;

impl Configured for Config {
    fn missing(&self) -> Vec<Ability> {
        // HAProxy need not be there yet, and nothing else is needed for it.
        let needed = if self.services.is_empty() {
            Vec::new()
        } else {
            MODULE.abilities()
        };
        needed.into_iter().filter(|ability| !ability.present).collect()
    }

    fn plan(&self) -> Result<Vec<String>> {
        let state = StateDirectory::of_this_namespace()?;
        let known = Known::load(&state)?;
        let mut plan: Vec<String> = Vec::new();
        if !self.services.is_empty() {
            plan.extend(modules::command(MODULE.name));
        }
        plan.extend(described(self));
        let (mut change, now) = changes(known.as_ref(), self, &state)?;
        change.against(&now);
        plan.extend(change.into_entries().iter().map(|entry| match entry.class {
            Some(class) => format!(
                "tarn classes add {} {}",
                entry.prefix,
                self.classes[usize::from(class)].name
            ),
            None => format!("tarn classes delete {}", entry.prefix),
        }));
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let known = Known::load(state)?;
        if !self.services.is_empty() {
            MODULE.load(STAGE, journal)?;
            MODULE.record_configuration(STAGE, journal)?;
        }
        let (mut change, now) = changes(known.as_ref(), self, state)?;
        let moves = known
            .as_ref()
            .is_some_and(|known| is_in_file(&known.config) != is_in_file(self));
        let back = change.against(if moves { &[] } else { &now });
        let lost = lost(known.as_ref(), change.taken_from(&back));
        let mut store = Store::of(self, state)?;
        if known.is_none() {
            // Where a state directory was lost: these are numbers of another configuration's classes.
            store.clear()?;
        }
        let most = known
            .as_ref()
            .map_or(self.max_clients, |known| known.config.max_clients);
        let done = store.apply(change, self.max_clients).and_then(|()| {
            // Where this fails, clients have the classes of before again.
            schedule(self).map_err(|error| match store.apply(back, most) {
                Ok(()) => error,
                Err(second) => error.context(format!("clients have not got their former classes back: {second:#}")),
            })
        });
        if let Err(error) = done {
            return Err(carry_on(known.as_ref(), error));
        }
        Known {
            config: self.clone(),
            stopped: false,
            names_clients: self.networks().next().is_some(),
            resets: known.as_ref().map_or(0, |known| known.resets),
        }
        .save(state)?;
        if let Some(known) = &known {
            end_others(&known.config, Some(self));
            if moves {
                clear_former(&known.config, state)?;
            }
        }
        lost.iter().for_each(|text| log_at(Priority::Notice, STAGE, text));
        self.note();
        Ok(Box::new(Watch::new(state, !self.proxied.is_empty())))
    }
}

/// Whether its clients are kept in a file: see [`Store`].
fn is_in_file(config: &Config) -> bool {
    config.services.is_empty()
}

/// Forgets the clients where they were kept before. Where somebody has taken the module out, they are gone with it.
fn clear_former(config: &Config, state: &StateDirectory) -> Result<()> {
    if !is_in_file(config) && Module::find()?.is_none() {
        return Ok(());
    }
    Store::of(config, state)?.clear()
}

/// What is to become of the clients, and how they are. Where they are kept elsewhere from now on, all of them are in the change.
fn changes(known: Option<&Known>, config: &Config, state: &StateDirectory) -> Result<(Change, Vec<Entry>)> {
    let now = match known {
        None => Vec::new(),
        Some(known) if is_in_file(&known.config) => Store::of(&known.config, state)?.all()?,
        // Where somebody has taken the module out, its clients are gone with it.
        Some(_) => Module::find()?.map_or(Ok(Vec::new()), |mut module| module.clients())?,
    };
    Ok((difference(known, config, &now), now))
}

impl Config {
    /// Logs what is served.
    fn note(&self) {
        let (classes, services, ports) = (self.classes.len(), self.services.len(), self.ports().count());
        let proxied = match self.proxied.len() {
            0 => String::new(),
            proxied => format!("; through HAProxy: {proxied}"),
        };
        let text = format!(
            "services: {services}, on ports or ranges of ports: {ports}{proxied}; classes of clients: {classes}"
        );
        log(STAGE, text);
        if self.shares_limit {
            let text = "all ports share one limit; a [[classes.service]] for each application gives each its own";
            log(STAGE, text);
        }
    }
}

/// Has the module schedule what is configured; where all requests wait in HAProxy, nothing, and it need not be there.
///
/// # Errors
/// Those of [`configure`]; the module is not loaded.
pub fn schedule(config: &Config) -> Result<()> {
    match config.services.is_empty() {
        true => Module::find()?.map_or(Ok(()), |mut module| module.stop_services().map(drop)),
        false => configure(&mut Module::loaded()?, config),
    }
}

/// Sets what is configured. Where a service runs already, with as many classes, its requests notice nothing.
///
/// # Errors
/// What the kernel refuses; then what ran before runs on.
pub fn configure(module: &mut Module, config: &Config) -> Result<()> {
    let before = states(module)?;
    let set = set_all(module, config, &before);
    if set.is_err() {
        for (number, state) in before.iter().enumerate() {
            // It ran with these settings a moment ago; when it does not now, the error reported is the first one.
            let _ = match state {
                Some(state) => module.service(number).set(&state.settings),
                None => module.service(number).stop_service(),
            };
        }
    }
    set?;
    note_memory(module, config)
}

/// All services that there may be, by their numbers; `None` when one does not run.
fn states(module: &mut Module) -> Result<Vec<Option<State>>> {
    (0..SERVICES_MOST)
        .map(|number| module.service(number).state())
        .collect()
}

fn set_all(module: &mut Module, config: &Config, before: &[Option<State>]) -> Result<()> {
    let count = |state: &State| state.settings.classes.as_ref().map(Vec::len);
    let others = |state: &&State| count(state) != Some(config.classes.len());
    if before.iter().flatten().any(|state| others(&state)) {
        let text = "the number of classes has changed: what waits goes on to the service, and counting begins anew";
        log_at(Priority::Notice, STAGE, text);
        module.stop_services()?;
    }
    for (number, service) in config.services.iter().enumerate() {
        module.service(number).set(&config.settings(service))?;
    }
    for number in config.services.len()..SERVICES_MOST {
        module.service(number).stop_service()?;
    }
    Ok(())
}

/// Logs it when the host has too little memory for what is configured.
fn note_memory(module: &mut Module, config: &Config) -> Result<()> {
    let given = module.service(0).state()?.and_then(|state| state.settings.bytes);
    if let Some(given) = given.filter(|given| *given < config.memory) {
        let (asked, given) = (size::text(config.memory), size::text(given));
        let text = format!("memory = {asked} is more than an eighth of this host's: waiting packets take {given}");
        log_at(Priority::Notice, STAGE, text);
    }
    Ok(())
}

/// After an `up` that failed: what an earlier one set up goes on as before.
fn carry_on(known: Option<&Known>, error: anyhow::Error) -> anyhow::Error {
    // Without an earlier one, the journal puts everything back.
    let Some(known) = known else { return error };
    let restored = schedule(&known.config);
    up::gone_on(error, restored)
}

/// What the clients lack of the configuration, and what they have of an earlier one. Clients that were added by command keep their class
/// by its name, and lose it when no class has that name any more. Where the file names the same network, the file decides.
fn difference(known: Option<&Known>, config: &Config, now: &[Entry]) -> Change {
    let mut change = Change::with_room(now.len() + config.networks().count());
    for entry in now {
        if entry.origin == Origin::File {
            change.note(Entry::none(entry.prefix));
            continue;
        }
        let name = known.map(|known| known.name(entry.class.map_or(usize::MAX, usize::from)));
        let mut classes = config.classes.iter();
        match classes.position(|class| Some(&class.name) == name.as_ref()) {
            Some(class) => change.note(Entry {
                class: Some(class as u16),
                ..*entry
            }),
            None => change.note(Entry::none(entry.prefix)),
        }
    }
    config.networks().for_each(|found| change.add(&Client::of_file(found)));
    change
}

/// What becomes of clients whose class there is no more: a line for each class.
fn lost<'a>(known: Option<&Known>, entries: impl Iterator<Item = &'a Entry>) -> Vec<String> {
    let mut lost: BTreeMap<String, (usize, Prefix)> = BTreeMap::new();
    for entry in entries {
        let name = known.map(|known| known.name(entry.class.map_or(usize::MAX, usize::from)));
        lost.entry(name.unwrap_or_default()).or_insert((0, entry.prefix)).0 += 1;
    }
    let line = |(name, (count, first)): (String, (usize, Prefix))| {
        format!("there is no class '{name}' any more: {count} networks of clients have none now, {first} first")
    };
    lost.into_iter().map(line).collect()
}

/// What the module is told, as comments.
fn described(config: &Config) -> Vec<String> {
    let services = config.services.iter();
    let mut lines: Vec<String> = services
        .flat_map(|service| described_service(config, service))
        .collect();
    lines.extend(config.proxied.iter().map(|service| {
        let (name, socket) = (&service.name, service.socket.display());
        format!("# HAProxy at {socket}: service {name}: the classes' order and deadlines, and the clients' classes")
    }));
    lines.extend(config.classes.iter().map(|class| {
        let (name, percent) = (&class.name, percent(class.target));
        format!(
            "# tarn_classes: class {name}: {percent} % of answers in time, at most {} packets wait",
            class.cap
        )
    }));
    lines
}

fn described_service(config: &Config, service: &Service) -> [String; 3] {
    let ports: Vec<String> = service.ports.iter().map(ToString::to_string).collect();
    let limit = match service.limit {
        0 => "found while running".to_owned(),
        limit => limit.to_string(),
    };
    let classes = config.classes.iter().zip(&service.deadlines);
    let deadlines: Vec<String> = classes
        .map(|(class, deadline)| format!("{} {}", class.name, time::text(*deadline)))
        .collect();
    let name = &service.name;
    [
        format!(
            "# tarn_classes: service {name}: requests to {} are scheduled",
            ports.join(", ")
        ),
        format!("# tarn_classes: service {name}: requests that it has at a time: {limit}"),
        format!("# tarn_classes: service {name}: deadlines: {}", deadlines.join(", ")),
    ]
}

#[cfg(test)]
mod tests;
