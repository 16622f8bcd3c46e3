//! The published rule on a stock kernel (`published.bpf.c`).

use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use self::skeleton::{PublishedSkelBuilder, types};
use tarn_kernel::attach::Direction;
use tarn_kernel::plain::{Plain, bytes_of, from_bytes};
use tarn_kernel::{attach, libbpf, links, netns};
use tarn_lab::topology::Namespace;

tarn_kernel::skeleton!(mod skeleton, "published");

/// The programs at work. The choice ends with the router's namespace, the measure with the value.
pub struct Published {
    variables: MapHandle,
    _link: Link,
}

// SAFETY: integers, laid out by the variables of published.bpf.c, every field at a multiple of its size.
unsafe impl Plain for types::bss {}

impl Published {
    /// Has the router choose for each packet from `lan` among these devices and gateways, by the greatest weight or the least.
    ///
    /// # Errors
    /// A kernel that refuses the programs.
    pub fn rule(router: &Namespace, ways: &[(String, Ipv4Addr)], greatest_wins: bool) -> Result<Self> {
        router.enter(|| {
            let mut storage = MaybeUninit::uninit();
            let mut open = PublishedSkelBuilder::default()
                .open(&mut storage)
                .context("open the programs of the published rule")?;
            let constants = open.maps.rodata_data.as_deref_mut().context("they have no constants")?;
            constants.count = u32::try_from(ways.len())?;
            constants.greatest_wins = greatest_wins;
            let variables = open.maps.bss_data.as_deref_mut().context("they have no variables")?;
            let carrying = links::carrying()?;
            let namespace = netns::cookie()?;
            for ((device, gateway), path) in ways.iter().zip(&mut variables.paths) {
                path.device.index = *carrying.get(device).with_context(|| format!("there is no {device}"))?;
                path.device.namespace = namespace;
                path.gateway = gateway.to_bits().to_be();
            }
            let skeleton = libbpf::load("the kernel refused the programs of the published rule", || open.load())?;
            let lan = *carrying.get("lan").context("there is no lan")?;
            attach::create_clsact(lan)?;
            attach::attach_filter(lan, Direction::Ingress, skeleton.progs.at_received.as_fd(), false)?;
            Ok(Self {
                variables: MapHandle::try_from(&skeleton.maps.bss).context("keep a map open")?,
                _link: skeleton
                    .progs
                    .at_sent
                    .attach_trace()
                    .context("watch what devices send")?,
            })
        })
    }

    /// Packets that took another path than the one before.
    ///
    /// # Errors
    /// A kernel that does not tell.
    pub fn changes(&self) -> Result<u64> {
        let found = self.variables.lookup(bytes_of(&0_u32), MapFlags::ANY)?;
        let variables = found.and_then(|bytes| from_bytes::<types::bss>(&bytes));
        Ok(variables
            .context("the programs' variables are of another size")?
            .changes)
    }
}
