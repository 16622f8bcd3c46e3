//! The addresses of this namespace's devices.

use std::collections::HashSet;
use std::net::IpAddr;

use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use tarn_base::network::Prefix;

/// One address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The device's name.
    pub device: String,
    /// The host's own address.
    pub address: IpAddr,
    /// The network that is reached by the device itself.
    pub network: Prefix,
}

impl Address {
    /// Whether it is of this family, and means something to hosts beyond the link.
    pub fn is_beyond_link(&self, is_ipv6: bool) -> bool {
        match self.address {
            IpAddr::V4(address) => !is_ipv6 && !address.is_link_local() && !address.is_loopback(),
            IpAddr::V6(address) => is_ipv6 && !address.is_unicast_link_local() && !address.is_loopback(),
        }
    }
}

/// All of them.
///
/// # Errors
/// A kernel that does not say.
pub fn all() -> Result<Vec<Address>> {
    let interfaces = getifaddrs().context("cannot list the addresses of this host")?;
    Ok(interfaces
        .filter_map(|interface| {
            let address = ip(interface.address.as_ref()?)?;
            let length = interface.netmask.as_ref().and_then(ip).map_or(u32::MAX, ones);
            Some(Address {
                // An address can have a label, such as eth0:1.
                device: interface.interface_name.split(':').next()?.to_owned(),
                address,
                network: Prefix::of(address, u8::try_from(length).unwrap_or(u8::MAX)),
            })
        })
        .collect())
}

/// This host's own.
///
/// # Errors
/// A kernel that does not say.
pub fn local() -> Result<HashSet<IpAddr>> {
    Ok(all()?.into_iter().map(|address| address.address).collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(IpAddr::from(v4.ip())),
        (_, Some(v6)) => Some(IpAddr::from(v6.ip())),
        _ => None,
    }
}

fn ones(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_loopback_device() {
        let all = all().unwrap();
        let loopback = all.iter().find(|address| address.address.is_loopback()).unwrap();
        assert!(loopback.network.contains(loopback.address), "{loopback:?}");
        assert_eq!(loopback.device, "lo");
    }
}
