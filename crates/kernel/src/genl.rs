//! Generic netlink: families of the kernel's modules, found by name
//! (Linux `Documentation/userspace-api/netlink/intro.rst`, "Generic Netlink").

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink::{Attributes, Netlink, integer16, integer32, put};

pub use super::netlink::refusal;

/// `GENL_ID_CTRL`
const CONTROLLER: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`
const FAMILY_NAME: u16 = 2;
/// `CTRL_ATTR_VERSION`
const FAMILY_VERSION: u16 = 3;
/// Lists that are asked for again, because something has changed meanwhile.
const DUMPS_MOST: u32 = 3;
/// `struct genlmsghdr`: command, version, two reserved bytes.
const HEADER: usize = 4;

/// A family that the kernel has, and a socket to talk to it.
pub struct Family {
    netlink: Netlink,
    id: u16,
    version: u8,
    kernels: Option<u32>,
}

impl Family {
    /// The family of this name; `None` when the kernel has none: its module is not loaded. The calling thread's network
    /// namespace is the one that requests are about. The kernel loads a module whose alias names the family, if it finds one.
    ///
    /// # Errors
    /// Those of netlink.
    pub fn find(name: &str, version: u8) -> Result<Option<Self>> {
        let mut netlink = Netlink::open(SockProtocol::NetlinkGeneric, 0)?;
        let mut request = vec![GET_FAMILY, 1, 0, 0];
        put(&mut request, FAMILY_NAME, format!("{name}\0").as_bytes());
        let answer = match netlink.request(CONTROLLER, libc::NLM_F_ACK as u16, &request) {
            Err(error) if refusal(&error) == Some(Errno::ENOENT) => return Ok(None),
            answer => answer.with_context(|| format!("look for the kernel's {name}"))?,
        };
        let attribute = |kind| {
            let mut payloads = answer.iter().filter_map(|message| message.payload.get(HEADER..));
            payloads.find_map(|payload| Attributes(payload).get(kind))
        };
        let id = attribute(FAMILY_ID)
            .and_then(integer16)
            .with_context(|| format!("the kernel's {name} has no number"))?;
        let kernels = attribute(FAMILY_VERSION).and_then(integer32);
        Ok(Some(Self {
            netlink,
            id,
            version,
            kernels,
        }))
    }

    /// Whether the kernel's is of the version that was asked for.
    pub fn is_of_version(&self) -> bool {
        self.kernels.is_none_or(|kernels| kernels == u32::from(self.version))
    }

    /// Sends a command with its attributes. Returns the attributes of the answer, none when there is only an acknowledgement.
    ///
    /// # Errors
    /// [`super::netlink::Refusal`], with the kernel's own words where it has some.
    pub fn request(&mut self, command: u8, attributes: &[u8]) -> Result<Vec<u8>> {
        let payload = [&[command, self.version, 0, 0], attributes].concat();
        let answer = self.netlink.request(self.id, libc::NLM_F_ACK as u16, &payload)?;
        let attributes = answer.into_iter().next().map(|message| message.payload);
        Ok(attributes
            .and_then(|payload| payload.get(HEADER..).map(<[u8]>::to_vec))
            .unwrap_or_default())
    }

    /// Sends a command that is answered by a list. Returns the attributes of each entry. What changes while it is read is read again,
    /// but not for ever.
    ///
    /// # Errors
    /// As [`Family::request`].
    pub fn dump(&mut self, command: u8, attributes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let payload = [&[command, self.version, 0, 0], attributes].concat();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut entries = Vec::new();
            let flags = libc::NLM_F_DUMP as u16;
            let is_of_one_moment = self.netlink.stream(self.id, flags, &payload, |_, payload| {
                entries.extend(payload.get(HEADER..).map(<[u8]>::to_vec));
                Ok(())
            })?;
            if is_of_one_moment || attempts == DUMPS_MOST {
                return Ok(entries);
            }
        }
    }
}
