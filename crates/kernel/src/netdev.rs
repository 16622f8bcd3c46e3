//! What a device's driver can do with XDP, and how its packets are received: the generic netlink family `netdev` (6.3).

use std::sync::OnceLock;

use anyhow::Result;
use nix::errno::Errno;

use super::genl::Family;
use super::netlink::{Attributes, integer32, integer64, put, refusal};

/// `NETDEV_CMD_DEV_GET`
const GET_DEVICE: u8 = 1;
/// `NETDEV_A_DEV_IFINDEX`, `NETDEV_A_DEV_XDP_FEATURES`
const INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_CMD_NAPI_GET`
const GET_NAPI: u8 = 11;
/// `NETDEV_A_NAPI_IFINDEX`, `NETDEV_A_NAPI_ID`, `NETDEV_A_NAPI_PID`
const NAPI_DEVICE: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_PID: u16 = 4;
/// `NETDEV_XDP_ACT_BASIC`: the driver runs XDP programs.
const BASIC: u64 = 1;
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
    Ok(xdp_features(index)? & NDO_XMIT != 0)
}

/// Whether the device's driver runs XDP programs. Kernels before 6.3 cannot tell: false.
///
/// # Errors
/// A kernel that does not answer.
pub fn runs_xdp(index: u32) -> Result<bool> {
    Ok(xdp_features(index)? & BASIC != 0)
}

/// What polls a queue of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Napi {
    /// Its number, which no other has.
    pub id: u32,
    /// The kernel thread that polls it, in the first process's numbers; `None` where softirqs do.
    pub thread: Option<i32>,
}

/// The NAPIs of a device that is up, by number: the kernel tells only those that are enabled. `None` where the kernel cannot tell
/// (before 6.8).
///
/// # Errors
/// A kernel that does not answer.
pub fn napis(index: u32) -> Result<Option<Vec<Napi>>> {
    let Some(mut family) = family()? else {
        return Ok(None);
    };
    let mut request = Vec::new();
    put(&mut request, NAPI_DEVICE, &index.to_ne_bytes());
    let answer = match family.dump(GET_NAPI, &request) {
        Err(error) if matches!(refusal(&error), Some(Errno::EOPNOTSUPP | Errno::EINVAL)) => return Ok(None),
        Err(error) if refusal(&error) == Some(Errno::ENODEV) => Vec::new(),
        answer => answer?,
    };
    let mut napis: Vec<Napi> = answer.iter().filter_map(|entry| napi(Attributes(entry))).collect();
    napis.sort_by_key(|napi| napi.id);
    Ok(Some(napis))
}

fn napi(attributes: Attributes<'_>) -> Option<Napi> {
    let thread = attributes.get(NAPI_PID).and_then(integer32);
    Some(Napi {
        id: attributes.get(NAPI_ID).and_then(integer32)?,
        thread: thread.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0),
    })
}

fn xdp_features(index: u32) -> Result<u64> {
    let Some(mut family) = family()? else {
        return Ok(0);
    };
    let mut request = Vec::new();
    put(&mut request, INDEX, &index.to_ne_bytes());
    let answer = match family.request(GET_DEVICE, &request) {
        Err(error) if refusal(&error) == Some(Errno::ENODEV) => return Ok(0),
        answer => answer?,
    };
    let features = Attributes(&answer).get(XDP_FEATURES).and_then(integer64);
    Ok(features.unwrap_or(0))
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
