//! Makes the kernel stop polling a NAPI again whose polls are always full.
//!
//! The kernel polls a NAPI again at once for as long as each poll takes all that it may. Where a program prefers to poll the NAPI itself,
//! the kernel ends such a poll and schedules the NAPI anew instead (`NAPI_STATE_PREFER_BUSY_POLL`, since Linux 5.11): by its thread, if its device
//! has become threaded meanwhile. That holds once for each time a program asks, and nothing is lost.
//!
//! A ring of io_uring asks for NAPIs by their identifiers (since Linux 6.13). A socket of AF_XDP asks for the NAPI of the packets that a
//! program redirects to it, without zero-copy where the driver says which NAPI that is, and the kernel notes it (not Linux 6.13 to 6.15).

mod ring;
mod socket;

pub use ring::Ring;
pub use socket::Socket;

#[cfg(test)]
mod tests;
