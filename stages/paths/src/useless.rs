//! Targets and gateways that this host's addresses show to be useless, which the file alone does not.

use std::net::IpAddr;

use anyhow::{Result, bail};

use super::config::{Config, Uplink};
use super::layout::Layout;
use super::target::Target;
use tarn_base::network::Prefix;
use tarn_kernel::addresses::Address;

/// What to do about such a target.
const BEYOND: &str = "name a host beyond the providers";

/// A target that is this host itself answers by every uplink, also by a dead one; one that is every host of a network by whoever is
/// there. A gateway that is this host itself leads nowhere.
///
/// # Errors
/// There is one.
pub fn refuse(config: &Config, addresses: &[Address]) -> Result<()> {
    let is_own = |address: IpAddr| addresses.iter().any(|own| own.address == address);
    for Uplink {
        device,
        gateway,
        targets,
        ..
    } in config.groups.iter().flat_map(|group| &group.uplinks)
    {
        if let Some(target) = targets.iter().find(|target| is_own(target.address())) {
            bail!("the target {target} is this host's own: {BEYOND}");
        }
        let is_broadcast = |target: &&Target| addresses.iter().any(|own| is_broadcast(own.network, target.address()));
        if let Some(target) = targets.iter().find(is_broadcast) {
            bail!("the target {target} is every host of a network of this host's: {BEYOND}");
        }
        if let Some(gateway) = gateway.filter(|gateway| is_own(*gateway)) {
            bail!("the gateway {gateway} of {device} is this host's own: name the router behind the device");
        }
    }
    Ok(())
}

/// Whether an address is the directed broadcast of a network, its last one (RFC 919). One of two addresses has none (RFC 3021).
fn is_broadcast(network: Prefix, address: IpAddr) -> bool {
    let (IpAddr::V4(first), IpAddr::V4(address)) = (network.address, address) else {
        return false;
    };
    let hosts = u32::MAX.checked_shr(network.length.into()).unwrap_or(0);
    (1..=30).contains(&network.length) && first.to_bits() | hosts == address.to_bits()
}

/// Refuses targets that are gateways which others have found out; `layouts` have them.
///
/// # Errors
/// There is one.
pub fn refuse_gateways(config: &Config, layouts: &[Layout]) -> Result<()> {
    let uplinks = config.groups.iter().flat_map(|group| &group.uplinks);
    let ways = layouts.iter().flat_map(|layout| &layout.ways);
    let complaints = uplinks
        .zip(ways)
        .filter_map(|(uplink, way)| complaint(&way.device, way.gateway, &uplink.targets));
    match complaints.into_iter().next() {
        Some(complaint) => bail!("{complaint}"),
        None => Ok(()),
    }
}

/// What is wrong where an uplink's gateway is one of its targets.
pub fn complaint(device: &str, gateway: Option<IpAddr>, targets: &[Target]) -> Option<String> {
    let target = targets.iter().find(|target| Some(target.address()) == gateway)?;
    Some(format!(
        "the target {target} is the gateway of {device}, which answers while the provider behind it is dead: {BEYOND}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Group;
    use crate::judge::Settings;

    fn refused(target: &str, gateway: Option<&str>) -> Option<String> {
        let uplink = Uplink {
            device: "wan0".to_owned(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            targets: vec![target.parse().unwrap()],
            ..Uplink::default()
        };
        let group = Group {
            to: "default".parse().unwrap(),
            metric: 0,
            pin: false,
            finds_pin: true,
            number: 0,
            uplinks: vec![uplink],
            adopt: None,
        };
        let config = Config {
            groups: vec![group],
            settings: Settings::default(),
            mark_mask: 0xff00_0000,
            rule_priority: 1000,
            tcp: false,
        };
        let own = Address {
            device: "wan0".to_owned(),
            address: "192.0.2.7".parse().unwrap(),
            network: "192.0.2.0/24".parse().unwrap(),
        };
        refuse(&config, &[own]).err().map(|error| error.to_string())
    }

    /// A target that answers while the provider is dead would keep everything on that uplink.
    #[test]
    fn what_this_host_s_addresses_show_is_refused() {
        for (target, gateway, told) in [
            ("192.0.2.7", None, "this host's own"),
            ("192.0.2.255", None, "every host of a network"),
            ("udp:192.0.2.255:7", None, "every host of a network"),
            (
                "1.1.1.1",
                Some("192.0.2.7"),
                "the gateway 192.0.2.7 of wan0 is this host's own",
            ),
        ] {
            let refused = refused(target, gateway).unwrap_or_default();
            assert!(refused.contains(told), "{target}: {refused}");
        }
        assert_eq!(refused("1.1.1.1", Some("192.0.2.1")), None);
    }

    #[test]
    fn small_networks_have_no_broadcast() {
        let is_one = |network: &str, address: &str| is_broadcast(network.parse().unwrap(), address.parse().unwrap());
        assert!(is_one("192.0.2.0/30", "192.0.2.3") && is_one("10.0.0.0/8", "10.255.255.255"));
        assert!(!is_one("192.0.2.2/31", "192.0.2.3") && !is_one("192.0.2.3/32", "192.0.2.3"));
        assert!(!is_one("192.0.2.0/24", "192.0.2.254") && !is_one("fd00::/64", "192.0.2.255"));
    }

    #[test]
    fn a_target_that_is_the_gateway_is_told() {
        let targets = ["1.1.1.1", "udp:192.0.2.1:53"].map(|target| target.parse().unwrap());
        let told = |gateway: &str| complaint("wan0", Some(gateway.parse().unwrap()), &targets);
        assert!(told("192.0.2.1").unwrap_or_default().contains("is the gateway of wan0"));
        assert_eq!(told("192.0.2.9"), None);
        assert_eq!(complaint("ppp0", None, &targets), None);
    }
}
