//! Which carrier carries the rules out here, and how another process finds out which it is.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::bpf::Bpf;
use super::bpf::devices::Devices;
use super::bpf::load::Limits;
use super::carrier::Carrier;
use super::config::{self, Config, Deliver, Mode};
use super::nft::{self, Nftables};
use super::{STAGE, bpf};
use tarn_frame::Ability;
use tarn_frame::journal::{Change, Journal};
use tarn_frame::state::StateDirectory;
use tarn_kernel::links;

/// The file in the state directory that says what is up.
pub const FILE: &str = "redirect.json";

/// The ability without which the stage cannot run.
const A_CARRIER: &str = "a carrier";

/// The carrier and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "carrier", rename_all = "lowercase")]
pub enum Choice {
    /// BPF programs.
    Xdp {
        /// How packets are delivered.
        deliver: Delivery,
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

/// How the BPF programs deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// XDP rewrites, the stack delivers.
    Pass,
    /// XDP redirects to the next device.
    Redirect,
    /// tc redirects into the next device.
    Tc,
}

impl Delivery {
    /// As it is written in `tarn.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Redirect => "redirect",
            Self::Tc => "tc",
        }
    }
}

impl Choice {
    /// What the configuration asks for, on a host with these abilities.
    pub fn of(config: &Config) -> Self {
        let bpf = match config.mode {
            Mode::Xdp => true,
            Mode::Nftables => false,
            Mode::Auto => lacks(&bpf::probe::abilities()).is_empty(),
        };
        let devices = match &config.devices {
            config::Devices::All => Devices::All,
            config::Devices::Named(names) => Devices::Named(names.clone()),
        };
        if !bpf {
            return Self::Nftables { devices };
        }
        let deliver = match config.deliver {
            Deliver::Pass => Delivery::Pass,
            Deliver::Redirect => Delivery::Redirect,
            // The cheapest where all are possible: see the figures in the stage's README.
            Deliver::Tc | Deliver::Auto => Delivery::Tc,
        };
        Self::Xdp {
            deliver,
            devices,
            max_rules: config.max_rules,
            flows: config.flows,
        }
    }

    /// What the choice needs and this host lacks.
    pub fn missing(&self) -> Vec<Ability> {
        match self {
            Self::Xdp { .. } => lacks(&bpf::probe::abilities()),
            Self::Nftables { .. } => lacks(&nft::abilities()),
        }
    }

    /// The BPF carrier, if it is that.
    pub fn bpf(&self, state: &StateDirectory) -> Option<Bpf> {
        let Self::Xdp {
            deliver,
            devices,
            max_rules,
            flows,
        } = self
        else {
            return None;
        };
        let limits = Limits {
            rules: *max_rules,
            flows: *flows,
            xdp: *deliver != Delivery::Tc,
            xdp_delivers: *deliver == Delivery::Redirect,
        };
        Some(Bpf {
            devices: devices.clone(),
            limits,
            state: state.clone(),
        })
    }

    /// The devices that are named and not there.
    ///
    /// # Errors
    /// A kernel that does not say which there are.
    pub fn absent_devices(&self) -> Result<Vec<String>> {
        let (Self::Xdp { devices, .. } | Self::Nftables { devices }) = self;
        let Devices::Named(names) = devices else {
            return Ok(Vec::new());
        };
        let links = links::all()?;
        let absent = names
            .iter()
            .filter(|name| !links.iter().any(|link| link.name == **name));
        Ok(absent.cloned().collect())
    }

    /// The carrier.
    pub fn carrier(&self, state: &StateDirectory) -> Box<dyn Carrier> {
        match (self, self.bpf(state)) {
            (_, Some(bpf)) => Box::new(bpf),
            (Self::Nftables { devices } | Self::Xdp { devices, .. }, None) => Box::new(Nftables {
                devices: devices.clone(),
            }),
        }
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
    pub fn undo_others(&self, journal: &mut Journal) -> Result<()> {
        let others: Vec<(u64, Change)> = journal
            .changes(STAGE)
            .filter(|(_, change)| self.is_other(change))
            .map(|(id, change)| (id, change.clone()))
            .collect();
        for (id, change) in others.into_iter().rev() {
            change.undo()?;
            journal.forget(id)?;
        }
        Ok(())
    }

    fn is_other(&self, change: &Change) -> bool {
        match self {
            Self::Xdp { deliver, .. } => match change {
                Change::NftTable { .. } => true,
                Change::Xdp { .. } => *deliver == Delivery::Tc,
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
        (true, true) => "xdp and nftables; `mode = \"auto\"` takes xdp",
        (true, false) => "xdp",
        (false, true) => "nftables",
        (false, false) => "neither xdp nor nftables can run here: mend one of the two above",
    };
    Ability {
        name: A_CARRIER.to_owned(),
        present: bpf || nftables,
        required: true,
        detail: detail.to_owned(),
    }
}
