//! What libbpf-cargo makes of `pace.bpf.c`, `steer.bpf.c` and `abi.bpf.c`.

tarn_kernel::skeleton!(mod generated, "pace");
tarn_kernel::skeleton!(pub mod steer, "steer");
tarn_kernel::skeleton!(pub mod connections, "connections");
tarn_kernel::skeleton!(pub mod existing, "existing");
#[cfg(feature = "proof")]
tarn_kernel::skeleton!(mod abi, "abi");
#[cfg(feature = "proof")]
tarn_kernel::skeleton!(pub mod cost, "cost");

pub use generated::*;

/// The structures of the core.
#[cfg(feature = "proof")]
pub mod core {
    pub use super::abi::types::{pace, pace_decision, pace_sample, pace_socket};
    pub use super::types::pace_parameters;
}
