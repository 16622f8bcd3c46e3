//! Brings the stage up, and adopts what runs.

use std::collections::HashSet;

use anyhow::{Context, Result};

use super::clients::{self, Change as ClientChange, Client, FAMILY, TABLE};
use super::config::{Config, Service, percent};
use super::haproxy::steering::end_others;
use super::known::Known;
use super::module::{MODULE, Module, SERVICES_MOST, State};
use super::network::Network;
use super::watch::Watch;
use super::{STAGE, probe};
use tarn_base::output::{Priority, log, log_at};
use tarn_base::{size, time};
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running, up};
use tarn_kernel::modules;
use tarn_kernel::nft::Nft;

impl Configured for Config {
    fn missing(&self) -> Vec<Ability> {
        let needed = if self.services.is_empty() {
            probe::without_module()
        } else {
            probe::with_module()
        };
        needed.into_iter().filter(|ability| !ability.present).collect()
    }

    fn plan(&self) -> Result<Vec<String>> {
        let known = Known::load(&StateDirectory::of_this_namespace()?)?;
        let mut plan: Vec<String> = Vec::new();
        if !self.services.is_empty() {
            plan.extend(modules::command(MODULE.name));
        }
        let is_there = clients::has_table()?;
        let has_one = self.networks().any(|(network, _)| network.is_one());
        let addresses = has_one || is_there && clients::hold_addresses()?;
        let mut script = clients::ports_script(TABLE, self, addresses);
        if !is_there {
            script.insert_str(0, &clients::table_script(TABLE, self.max_clients));
        }
        plan.extend(script.lines().map(|line| format!("nft '{line}'")));
        plan.extend(described(self));
        let change = difference(known.as_ref().filter(|_| is_there), self, |_| Ok(Vec::new()))?;
        plan.extend(
            change
                .remove
                .iter()
                .map(|client| format!("tarn classes delete {}", client.network)),
        );
        plan.extend(change.add.iter().map(clients::command));
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let known = Known::load(state)?;
        if !self.services.is_empty() {
            MODULE.load(STAGE, journal)?;
        }
        // Maps that somebody deleted begin anew, and the file must not say that they hold anything.
        let is_new = !clients::has_table()?;
        if let (true, Some(known)) = (is_new, &known) {
            let emptied = Known {
                networks: Vec::new(),
                max_clients: self.max_clients,
                ..known.clone()
            };
            emptied.save(state)?;
        }
        self.prepare_table(journal, is_new)?;
        let kept = known.as_ref().filter(|_| !is_new);
        let change = difference(kept, self, |_| clients::all())?;
        if let Err(error) = change.apply().context("the networks of tarn.toml have no class") {
            return Err(carry_on(known.as_ref(), &ClientChange::default(), error));
        }
        if let Err(error) = self.begin(journal) {
            return Err(carry_on(known.as_ref(), &change, error));
        }
        let max_clients = kept.map_or(self.max_clients, |known| known.max_clients);
        if max_clients != self.max_clients {
            let text = format!("the maps keep room for {max_clients} networks until `tarn down`");
            log_at(Priority::Notice, STAGE, text);
        }
        Known {
            networks: self.networks().collect(),
            config: self.clone(),
            max_clients,
            stopped: false,
            resets: known.as_ref().map_or(0, |known| known.resets),
        }
        .save(state)?;
        if let Some(known) = &known {
            end_others(&known.config, Some(self));
        }
        self.note();
        Ok(Box::new(Watch::new(state, !self.proxied.is_empty())))
    }
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

    /// Makes the table with its maps, if it is a new one.
    fn prepare_table(&self, journal: &mut Journal, is_new: bool) -> Result<()> {
        let change = Change::NftTable {
            family: FAMILY.to_owned(),
            name: TABLE.to_owned(),
        };
        journal.record_once(STAGE, change)?;
        if is_new {
            Nft::find()?.apply(&clients::table_script(TABLE, self.max_clients))?;
        }
        Ok(())
    }

    /// Has the module schedule, and nftables classify.
    fn begin(&self, journal: &mut Journal) -> Result<()> {
        classify_ports(self)?;
        if !self.services.is_empty() {
            MODULE.record_configuration(STAGE, journal)?;
        }
        schedule(self)
    }
}

/// Has the module schedule what is configured; where all requests wait in HAProxy, nothing, and it need not be there.
///
/// # Errors
/// Those of [`configure`]; the module is not loaded.
pub fn schedule(config: &Config) -> Result<()> {
    match config.services.is_empty() {
        true => Module::find()?.map_or(Ok(()), |mut module| module.stop().map(drop)),
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
        module.stop()?;
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
fn carry_on(known: Option<&Known>, change: &ClientChange, error: anyhow::Error) -> anyhow::Error {
    // Without an earlier one, the journal puts everything back.
    let Some(known) = known else { return error };
    let restored = change
        .reversed()
        .apply()
        .and_then(|()| classify_ports(&known.config))
        .and_then(|()| schedule(&known.config));
    up::gone_on(error, restored)
}

fn classify_ports(config: &Config) -> Result<()> {
    Nft::find()?.apply(&clients::ports_script(TABLE, config, clients::hold_addresses()?))
}

/// What the maps lack of the configuration, and what they have of an earlier one. Clients that were added by command
/// (`all` reads them) keep their class by its name, and lose it when no class has that name any more.
fn difference(
    known: Option<&Known>,
    config: &Config,
    all: impl FnOnce(&Known) -> Result<Vec<Client>>,
) -> Result<ClientChange> {
    let had: &[(Network, usize)] = known.map_or(&[], |known| &known.networks);
    let wanted: Vec<(Network, usize)> = config.networks().collect();
    let without = |some: &[(Network, usize)], others: &[(Network, usize)]| {
        let others: HashSet<_> = others.iter().collect();
        let some = some.iter().filter(|one| !others.contains(one));
        some.map(|one| Client::from(*one)).collect()
    };
    let mut change = ClientChange {
        remove: without(had, &wanted),
        add: without(&wanted, had),
    };
    let names = |config: &Config| -> Vec<String> { config.classes.iter().map(|class| class.name.clone()).collect() };
    let Some(known) = known.filter(|known| !names(config).starts_with(&names(&known.config))) else {
        return Ok(change);
    };
    let of_file: HashSet<Network> = had.iter().map(|(network, _)| *network).collect();
    for client in all(known)?
        .into_iter()
        .filter(|client| !of_file.contains(&client.network))
    {
        let name = known.name(client.class);
        let class = config.classes.iter().position(|class| class.name == name);
        if class == Some(client.class) {
            continue;
        }
        change.remove.push(client);
        match class {
            Some(class) => change.add.push(Client { class, ..client }),
            None => log_at(
                Priority::Notice,
                STAGE,
                format!("{} has no class any more: there is no class '{name}'", client.network),
            ),
        }
    }
    Ok(change)
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
