//! Every way to carry a rule out.

use crate::bpf::Bpf;
use crate::bpf::load::Limits;
use crate::carrier::Carrier;
use crate::devices::Devices;
use crate::nft::Nftables;
use tarn_frame::state::StateDirectory;

/// A carrier, and how it delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Destination NAT.
    Nftables,
    /// BPF at tc only.
    Tc,
    /// BPF at XDP, which redirects into the next device.
    XdpRedirect,
}

impl Way {
    /// The carrier with room for so many rules.
    pub fn carrier(self, state: &StateDirectory, rules: u32) -> Box<dyn Carrier> {
        match self.bpf(state, rules) {
            Some(bpf) => Box::new(bpf),
            None => Box::new(Nftables {
                devices: Devices::All,
                state: state.clone(),
            }),
        }
    }

    /// The same, where it is BPF.
    pub fn bpf(self, state: &StateDirectory, rules: u32) -> Option<Bpf> {
        let limits = Limits {
            rules,
            flows: 4096,
            xdp: self == Way::XdpRedirect,
        };
        (self != Way::Nftables).then(|| Bpf {
            devices: Devices::All,
            limits,
            state: state.clone(),
        })
    }
}
