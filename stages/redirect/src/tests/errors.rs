//! Errors that a socket was told of by ICMP, with what they are about: IP_RECVERR.

use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::scene::PATIENCE;
use super::wire::set;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The errno.
    pub error: i32,
    /// ICMP or ICMPv6 type and code.
    pub icmp: (u8, u8),
    /// The MTU, where one was told.
    pub mtu: u32,
    /// What the packet that the error is about was sent to.
    pub about: SocketAddr,
    /// Who sent the error.
    pub by: IpAddr,
}

/// Asks for errors.
pub fn listen(socket: &UdpSocket) {
    match socket.local_addr().unwrap() {
        SocketAddr::V4(_) => set(socket, libc::SOL_IP, libc::IP_RECVERR, 1).unwrap(),
        SocketAddr::V6(_) => set(socket, libc::SOL_IPV6, libc::IPV6_RECVERR, 1).unwrap(),
    }
}

/// Sends what does not fit as a whole or not at all (DF).
pub fn do_not_fragment(socket: &UdpSocket) {
    match socket.local_addr().unwrap() {
        SocketAddr::V4(_) => set(socket, libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO).unwrap(),
        SocketAddr::V6(_) => set(socket, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO).unwrap(),
    }
}

/// Sets the time to live or hop limit.
pub fn live(socket: &UdpSocket, hops: i32) {
    match socket.local_addr().unwrap() {
        SocketAddr::V4(_) => set(socket, libc::SOL_IP, libc::IP_TTL, hops).unwrap(),
        SocketAddr::V6(_) => set(socket, libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, hops).unwrap(),
    }
}

/// Waits for an error or a datagram: `None` when it is a datagram, or nothing comes.
pub fn wait(socket: &UdpSocket) -> Option<Told> {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as i32) };
    next(socket)
}

/// The next error in the socket's error queue.
pub fn next(socket: &UdpSocket) -> Option<Told> {
    let mut payload = [0_u8; 2048];
    let mut control = [0_u64; 64];
    // SAFETY: all-zero structures of these types are valid. Every pointer is to memory that outlives the call, with
    // its true length; control messages are read by the macros that the interface has for it.
    unsafe {
        let mut to: libc::sockaddr_storage = zeroed();
        let mut vector = libc::iovec {
            iov_base: payload.as_mut_ptr().cast(),
            iov_len: payload.len(),
        };
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut to).cast();
        message.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        if libc::recvmsg(
            socket.as_raw_fd(),
            &raw mut message,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        ) < 0
        {
            return None;
        }
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let is_error = [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)]
                .contains(&((*header).cmsg_level, (*header).cmsg_type));
            if is_error {
                let data = libc::CMSG_DATA(header);
                let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                let by = data.add(size_of::<libc::sock_extended_err>());
                return Some(Told {
                    error: error.ee_errno as i32,
                    icmp: (error.ee_type, error.ee_code),
                    mtu: error.ee_info,
                    about: address((&raw const to).cast()),
                    by: address(by).ip(),
                });
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    None
}

/// Reads a socket address of either family.
///
/// # Safety
/// `from` must point to one, which need not be aligned.
unsafe fn address(from: *const u8) -> SocketAddr {
    // SAFETY: the family says which of the structures it is; the caller says that it is one.
    unsafe {
        match i32::from(from.cast::<u16>().read_unaligned()) {
            libc::AF_INET6 => {
                let address = from.cast::<libc::sockaddr_in6>().read_unaligned();
                (
                    Ipv6Addr::from(address.sin6_addr.s6_addr),
                    u16::from_be(address.sin6_port),
                )
                    .into()
            }
            _ => {
                let address = from.cast::<libc::sockaddr_in>().read_unaligned();
                (
                    Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()),
                    u16::from_be(address.sin_port),
                )
                    .into()
            }
        }
    }
}
