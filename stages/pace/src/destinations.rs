//! Prefixes of destinations as the BPF programs look them up (`steer.h`).

use std::net::IpAddr;

use tarn_base::network::Prefix;

/// What the family of an address takes in a key.
const FAMILY_BITS: u32 = 32;

/// `struct pace_destination`.
pub fn key(prefix: Prefix) -> [u8; 24] {
    let (family, address, added) = match prefix.address {
        IpAddr::V4(address) => (4, address.to_ipv6_mapped(), 96),
        IpAddr::V6(address) => (6, address, 0),
    };
    let mut key = [0; 24];
    key[..4].copy_from_slice(&(u32::from(prefix.length) + FAMILY_BITS + added).to_ne_bytes());
    key[4] = family;
    key[8..].copy_from_slice(&address.octets());
    key
}
