//! What a device's driver can do with XDP: the generic netlink family `netdev` (6.3).

use std::sync::OnceLock;

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink::{Attributes, Netlink, Refusal, integer16, integer64, put};

const GENERIC_HEADER: usize = 4;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`: frames can be redirected to the device now.
const NDO_XMIT: u64 = 4;

/// The family's number; none on kernels before 6.3. Where it is, it is built in, so that one question is enough; and
/// to each about a family that is not there the kernel starts modprobe.
static FAMILY: OnceLock<Option<u16>> = OnceLock::new();

/// Whether this kernel can tell which devices take XDP frames.
///
/// # Errors
/// A kernel that does not answer.
pub fn tells_xdp_features() -> Result<bool> {
    Ok(known_family()?.is_some())
}

/// Whether XDP frames can be redirected to this device. Kernels before 6.3 cannot tell: false.
pub fn takes_xdp_frames(index: u32) -> Result<bool> {
    let Some(family) = known_family()? else {
        return Ok(false);
    };
    let mut netlink = Netlink::open(SockProtocol::NetlinkGeneric, 0)?;
    let mut request = vec![NETDEV_CMD_DEV_GET, 1, 0, 0];
    put(&mut request, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let answer = match netlink.request(family, libc::NLM_F_ACK as u16, &request) {
        Ok(answer) => answer,
        Err(error) if is_refusal(&error, Errno::ENODEV) => return Ok(false),
        Err(error) => return Err(error),
    };
    let features = answer.iter().find_map(|message| {
        let attributes = message.payload.get(GENERIC_HEADER..)?;
        Attributes(attributes)
            .find(|(kind, _)| *kind == NETDEV_A_DEV_XDP_FEATURES)
            .and_then(|(_, v)| integer64(v))
    });
    Ok(features.unwrap_or(0) & NDO_XMIT != 0)
}

fn known_family() -> Result<Option<u16>> {
    if let Some(known) = FAMILY.get() {
        return Ok(*known);
    }
    let found = family(&mut Netlink::open(SockProtocol::NetlinkGeneric, 0)?)?;
    Ok(*FAMILY.get_or_init(|| found))
}

fn family(netlink: &mut Netlink) -> Result<Option<u16>> {
    let mut request = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    put(&mut request, CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let answer = match netlink.request(GENL_ID_CTRL, libc::NLM_F_ACK as u16, &request) {
        Ok(answer) => answer,
        Err(error) if is_refusal(&error, Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(answer.iter().find_map(|message| {
        let attributes = message.payload.get(GENERIC_HEADER..)?;
        Attributes(attributes)
            .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID)
            .and_then(|(_, value)| integer16(value))
    }))
}

fn is_refusal(error: &anyhow::Error, errno: Errno) -> bool {
    error
        .downcast_ref::<Refusal>()
        .is_some_and(|refusal| refusal.errno == errno)
}
