//! What libbpf-cargo makes of `poll.bpf.c`.

tarn_kernel::skeleton!(mod generated, "poll");

pub use generated::*;
