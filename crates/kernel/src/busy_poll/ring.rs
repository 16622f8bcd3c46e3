//! A ring of io_uring that polls NAPIs by their identifiers.

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;

/// include/uapi/linux/io_uring.h
const IORING_REGISTER_NAPI: libc::c_uint = 27;
const IO_URING_NAPI_REGISTER_OP: u8 = 0;
const IO_URING_NAPI_STATIC_ADD_ID: u8 = 1;
const IO_URING_NAPI_TRACKING_STATIC: u32 = 1;
const IORING_ENTER_GETEVENTS: libc::c_uint = 1;
const IORING_ENTER_EXT_ARG: libc::c_uint = 8;
/// The size of `struct io_uring_params`, which the kernel fills in, in 32-bit words.
const PARAMETERS: usize = 30;
/// For how long it polls, in us. It only has to ask.
const BUSY_POLL_US: u32 = 1;

/// `struct io_uring_napi`.
#[repr(C)]
struct Napi {
    busy_poll_us: u32,
    prefers_busy_poll: u8,
    operation: u8,
    padding: [u8; 2],
    parameter: u32,
    reserved: u32,
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct Wait {
    signals: u64,
    signals_size: u32,
    padding: u32,
    timeout: u64,
}

/// An io_uring that carries no requests.
pub struct Ring(OwnedFd);

impl Ring {
    /// For these NAPIs.
    ///
    /// # Errors
    /// Before Linux 6.13; where `kernel.io_uring_disabled` is set; or an identifier that no NAPI can have.
    pub fn of_napis(napis: &[u32]) -> Result<Self> {
        let mut parameters = [0u32; PARAMETERS];
        // SAFETY: the kernel fills in the parameters; the descriptor is new, and nobody else's.
        let ring = unsafe {
            let descriptor = libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr());
            Errno::result(descriptor).context("cannot create an io_uring")?;
            Self(OwnedFd::from_raw_fd(descriptor as i32))
        };
        ring.register(IO_URING_NAPI_REGISTER_OP, IO_URING_NAPI_TRACKING_STATIC)?;
        for napi in napis {
            ring.register(IO_URING_NAPI_STATIC_ADD_ID, *napi)?;
        }
        Ok(ring)
    }

    fn register(&self, operation: u8, parameter: u32) -> Result<()> {
        let mut napi = Napi {
            busy_poll_us: BUSY_POLL_US,
            prefers_busy_poll: 1,
            operation,
            padding: [0; 2],
            parameter,
            reserved: 0,
        };
        // SAFETY: the kernel reads the structure, and writes what held before into it.
        let registered = unsafe {
            let napi = (&raw mut napi).cast::<libc::c_void>();
            libc::syscall(
                libc::SYS_io_uring_register,
                self.0.as_raw_fd(),
                IORING_REGISTER_NAPI,
                napi,
                1,
            )
        };
        Errno::result(registered)
            .context("an io_uring cannot poll NAPIs by their identifiers here")
            .map(drop)
    }

    /// Asks to poll them, once.
    pub fn ask(&self) {
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: 1 };
        let wait = Wait {
            signals: 0,
            signals_size: 0,
            padding: 0,
            timeout: &raw const timeout as u64,
        };
        // SAFETY: the kernel reads the structures. It ends with ETIME: nothing was begun that could end.
        unsafe {
            let wait = (&raw const wait).cast::<libc::c_void>();
            let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.0.as_raw_fd(),
                0,
                1,
                flags,
                wait,
                size_of::<Wait>(),
            );
        }
    }
}
