//! Gateways that others find out: DHCP clients and router advertisements tell them by a default route of their own, which tarn
//! leaves where it is and follows.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;

use super::STAGE;
use super::layout::{Layout, Way};
use crate::foreign;
use crate::nexthop::ONLINK;
use tarn_base::output::log;
use tarn_kernel::netlink::Netlink;

/// For so long an uplink keeps a gateway that nobody tells any more: some DHCP clients take their route away before they set it anew.
pub const GRACE: Duration = Duration::from_secs(5);

/// What has become of an uplink's gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway {
    /// It is the one of before.
    Same,
    /// It is another one from now on.
    Changed,
    /// Nobody has told one.
    Unknown,
}

/// Takes over the gateway of an uplink whose device has this index. While nobody tells one, the last one stays.
///
/// # Errors
/// A kernel that does not answer.
pub fn follow(way: &mut Way, device: u32, netlink: &mut Netlink) -> Result<Gateway> {
    if !way.is_auto {
        return Ok(Gateway::Same);
    }
    let Some(found) = foreign::default_way(device, way.rule.is_ipv6, netlink)? else {
        return Ok(Gateway::Unknown);
    };
    let is_onlink = found.flags & ONLINK > 0;
    let before = (way.is_known, way.gateway, way.is_onlink);
    if before == (true, found.gateway, is_onlink) {
        return Ok(Gateway::Same);
    }
    (way.is_known, way.gateway, way.is_onlink) = (true, found.gateway, is_onlink);
    if let (Some(before), Some(gateway)) = (before.1, found.gateway) {
        log(
            STAGE,
            format!("{}: the gateway is {gateway} now, and was {before}", way.device),
        );
    }
    Ok(Gateway::Changed)
}

/// The same of all uplinks of these groups; `carrying` has the devices that can send.
///
/// # Errors
/// A kernel that does not answer.
pub fn find(layouts: &mut [Layout], carrying: &HashMap<String, u32>, netlink: &mut Netlink) -> Result<()> {
    for way in layouts.iter_mut().flat_map(|layout| &mut layout.ways) {
        if let Some(device) = carrying.get(&way.device) {
            follow(way, *device, netlink)?;
        }
    }
    Ok(())
}

/// What is said of an uplink that has none.
pub fn absence(device: &str) -> String {
    format!(
        "{device} has no default route of its own that tells the gateway: it will be used once somebody sets one, with another \
         metric than that of tarn's route; the kernel refuses a DHCP client that sets one without a metric (udhcpc): write \
         `metric 100` in its script"
    )
}
