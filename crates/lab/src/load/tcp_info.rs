//! TCP_INFO: what the kernel knows of a connection.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};

/// struct tcp_info of include/uapi/linux/tcp.h, to the fields that 6.1 has. A kernel fills as much as it knows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TcpInfo {
    /// TCP_ESTABLISHED and so on.
    pub state: u8,
    /// TCP_CA_Open, Disorder, CWR, Recovery, Loss: 0..=4.
    pub ca_state: u8,
    /// Retransmission timeouts in a row.
    pub retransmits: u8,
    /// Unanswered window probes.
    pub probes: u8,
    /// Exponential backoff of the timer.
    pub backoff: u8,
    /// Negotiated options.
    pub options: u8,
    /// Window scales, 4 bits each way.
    pub wscale: u8,
    /// Delivery rate is application limited (bit 0), fast open failure (bits 1 and 2).
    pub flags: u8,
    /// Retransmission timeout (us).
    pub rto: u32,
    /// Delayed acknowledgement timeout (us).
    pub ato: u32,
    /// Maximum segment sent (bytes).
    pub snd_mss: u32,
    /// Maximum segment received (bytes).
    pub rcv_mss: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments acknowledged selectively.
    pub sacked: u32,
    /// Segments held lost.
    pub lost: u32,
    /// Segments retransmitted and not acknowledged.
    pub retrans: u32,
    /// Unused since 2008.
    pub fackets: u32,
    /// Since data was last sent (ms).
    pub last_data_sent: u32,
    /// Not kept by the kernel.
    pub last_ack_sent: u32,
    /// Since data was last received (ms).
    pub last_data_recv: u32,
    /// Since an acknowledgement was last received (ms).
    pub last_ack_recv: u32,
    /// Path MTU (bytes).
    pub pmtu: u32,
    /// Threshold of the receive window (bytes).
    pub rcv_ssthresh: u32,
    /// Smoothed round trip time (us).
    pub rtt: u32,
    /// Its mean deviation (us).
    pub rttvar: u32,
    /// Slow start threshold (segments).
    pub snd_ssthresh: u32,
    /// Congestion window (segments).
    pub snd_cwnd: u32,
    /// Advertised segment size (bytes).
    pub advmss: u32,
    /// Reordering seen (segments).
    pub reordering: u32,
    /// Round trip time as the receiver sees it (us).
    pub rcv_rtt: u32,
    /// Receive buffer space (bytes).
    pub rcv_space: u32,
    /// Retransmissions since the connection was made (segments).
    pub total_retrans: u32,
    /// Pacing rate (bytes a second).
    pub pacing_rate: u64,
    /// Its limit (bytes a second).
    pub max_pacing_rate: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments sent, control segments included.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Bytes written and not sent.
    pub notsent_bytes: u32,
    /// Least round trip time in the window (us).
    pub min_rtt: u32,
    /// Segments with data received.
    pub data_segs_in: u32,
    /// Segments with data sent.
    pub data_segs_out: u32,
    /// The latest delivery rate sample (bytes a second).
    pub delivery_rate: u64,
    /// Busy sending (us).
    pub busy_time: u64,
    /// Of that, limited by the receive window (us).
    pub rwnd_limited: u64,
    /// Of that, limited by the send buffer (us).
    pub sndbuf_limited: u64,
    /// Segments delivered, retransmissions included.
    pub delivered: u32,
    /// Of these, acknowledged with an ECN mark.
    pub delivered_ce: u32,
    /// Bytes of data sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes retransmitted.
    pub bytes_retrans: u64,
    /// Duplicate selective acknowledgements: retransmissions that were not needed.
    pub dsack_dups: u32,
    /// Times that reordering was seen.
    pub reord_seen: u32,
    /// Segments received out of order.
    pub rcv_ooopack: u32,
    /// The peer's window (bytes).
    pub snd_wnd: u32,
}

impl TcpInfo {
    /// Reads it of a connection.
    pub fn of(socket: &impl AsFd) -> Result<Self> {
        let mut info = MaybeUninit::<Self>::zeroed();
        let mut length = size_of::<Self>() as libc::socklen_t;
        // SAFETY: `info` lives through the call and `length` is its size.
        let outcome = unsafe {
            let socket = socket.as_fd().as_raw_fd();
            libc::getsockopt(
                socket,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error()).context("cannot read TCP_INFO");
        }
        // SAFETY: every field is an integer, for which any bits are valid; all were zero before.
        Ok(unsafe { info.assume_init() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_kernel_puts_them() {
        // Offsets of include/uapi/linux/tcp.h on a 64-bit machine.
        assert_eq!(std::mem::offset_of!(TcpInfo, rto), 8);
        assert_eq!(std::mem::offset_of!(TcpInfo, rtt), 68);
        assert_eq!(std::mem::offset_of!(TcpInfo, total_retrans), 100);
        assert_eq!(std::mem::offset_of!(TcpInfo, pacing_rate), 104);
        assert_eq!(std::mem::offset_of!(TcpInfo, delivery_rate), 160);
        assert_eq!(size_of::<TcpInfo>(), 232);
    }
}
