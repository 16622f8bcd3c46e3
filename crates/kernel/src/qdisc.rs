//! The queueing disciplines of network devices.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;
use serde::{Deserialize, Serialize};

use super::netlink::{Attributes, Netlink, integer32, put, refusal};
use crate::undone::Undone;

/// `TC_H_ROOT`: the parent of what handles all that a device sends.
pub const ROOT: u32 = 0xffff_ffff;
/// `TC_H_INGRESS` and `TC_H_CLSACT`: the parent of what only carries filters.
const FILTERS: u32 = 0xffff_fff1;

/// The length of `struct tcmsg`.
const HEADER: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

/// One queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// As tc(8) names it: `fq_codel`, `mq`, `noqueue`, ...
    pub kind: String,
    /// What it is set to: the attribute `TCA_OPTIONS`, whose layout depends on the kind. Empty where there is nothing to set.
    pub options: Vec<u8>,
    /// What others name it by, `major << 16`; 0 for those that the kernel has put there by itself.
    pub handle: u32,
    /// Where it is: [`ROOT`], or the handle of another's class.
    pub parent: u32,
}

/// A queueing discipline's kind and options, as a journal has them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// As tc(8) names it.
    pub kind: String,
    /// [`Qdisc::options`] in hexadecimal.
    pub options: String,
}

impl Qdisc {
    fn setting(&self) -> Setting {
        Setting {
            kind: self.kind.clone(),
            options: self.options.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Whether somebody has put it there to queue packets. The kernel gives its own no handle.
    fn is_chosen(&self) -> bool {
        self.handle != 0 && self.parent != FILTERS
    }
}

/// Those of a device, in the kernel's order; none of a device that is gone or down.
///
/// # Errors
/// A kernel that does not answer.
pub fn of(index: u32) -> Result<Vec<Qdisc>> {
    let answer = Netlink::open(SockProtocol::NetlinkRoute, 0)?
        .request(libc::RTM_GETQDISC, libc::NLM_F_DUMP as u16, &header(index, 0, 0))
        .context("list the queueing disciplines")?;
    let word = |payload: &[u8], place: usize| payload.get(place..).and_then(integer32);
    let qdisc = |payload: &[u8]| {
        (word(payload, 4)? == index).then_some(())?;
        let attributes = Attributes(payload.get(HEADER..)?);
        Some(Qdisc {
            kind: attributes.text(TCA_KIND),
            options: attributes.get(TCA_OPTIONS).unwrap_or_default().to_vec(),
            handle: word(payload, 8)?,
            parent: word(payload, 12)?,
        })
    };
    Ok(answer.iter().filter_map(|message| qdisc(&message.payload)).collect())
}

/// Puts one with its defaults at the root of a device, or in a class, by this handle, instead of what the kernel has put there.
///
/// # Errors
/// [`super::netlink::Refusal`]: `ENOENT` where the kernel has none of this kind, `EEXIST` where somebody's is there.
pub fn add(index: u32, parent: u32, handle: u32, kind: &str) -> Result<()> {
    let mut message = header(index, handle, parent);
    put(&mut message, TCA_KIND, format!("{kind}\0").as_bytes());
    let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK) as u16;
    Netlink::open(SockProtocol::NetlinkRoute, 0)?
        .request(libc::RTM_NEWQDISC, flags, &message)
        .map(drop)
}

/// How those of a device are set that the kernel has not put there by itself, each different setting once.
///
/// # Errors
/// A kernel that does not answer.
pub fn settings(index: u32) -> Result<BTreeSet<Setting>> {
    let qdiscs = of(index)?;
    Ok(qdiscs
        .iter()
        .filter(|qdisc| qdisc.is_chosen())
        .map(Qdisc::setting)
        .collect())
}

/// Takes what is at the root of a device away, if it is the one with this handle: the kernel puts its own there again.
///
/// With `settings`, it and what is below it are left alone where one of them is set in another way than these.
///
/// # Errors
/// A kernel that does not answer, or refuses.
pub fn remove_root(index: u32, interface: &str, handle: u32, settings: Option<&BTreeSet<Setting>>) -> Result<Undone> {
    if let Some(undone) = hindrance(&of(index)?, interface, handle, settings) {
        return Ok(undone);
    }
    let mut netlink = Netlink::open(SockProtocol::NetlinkRoute, 0)?;
    match netlink.request(libc::RTM_DELQDISC, libc::NLM_F_ACK as u16, &header(index, handle, ROOT)) {
        Ok(_) => Ok(Undone::PutBack),
        Err(error) if matches!(refusal(&error), Some(Errno::ENOENT | Errno::ENODEV)) => Ok(Undone::Gone),
        Err(error) => Err(error).context("take a queueing discipline away"),
    }
}

/// Why there is nothing to take away.
fn hindrance(qdiscs: &[Qdisc], interface: &str, handle: u32, settings: Option<&BTreeSet<Setting>>) -> Option<Undone> {
    let root = qdiscs.iter().find(|qdisc| qdisc.parent == ROOT);
    let Some(root) = root.filter(|root| root.handle != 0) else {
        return Some(Undone::Gone);
    };
    if root.handle != handle {
        let reason = format!("{interface} has another queueing discipline, {}", root.kind);
        return Some(Undone::LeftAlone(reason));
    }
    let settings = settings?;
    let is_foreign = |qdisc: &&Qdisc| qdisc.is_chosen() && !settings.contains(&qdisc.setting());
    let foreign = qdiscs.iter().find(is_foreign)?;
    let reason = format!("somebody else has set up the {} on {interface}", foreign.kind);
    Some(Undone::LeftAlone(reason))
}

/// `struct tcmsg`: family and padding, interface index, handle, parent, info.
pub(crate) fn header(index: u32, handle: u32, parent: u32) -> Vec<u8> {
    let words = [0, index, handle, parent, 0];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u32 = 0x7ac0 << 16;
    const FQ: u32 = 0x8001 << 16;

    fn qdisc(kind: &str, options: &[u8], handle: u32, parent: u32) -> Qdisc {
        Qdisc {
            kind: kind.to_owned(),
            options: options.to_vec(),
            handle,
            parent,
        }
    }

    fn ours() -> Vec<Qdisc> {
        vec![qdisc("mq", &[], OURS, ROOT), qdisc("fq", &[8, 0], FQ, OURS | 1)]
    }

    fn hindered(qdiscs: &[Qdisc]) -> Option<Undone> {
        let settings = ours().iter().map(Qdisc::setting).collect();
        hindrance(qdiscs, "eth0", OURS, Some(&settings))
    }

    #[test]
    fn what_is_as_it_was_put_there_can_be_taken_away() {
        assert_eq!(hindered(&ours()), None);
        let mut qdiscs = ours();
        qdiscs.push(qdisc("fq_codel", &[1], 0, OURS | 2));
        qdiscs.push(qdisc("clsact", &[], 0xffff << 16, FILTERS));
        assert_eq!(hindered(&qdiscs), None, "the kernel's own, and what carries filters");
    }

    #[test]
    fn what_the_kernel_has_put_there_is_nobody_s() {
        assert_eq!(hindered(&[]), Some(Undone::Gone));
        assert_eq!(hindered(&[qdisc("fq", &[8, 0], 0, ROOT)]), Some(Undone::Gone));
    }

    #[test]
    fn what_somebody_else_has_set_is_left_alone() {
        let others = [
            qdisc("fq", &[8, 1], FQ, OURS | 1),
            qdisc("fq_codel", &[8, 0], FQ, OURS | 1),
        ];
        for other in others {
            let kind = other.kind.clone();
            let left = hindered(&[qdisc("mq", &[], OURS, ROOT), other.clone()]);
            assert!(matches!(left, Some(Undone::LeftAlone(reason)) if reason.contains(&kind)));
            let at_root = Qdisc {
                handle: OURS,
                parent: ROOT,
                ..other
            };
            assert!(matches!(hindered(&[at_root]), Some(Undone::LeftAlone(_))));
        }
    }

    /// A journal that tells no settings is that of an `up` that was killed, or of an earlier tarn.
    #[test]
    fn without_settings_the_handle_decides() {
        let other = [qdisc("fq", &[8, 1], OURS, ROOT)];
        assert_eq!(hindrance(&other, "eth0", OURS, None), None);
        assert!(matches!(
            hindrance(&other, "eth0", OURS + (1 << 16), None),
            Some(Undone::LeftAlone(_))
        ));
    }
}
