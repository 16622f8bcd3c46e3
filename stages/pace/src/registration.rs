//! The congestion control in the kernel: loaded, registered, found again and taken out.
//!
//! It is registered without a `bpf_link`: the kernel keeps it until it is taken out, so that it outlives the process, on every
//! kernel alike (6.1 has no links for such programs) and without a BPF file system, which a namespace made by `ip netns` does not
//! have. Connections that use it hold it, too: they keep it until they end, whatever happens to the name.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail};
use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::btf::{Btf, ReferencesType};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use serde::{Deserialize, Serialize};

use crate::connections;
use crate::skeleton::connections::types::pace_connection;
use crate::skeleton::types::pace_parameters;
use crate::skeleton::{OpenPaceSkel, PaceSkelBuilder};
use tarn_kernel::libbpf;
use tarn_kernel::plain::{Plain, bytes_of, from_bytes};

/// What it is called, for `TCP_CONGESTION` and `net.ipv4.tcp_congestion_control`.
pub const NAME: &str = "tarn_pace";

/// The key of the only element that a map of operations has.
const ONLY: [u8; 4] = [0; 4];

/// BPF_STRUCT_OPS_STATE_INUSE.
const IN_USE: u32 = 1;

/// A congestion control that is loaded, and registered as a rule.
pub struct Registration {
    /// The map that stands for it.
    operations: MapHandle,
    /// Its parameters.
    parameters: MapHandle,
    /// What it notes beside connections.
    history: MapHandle,
}

/// By what it is found again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The id of its map of operations.
    pub map: u32,
    /// The id of its map of parameters.
    pub parameters: u32,
    /// The id of the map of what it notes beside connections.
    pub history: u32,
    /// What its build was known by.
    pub program: String,
}

/// Tells this program from those of other builds of tarn.
const PROGRAM: &str = env!("TARN_PACE_PROGRAM");

impl Registration {
    /// Loads it and registers it by its name. Connections begin to use it when somebody chooses it. `before` is called in between:
    /// an error of it leaves the kernel as it was.
    ///
    /// # Errors
    /// Without CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (root), on a kernel without type information, and where one is registered by
    /// this name.
    pub fn new(parameters: &pace_parameters, before: impl FnOnce(&Identity) -> Result<()>) -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let mut open = PaceSkelBuilder::default()
            .open(&mut storage)
            .context("open the congestion control")?;
        fit(&mut open, &Interface::of_this_kernel()?)?;
        let variables = open.maps.bss_data.as_deref_mut();
        variables
            .context("the congestion control has no parameters")?
            .parameters = *parameters;
        let mut skeleton = libbpf::load("the kernel refused the congestion control", || open.load())?;
        let new = Self {
            operations: MapHandle::try_from(&skeleton.maps.tarn_pace).context("keep a map open")?,
            parameters: MapHandle::try_from(&skeleton.maps.bss).context("keep a map open")?,
            history: MapHandle::try_from(&skeleton.maps.history).context("keep a map open")?,
        };
        before(&new.identity()?)?;
        let registered = skeleton.maps.tarn_pace.attach_struct_ops();
        let mut registered = registered.with_context(|| format!("cannot register {NAME}"))?;
        // What libbpf calls a link would take it out when it is dropped.
        registered.disconnect();
        Ok(new)
    }

    /// One that is loaded; `None` when nothing uses it any more, and it is gone.
    ///
    /// # Errors
    /// The maps are others, or may not be opened.
    pub fn open(identity: &Identity) -> Result<Option<Self>> {
        let parameters = open_map(identity.parameters)?;
        let history = open_map(identity.history)?;
        let (Some(operations), Some(parameters), Some(history)) = (open_map(identity.map)?, parameters, history) else {
            return Ok(None);
        };
        if operations.map_type() != MapType::StructOps || operations.name() != NAME {
            bail!("the map {} is {:?}, not {NAME}", identity.map, operations.name());
        }
        Ok(Some(Self {
            operations,
            parameters,
            history,
        }))
    }

    /// Whether it is what this tarn would load.
    pub fn is_current(identity: &Identity) -> bool {
        identity.program == PROGRAM
    }

    fn identity(&self) -> Result<Identity> {
        Ok(Identity {
            map: self.operations.info().context("ask for a map's id")?.info.id,
            parameters: self.parameters.info().context("ask for a map's id")?.info.id,
            history: self.history.info().context("ask for a map's id")?.info.id,
            program: PROGRAM.to_owned(),
        })
    }

    /// The connections of the calling thread's network namespace that use a congestion control of this name.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn connections(&self) -> Result<Vec<pace_connection>> {
        connections::list(&self.history)
    }

    /// The parameters in force.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn parameters(&self) -> Result<pace_parameters> {
        let value = self.parameters.lookup(&ONLY, MapFlags::ANY);
        let value = value.context("read the parameters")?;
        value
            .as_deref()
            .and_then(from_bytes)
            .context("the map of parameters is too small")
    }

    /// Sets them, for connections that run, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(&self, parameters: &pace_parameters) -> Result<()> {
        let written = self.parameters.update(&ONLY, bytes_of(parameters), MapFlags::ANY);
        written.context("set the parameters")
    }

    /// Whether it can be chosen. One that was taken out lasts as long as connections use it.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn stands(&self) -> Result<bool> {
        let value = self
            .operations
            .lookup(&ONLY, MapFlags::ANY)
            .context("read a map of operations")?;
        // struct bpf_struct_ops_common_value: a count of users, and the state.
        let state = value.as_deref().and_then(|value| value.get(4..8)?.try_into().ok());
        Ok(state.map(u32::from_ne_bytes) == Some(IN_USE))
    }

    /// Takes it out: nobody can choose it any more. Connections that use it keep it; within ten seconds TCP paces those itself that `fq`
    /// has paced, because that may go. Returns whether it was there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(&self) -> Result<bool> {
        if !self.stands()? {
            return Ok(false);
        }
        let mut parameters = self.parameters()?;
        parameters.left = 1;
        self.set(&parameters)?;
        let removed = self.operations.delete(&ONLY);
        removed.with_context(|| format!("cannot take {NAME} out"))?;
        Ok(true)
    }
}

// SAFETY: repr(C) and 32-bit integers alone.
unsafe impl Plain for pace_parameters {}

/// A map by its id; `None` when there is none.
fn open_map(id: u32) -> Result<Option<MapHandle>> {
    match MapHandle::from_map_id(id) {
        Ok(map) => Ok(Some(map)),
        Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot open the map {id}")),
    }
}

/// What differs between kernels in how they call a congestion control.
#[derive(Debug, PartialEq, Eq)]
struct Interface {
    /// The arguments of `cong_control`: 2 before 6.10, 4 from then on.
    arguments: usize,
    /// Whether `cwnd_event_tx_start` is a call of its own: from 7.1 on.
    has_start: bool,
}

impl Interface {
    fn of_this_kernel() -> Result<Self> {
        let kernel = Btf::from_vmlinux().context("read the kernel's types")?;
        let operations: Struct<'_> = kernel
            .type_by_name("tcp_congestion_ops")
            .context("the kernel's types have no tcp_congestion_ops")?;
        let member = |name: &str| {
            operations
                .iter()
                .find(|member| member.name.is_some_and(|known| known == name))
        };
        let call = member("cong_control").context("the kernel's congestion controls have no cong_control")?;
        let called = kernel
            .type_by_id::<Ptr<'_>>(call.ty)
            .map(|pointer| pointer.referenced_type());
        let prototype = called.and_then(|called| FuncProto::try_from(called).ok());
        Ok(Self {
            arguments: prototype.context("the kernel's cong_control is no function")?.len(),
            has_start: member("cwnd_event_tx_start").is_some(),
        })
    }
}

/// Makes the programs fit the running kernel.
fn fit(open: &mut OpenPaceSkel<'_>, interface: &Interface) -> Result<()> {
    let constants = open.maps.rodata_data.as_deref_mut();
    let constants = constants.context("the congestion control has no constants")?;
    constants.two_arguments = match interface.arguments {
        2 => true,
        4 => false,
        other => bail!("this kernel calls congestion controls with {other} arguments, which is known of none"),
    };
    let operations = open.struct_ops.tarn_pace_mut();
    if interface.has_start {
        operations.cwnd_event = null_mut();
    } else {
        operations.cwnd_event_tx_start = null_mut();
    }
    Ok(())
}
