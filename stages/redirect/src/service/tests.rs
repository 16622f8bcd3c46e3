//! The stage as the agent brings it up, on a real kernel.

use std::collections::HashSet;

use super::*;
use crate::config::{Deliver, Mode};
use crate::devices::Devices;
use crate::rule::Origin;
use crate::rule::samples::udp;
use tarn_kernel::netns::testing::in_new_namespace;

/// A host whose devices are none but loopback.
struct Host {
    _directory: tempfile::TempDir,
    state: StateDirectory,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(directory.path(), "state");
        state.create().unwrap();
        Host {
            _directory: directory,
            state,
        }
    }

    /// What it gives is the agent's to hold: without a device, nothing else holds the programs.
    fn up(&self, mode: Mode, max_rules: u32, rules: &[Rule]) -> Result<Box<dyn Running>> {
        let config = Config {
            mode,
            deliver: Deliver::Tc,
            devices: Devices::Named(vec!["none".to_owned()]),
            max_rules,
            flows: 1024,
            rules: rules.to_vec(),
            over_listeners: HashSet::new(),
        };
        let mut journal = Journal::open(&self.state)?;
        Prepared::new(config).up(&self.state, &mut journal)
    }

    /// What is carried out, as the store has it: numbers and texts.
    fn rules(&self) -> Vec<(u32, String)> {
        let store = Store::open(self.state.path()).unwrap();
        store.rules().map(|rule| (rule.id, rule.to_string())).collect()
    }
}

fn rules(written: &[(&str, &str)]) -> Vec<Rule> {
    let configured = |(from, to): &(&str, &str)| Rule {
        origin: Origin::Config,
        ..udp(from, to, None)
    };
    written.iter().map(configured).collect()
}

/// As many rules as there may be are led elsewhere, exchanged for others, and both, in one go; ranges too.
#[test]
#[ignore = "needs the lab"]
fn lab_long_redirect_full_tables_take_other_rules() {
    for mode in [Mode::Bpf, Mode::Nftables] {
        in_new_namespace(|| {
            // The targets are addresses of the host, so that forwarding stays as it is.
            let host = Host::new();
            let sets: [&[(&str, &str)]; 5] = [
                &[
                    ("192.0.2.1:1-32000", "192.0.2.9:1-32000"),
                    ("192.0.2.2:1-32000", "192.0.2.9"),
                ],
                &[
                    ("192.0.2.1:1-32000", "192.0.2.8:1-32000"),
                    ("192.0.2.2:1-32000", "192.0.2.8"),
                ],
                &[
                    ("192.0.2.3:1-32000", "192.0.2.7:1-32000"),
                    ("192.0.2.4:1-32000", "192.0.2.7"),
                ],
                &[("192.0.2.4:1-32000", "192.0.2.6"), ("192.0.2.5:53", "192.0.2.6:54")],
                &[("192.0.2.5:53", "192.0.2.6:55")],
            ];
            let mut running = None;
            for set in sets {
                let set = rules(set);
                let up = host.up(mode, 2, &set);
                running = Some(up.unwrap_or_else(|error| panic!("{mode:?}: {set:?}: {error:#}")));
                let mut texts: Vec<String> = host.rules().into_iter().map(|(_, text)| text).collect();
                texts.sort();
                assert_eq!(
                    texts,
                    set.iter().map(ToString::to_string).collect::<Vec<_>>(),
                    "{mode:?}"
                );
            }
            drop(running);
            Journal::open(&host.state).unwrap().undo(None).unwrap();
        });
    }
}

/// More ports than the tables hold are refused before anything changes.
#[test]
#[ignore = "needs the lab"]
fn lab_redirect_more_ports_than_there_is_room_for_are_refused() {
    in_new_namespace(|| {
        let host = Host::new();
        let set = rules(&[("192.0.2.1:1-65535", "192.0.2.9"), ("192.0.2.2:1-65535", "192.0.2.9")]);
        let refused = format!("{:#}", host.up(Mode::Bpf, 2, &set).map(drop).unwrap_err());
        assert!(
            refused.contains("131070 ports") && refused.contains("raise max_rules"),
            "{refused}"
        );
        assert!(Journal::open(&host.state).unwrap().is_empty());
        assert_eq!(host.rules(), []);
        host.up(Mode::Bpf, 65_536, &set).unwrap();
        Journal::open(&host.state).unwrap().undo(None).unwrap();
    });
}

/// A configuration that contradicts a rule added by command is refused before the agent that runs is ended.
#[test]
#[ignore = "needs the lab"]
fn lab_redirect_a_contradiction_is_refused_while_all_goes_on() {
    in_new_namespace(|| {
        let host = Host::new();
        let set = rules(&[("192.0.2.1:53", "192.0.2.9:53")]);
        host.up(Mode::Nftables, 8, &set).unwrap();
        let mut store = Store::open(host.state.path()).unwrap();
        store
            .add(vec![udp("192.0.2.2:50-60", "192.0.2.9", None)], false)
            .unwrap();
        let config = |rules: Vec<Rule>| Config {
            mode: Mode::Nftables,
            deliver: Deliver::Tc,
            devices: Devices::All,
            max_rules: 8,
            flows: 1024,
            rules,
            over_listeners: HashSet::new(),
        };
        Prepared::new(config(set)).fits(&host.state).unwrap();
        let contradicting = Prepared::new(config(rules(&[("192.0.2.2:55", "192.0.2.8")])));
        let refused = contradicting.fits(&host.state).unwrap_err();
        assert!(
            refused.downcast_ref::<tarn_base::error::Usage>().is_some(),
            "{refused:#}"
        );
        Journal::open(&host.state).unwrap().undo(None).unwrap();
    });
}
