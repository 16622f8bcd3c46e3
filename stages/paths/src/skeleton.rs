//! What libbpf-cargo makes of `load.bpf.c`, and of `tcp.bpf.c` in a module of its own.
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![allow(missing_docs, non_camel_case_types, unused)]

mod generated {
    include!(concat!(env!("OUT_DIR"), "/load.skel.rs"));
}

pub mod tcp {
    include!(concat!(env!("OUT_DIR"), "/tcp.skel.rs"));
}

pub use generated::*;
