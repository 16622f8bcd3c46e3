//! Brings the stage up, and adopts what runs.

use anyhow::Result;

use super::STAGE;
use super::config::Config;
use super::defaults::{Defaults, HIGH_THRESHOLD, TIME4, TIME6};
use super::known::Known;
use super::module::{Datagrams, MODULE, Module, Settings};
use super::watch::Watch;
use tarn_base::output::{Priority, log, log_at};
use tarn_base::{size, time};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Configured, Running};
use tarn_kernel::modules;

impl Configured for Config {
    fn missing(&self) -> Vec<Ability> {
        MODULE
            .abilities()
            .into_iter()
            .filter(|ability| !ability.present)
            .collect()
    }

    fn plan(&self) -> Result<Vec<String>> {
        let defaults = Defaults::read()?;
        let mut plan: Vec<String> = modules::command(MODULE.name).into_iter().collect();
        plan.extend(self.described(&defaults));
        plan.extend(defaults.notes.iter().map(|note| format!("# {note}")));
        Ok(plan)
    }

    fn up(&self, state: &StateDirectory, journal: &mut Journal) -> Result<Box<dyn Running>> {
        let known = Known::load(state)?;
        let defaults = Defaults::read()?;
        MODULE.load(STAGE, journal)?;
        MODULE.record_configuration(STAGE, journal)?;
        let settings = self.settings(&defaults);
        let left_alone = Known::begin(known.as_ref(), settings, state, &mut Module::loaded()?)?;
        for line in defaults.notes.iter().chain(&left_alone) {
            log_at(Priority::Notice, STAGE, line);
        }
        let text = format!("fragments are reassembled in {} of memory", size::text(settings.memory));
        log(STAGE, text);
        Ok(Box::new(Watch::new()))
    }
}

impl Config {
    /// What the module is told, as comments.
    fn described(&self, defaults: &Defaults) -> [String; 4] {
        let Settings {
            memory,
            share,
            timeout4,
            timeout6,
            datagrams,
        } = self.settings(defaults);
        let of = |is_set: bool, parameter: &str| match is_set {
            true => String::new(),
            false => format!(", as {parameter}"),
        };
        let memory_of = of(self.memory.is_some(), HIGH_THRESHOLD);
        let timeout_of = of(self.timeout.is_some(), &format!("{TIME4} and {TIME6}"));
        let whose = match datagrams {
            Datagrams::Auto => "all where connection tracking reassembles, else those to this host",
            Datagrams::Host => "those to this host",
            Datagrams::All => "all that arrive",
        };
        let (timeout4, timeout6) = (time::text(timeout4), time::text(timeout6));
        [
            format!("memory for fragments: {}{memory_of}", size::text(memory)),
            format!("a source's share of a full memory: 1/{share}"),
            format!("a datagram is given up after {timeout4} (IPv4), {timeout6} (IPv6){timeout_of}"),
            format!("whose datagrams are reassembled: {whose}"),
        ]
        .map(|line| format!("# {}: {line}", MODULE.name))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn described(memory: Option<u64>, timeout: Option<Duration>) -> String {
        let config = Config {
            memory,
            timeout,
            share: 8,
            datagrams: Datagrams::Host,
        };
        let defaults = Defaults {
            memory: 4 << 20,
            timeout4: Duration::from_secs(30),
            timeout6: Duration::from_secs(60),
            notes: Vec::new(),
        };
        config.described(&defaults).join("\n")
    }

    /// Who reads the plan sees which values are the kernel's, and which are those of the file.
    #[test]
    fn the_plan_has_every_setting_and_where_it_is_from() {
        let expected = "\
# tarn_reassembly: memory for fragments: 4MiB, as net.ipv4.ipfrag_high_thresh
# tarn_reassembly: a source's share of a full memory: 1/8
# tarn_reassembly: a datagram is given up after 30s (IPv4), 1m (IPv6), as net.ipv4.ipfrag_time and net.ipv6.ip6frag_time
# tarn_reassembly: whose datagrams are reassembled: those to this host";
        assert_eq!(described(None, None), expected);
        let set = described(Some(16 << 20), Some(Duration::from_secs(2)));
        assert!(
            set.contains("fragments: 16MiB\n") && set.contains("after 2s (IPv4), 2s (IPv6)\n"),
            "{set}"
        );
    }
}
