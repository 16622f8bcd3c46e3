//! IPsec policies: packets that BPF redirects do not meet them, so they would be dropped by none and leave in clear.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Result;

use tarn_base::error::Unsupported;
use tarn_base::runtime::{Stop, readable};
use tarn_frame::Ability;
use tarn_kernel::netlink::Netlink;
use tarn_kernel::xfrm;

/// The ability's name.
pub const NAME: &str = "no IPsec in the way";
/// Why BPF does not redirect.
pub const REASON: &str =
    "this host has IPsec policies (`ip xfrm policy` lists them), which packets that BPF redirects would bypass";
/// What to do about it.
pub const REMEDY: &str = "set mode = \"nftables\" in the section [redirect], or remove the policies";
/// How often it is looked for what makes policies, and whether the loop beside has ended.
const INTERVAL: Duration = Duration::from_millis(200);

/// Whether BPF may redirect.
pub fn ability() -> Ability {
    let (present, detail) = match xfrm::has_policies() {
        Ok(false) => (true, "none here that redirected packets would bypass".to_owned()),
        Ok(true) => (false, format!("{REASON}: {REMEDY}")),
        Err(error) => (false, format!("{error:#}")),
    };
    Ability {
        name: NAME.to_owned(),
        present,
        required: false,
        detail,
    }
}

/// Refuses to redirect beside policies.
///
/// # Errors
/// [`Unsupported`] where there are some, with what to do about it; a kernel that does not say.
pub fn refuse() -> Result<()> {
    match xfrm::has_policies()? {
        true => Err(Unsupported(format!("{REASON}: {REMEDY}")).into()),
        false => Ok(()),
    }
}

/// Waits for policies; false when it is time to stop before, or `has_ended` says so.
///
/// # Errors
/// A kernel that does not say whether there are any.
pub fn wait(stop: &Stop, has_ended: impl Fn() -> bool) -> Result<bool> {
    let mut monitor = None;
    while !stop.fired() && !has_ended() {
        if monitor.is_none() {
            // Before looking, or what comes in between would be missed.
            monitor = xfrm::monitor()?;
            if monitor.is_some() && xfrm::has_policies()? {
                return Ok(true);
            }
        }
        if changed(stop, monitor.as_mut())? && xfrm::has_policies()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits for a change of the policies, but not for long.
fn changed(stop: &Stop, monitor: Option<&mut Netlink>) -> Result<bool> {
    let Some(monitor) = monitor else {
        stop.wait(INTERVAL);
        return Ok(false);
    };
    let ready = readable(&[stop.as_fd(), monitor.as_fd()], INTERVAL);
    if ready.get(1) != Some(&true) {
        return Ok(false);
    }
    monitor.receive().map(|_| true)
}
