//! TCP_INFO: what the kernel knows of a connection.

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result, ensure};

/// The beginning of struct tcp_info in include/uapi/linux/tcp.h, which only grows at its end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TcpInfo {
    bytes: [u8; 8],
    numbers: [u32; 23],
    /// Segments sent again since the connection was made.
    pub total_retrans: u32,
    rates: [u64; 2],
    /// Bytes acknowledged.
    pub bytes_acked: u64,
}

impl TcpInfo {
    /// Reads it of a connection.
    ///
    /// # Errors
    /// When it is no TCP socket.
    pub fn of(socket: &impl AsFd) -> Result<Self> {
        let mut info = MaybeUninit::<Self>::zeroed();
        let mut length = size_of::<Self>() as libc::socklen_t;
        // SAFETY: `info` lives through the call and `length` is its size.
        let outcome = unsafe {
            let socket = socket.as_fd().as_raw_fd();
            let place = info.as_mut_ptr().cast();
            libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut length)
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error()).context("cannot read TCP_INFO");
        }
        ensure!(
            length as usize > offset_of!(Self, bytes_acked),
            "the kernel's TCP_INFO ends early"
        );
        // SAFETY: every field is an integer, for which any bits are valid; all were zero before.
        Ok(unsafe { info.assume_init() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `pahole -C tcp_info` shows it on a 64-bit kernel.
    #[test]
    fn fields_lie_where_the_kernel_puts_them() {
        assert_eq!(offset_of!(TcpInfo, total_retrans), 100);
        assert_eq!(offset_of!(TcpInfo, bytes_acked), 120);
    }
}
