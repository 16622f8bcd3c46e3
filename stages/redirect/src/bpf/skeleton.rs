//! What libbpf-cargo makes of `redirect.bpf.c`.
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::expect_used
)]
#![allow(missing_docs, non_camel_case_types, unused)]

mod generated {
    include!(concat!(env!("OUT_DIR"), "/redirect.skel.rs"));
}

pub use generated::*;
