//! A socket of AF_XDP that receives nothing.

use std::ffi::c_void;
use std::mem::size_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use anyhow::{Context, Error, Result, anyhow};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// include/uapi/asm-generic/socket.h
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_PREFER_BUSY_POLL: i32 = 69;
/// For how long it polls, in us. It only has to ask.
const BUSY_POLL_US: i32 = 1;
/// Of each ring. They stay empty: the kernel drops a packet that comes, after it has noted its NAPI.
const ENTRIES: i32 = 1;
/// The memory for packets: one.
const MEMORY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// A socket of one receive queue. Meanwhile no other socket of AF_XDP can have the queue.
pub struct Socket {
    socket: OwnedFd,
    memory: Memory,
}

/// Pages that the kernel asks for.
struct Memory(NonNull<c_void>);

impl Memory {
    fn new() -> Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory, at an address that the kernel chooses.
        let mapped = unsafe { mmap_anonymous(None, MEMORY, protection, MapFlags::MAP_PRIVATE) };
        mapped.context("cannot map memory").map(Self)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nobody uses it. The kernel holds the pages for as long as the socket lasts.
        let _ = unsafe { munmap(self.0, MEMORY.get()) };
    }
}

// SAFETY: nobody uses the memory.
unsafe impl Send for Memory {}

impl Socket {
    /// For what a program redirects from a receive queue of a device.
    ///
    /// # Errors
    /// Another socket has the queue, there is none, the kernel has no AF_XDP, or no rights.
    pub fn of_queue(device: u32, queue: u32) -> Result<Self> {
        // SAFETY: a plain system call; the descriptor is new, and nobody else's.
        let socket = unsafe {
            let descriptor = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            Errno::result(descriptor).context("cannot create an AF_XDP socket")?;
            OwnedFd::from_raw_fd(descriptor)
        };
        let found = Self {
            socket,
            memory: Memory::new()?,
        };
        found.set_up().context("cannot set up an AF_XDP socket")?;
        found.bind(device, queue).map_err(|error| refused(queue, error))?;
        Ok(found)
    }

    fn set_up(&self) -> Result<(), Errno> {
        let area = libc::xdp_umem_reg_v1 {
            addr: self.memory.0.as_ptr() as u64,
            len: MEMORY.get() as u64,
            chunk_size: MEMORY.get() as u32,
            headroom: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &area)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
        ] {
            self.set(libc::SOL_XDP, ring, &ENTRIES)?;
        }
        self.set(libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &BUSY_POLL_US)
    }

    fn set<T>(&self, level: i32, name: i32, value: &T) -> Result<(), Errno> {
        // SAFETY: the pointer and length are those of the value.
        let set = unsafe {
            let value = std::ptr::from_ref(value).cast();
            libc::setsockopt(self.socket.as_raw_fd(), level, name, value, size_of::<T>() as u32)
        };
        Errno::result(set).map(drop)
    }

    fn bind(&self, device: u32, queue: u32) -> Result<(), Errno> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: device,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the pointer and length are those of the address.
        let bound = unsafe {
            let address = (&raw const address).cast();
            libc::bind(self.socket.as_raw_fd(), address, size_of::<libc::sockaddr_xdp>() as u32)
        };
        Errno::result(bound).map(drop)
    }

    /// The NAPI that a packet has come by; `None` until one has.
    pub fn napi(&self) -> Option<u32> {
        let (mut napi, mut length) = (0u32, size_of::<u32>() as u32);
        // SAFETY: the pointers are those of a value and its length.
        let known = unsafe {
            let napi = (&raw mut napi).cast();
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_INCOMING_NAPI_ID,
                napi,
                &raw mut length,
            )
        };
        (known == 0 && napi != 0).then_some(napi)
    }

    /// Asks to poll that NAPI, once.
    pub fn ask(&self) {
        // SAFETY: a receive without a buffer writes nothing.
        unsafe { libc::recv(self.socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    }
}

fn refused(queue: u32, error: Errno) -> Error {
    let why = format!("cannot bind an AF_XDP socket to receive queue {queue}");
    match error {
        Errno::EBUSY => anyhow!("{why}: another program has the queue (AF_XDP); stop it, or use Linux 6.13 or newer"),
        error => Error::new(error).context(why),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
