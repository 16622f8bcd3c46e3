//! What libbpf-cargo makes of `abi.bpf.c`: the structures of `uapi.h`.
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![allow(missing_docs, non_camel_case_types, unused)]

mod generated {
    include!(concat!(env!("OUT_DIR"), "/abi.skel.rs"));
}

pub use generated::types::*;
