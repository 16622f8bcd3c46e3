//! Which devices are taken, and what can be done with each.

use anyhow::Result;
use tarn_kernel::links::{self, Link};
use tarn_kernel::netdev;

use crate::config::Config;

/// A device that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether its driver runs XDP programs, so that packets can be shed.
    pub can_shed: bool,
}

/// Why a device is left alone; `None` for an Ethernet card, which is not.
pub fn reason_against(link: &Link) -> Option<String> {
    if link.is_loopback {
        return Some("loopback has no queue of its own".to_owned());
    }
    if !link.kind.is_empty() {
        return Some(format!(
            "its kind is {}: it receives in the softirq of what is below it, or sends",
            link.kind
        ));
    }
    (!link.is_ethernet()).then(|| "it is no Ethernet card".to_owned())
}

/// The devices of this namespace that the configuration means.
///
/// # Errors
/// A kernel that does not answer.
pub fn wanted(config: &Config) -> Result<Vec<Device>> {
    let is_wanted = |link: &Link| match &config.devices {
        Some(names) => names.contains(&link.name),
        None => reason_against(link).is_none(),
    };
    let links = links::all()?;
    let wanted = links.into_iter().filter(is_wanted).take(crate::config::DEVICES_MOST);
    wanted
        .map(|link| {
            // In a veth's driver, a program would cost it its segmentation.
            let can_shed = config.sheds && link.kind.is_empty() && netdev::runs_xdp(link.index)?;
            Ok(Device {
                index: link.index,
                name: link.name,
                can_shed,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_frame::survey::testing::link;

    #[test]
    fn only_cards_are_taken_by_themselves() {
        let card = link(2, "eth0", "");
        assert_eq!(reason_against(&card), None);
        for kind in ["veth", "wireguard", "bridge", "bond", "vlan", "tun"] {
            assert!(
                reason_against(&Link {
                    kind: kind.into(),
                    ..card.clone()
                })
                .is_some(),
                "{kind}"
            );
        }
        let loopback = Link {
            is_loopback: true,
            xdp_program: None,
            hardware: libc::ARPHRD_LOOPBACK,
            ..card.clone()
        };
        assert!(reason_against(&loopback).is_some());
        assert!(
            reason_against(&Link {
                hardware: libc::ARPHRD_NONE,
                ..card
            })
            .is_some()
        );
    }
}
