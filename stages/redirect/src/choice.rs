//! Which carrier carries the rules out here, and how another process finds out which it is.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::bpf::Bpf;
use super::bpf::load::Limits;
use super::carrier::Carrier;
use super::config::{Config, Deliver, Mode};
use super::devices::Devices;
use super::nft::{self, Nftables};
use super::rule::Rule;
use super::{STAGE, bpf};
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_frame::{Ability, Running};

/// The file in the state directory that says what is up.
pub const FILE: &str = "redirect.json";

/// The ability without which the stage cannot run.
const A_CARRIER: &str = "a carrier";

/// The carrier and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "carrier", rename_all = "lowercase")]
pub enum Choice {
    /// BPF programs.
    Bpf {
        /// How packets are delivered.
        deliver: Deliver,
        /// On which devices.
        devices: Devices,
        /// The most rules.
        max_rules: u32,
        /// The most flows.
        flows: u32,
    },
    /// Destination NAT.
    Nftables {
        /// Of packets from these devices.
        #[serde(default)]
        devices: Devices,
    },
}

impl Choice {
    /// What the configuration asks for, on a host with these abilities.
    pub fn of(config: &Config) -> Self {
        let bpf = match config.mode {
            Mode::Bpf => true,
            Mode::Nftables => false,
            Mode::Auto => lacks(&bpf::probe::abilities()).is_empty(),
        };
        let devices = config.devices.clone();
        if !bpf {
            return Self::Nftables { devices };
        }
        Self::Bpf {
            deliver: config.deliver,
            devices,
            max_rules: config.max_rules,
            flows: config.flows,
        }
    }

    /// What the choice needs and this host lacks.
    pub fn missing(&self) -> Vec<Ability> {
        match self {
            Self::Bpf { .. } => lacks(&bpf::probe::abilities()),
            Self::Nftables { .. } => lacks(&nft::abilities()),
        }
    }

    /// Whether answers to this host's own connections are redirected, too, where a rule matches their port: nftables knows the
    /// connections that they belong to.
    pub fn takes_answers(&self) -> bool {
        matches!(self, Self::Bpf { .. })
    }

    /// The devices that packets to be redirected come in by.
    pub fn devices(&self) -> &Devices {
        let (Self::Bpf { devices, .. } | Self::Nftables { devices }) = self;
        devices
    }

    /// The carrier.
    pub fn carrier(&self, state: &StateDirectory) -> Box<dyn Carrier> {
        let devices = self.devices().clone();
        match *self {
            Self::Nftables { .. } => {
                let state = state.clone();
                Box::new(Nftables { devices, state })
            }
            Self::Bpf {
                deliver,
                max_rules: rules,
                flows,
                ..
            } => {
                let xdp = deliver == Deliver::Redirect;
                let limits = Limits { rules, flows, xdp };
                let state = state.clone();
                Box::new(Bpf { devices, limits, state })
            }
        }
    }

    /// Has this carrier carry out `rules`, of which `new` are counted from zero, in the place of another where one does.
    ///
    /// # Errors
    /// Those of [`Carrier::up`]; files that cannot be written.
    pub fn take_over(
        &self,
        state: &StateDirectory,
        journal: &mut Journal,
        rules: &[Rule],
        new: &[Rule],
    ) -> Result<Box<dyn Running>> {
        let running = self.carrier(state).up(journal, rules, new)?;
        // In this order: a failure to write leaves the other carrier at work.
        self.save(state)?;
        self.undo_others(journal)?;
        Ok(running)
    }

    /// What takes the place of this choice where it can no longer stand; `None` where it was not tarn's own.
    pub fn successor(&self, mode: Mode) -> Option<Self> {
        let devices = self.devices().clone();
        (mode == Mode::Auto).then_some(Self::Nftables { devices })
    }

    /// What is up in this namespace; `None` when nothing is.
    pub fn running(state: &StateDirectory) -> Result<Option<Self>> {
        state.read_json(FILE)
    }

    /// Remembers what is up.
    pub fn save(&self, state: &StateDirectory) -> Result<()> {
        state.write_json(FILE, self)
    }

    /// Takes away what another carrier left, now that this one carries the rules out.
    fn undo_others(&self, journal: &mut Journal) -> Result<()> {
        journal.undo_of(STAGE, |change| self.is_other(change)).map(drop)
    }

    fn is_other(&self, change: &Change) -> bool {
        match self {
            Self::Bpf { deliver, .. } => match change {
                Change::NftTable { .. } => true,
                Change::Xdp { .. } | Change::XdpNext { .. } => *deliver == Deliver::Tc,
                _ => false,
            },
            Self::Nftables { .. } => bpf::devices::device_of(change).is_some(),
        }
    }
}

/// The abilities of a carrier that are not there.
fn lacks(abilities: &[Ability]) -> Vec<Ability> {
    abilities.iter().filter(|ability| !ability.present).cloned().collect()
}

/// Whether any carrier can run, from the abilities of all.
pub fn summary(abilities: &[Ability]) -> Ability {
    let nftables = abilities
        .iter()
        .any(|ability| ability.name == "nftables" && ability.present);
    let bpf = abilities
        .iter()
        .filter(|ability| bpf::probe::NAMES.contains(&ability.name.as_str()))
        .all(|a| a.present);
    let detail = match (bpf, nftables) {
        (true, true) => "bpf and nftables; `mode = \"auto\"` takes bpf",
        (true, false) => "bpf",
        (false, true) => "nftables",
        (false, false) => "neither bpf nor nftables can run here: mend one of the two above",
    };
    Ability {
        name: A_CARRIER.to_owned(),
        present: bpf || nftables,
        required: true,
        detail: detail.to_owned(),
    }
}
