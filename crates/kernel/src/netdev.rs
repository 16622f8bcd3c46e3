//! What a device's driver can do with XDP: the generic netlink family `netdev` (6.3).

use std::sync::OnceLock;

use anyhow::Result;
use nix::errno::Errno;

use super::genl::Family;
use super::netlink::{Attributes, integer64, put, refusal};

/// `NETDEV_CMD_DEV_GET`
const GET_DEVICE: u8 = 1;
/// `NETDEV_A_DEV_IFINDEX`, `NETDEV_A_DEV_XDP_FEATURES`
const INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`: frames can be redirected to the device now.
const NDO_XMIT: u64 = 4;

/// Whether this kernel can tell which devices take XDP frames.
///
/// # Errors
/// A kernel that does not answer.
pub fn tells_xdp_features() -> Result<bool> {
    Ok(family()?.is_some())
}

/// Whether XDP frames can be redirected to this device. Kernels before 6.3 cannot tell: false.
pub fn takes_xdp_frames(index: u32) -> Result<bool> {
    let Some(mut family) = family()? else {
        return Ok(false);
    };
    let mut request = Vec::new();
    put(&mut request, INDEX, &index.to_ne_bytes());
    let answer = match family.request(GET_DEVICE, &request) {
        Err(error) if refusal(&error) == Some(Errno::ENODEV) => return Ok(false),
        answer => answer?,
    };
    let features = Attributes(&answer).get(XDP_FEATURES).and_then(integer64);
    Ok(features.unwrap_or(0) & NDO_XMIT != 0)
}

/// The family; none on kernels before 6.3. Where it is, it is built in, so that one question tells; and to each about a
/// family that is not there the kernel starts modprobe.
fn family() -> Result<Option<Family>> {
    static IS_ABSENT: OnceLock<bool> = OnceLock::new();
    if IS_ABSENT.get() == Some(&true) {
        return Ok(None);
    }
    let found = Family::find("netdev", 1)?;
    IS_ABSENT.get_or_init(|| found.is_none());
    Ok(found)
}
