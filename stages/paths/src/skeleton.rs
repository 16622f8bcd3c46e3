//! What libbpf-cargo makes of `load.bpf.c`, and of `tcp.bpf.c` in a module of its own.

tarn_kernel::skeleton!(mod generated, "load");
tarn_kernel::skeleton!(pub mod tcp, "tcp");

pub use generated::*;
