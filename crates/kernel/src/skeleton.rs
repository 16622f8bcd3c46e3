//! What `tarn-bpf-build` makes of BPF programs.

/// Declares a module with what libbpf-cargo makes of `NAME.bpf.c`: `skeleton!(pub mod load, "load")`.
#[macro_export]
macro_rules! skeleton {
    ($visibility:vis mod $module:ident, $name:literal) => {
        #[allow(
            clippy::all,
            clippy::undocumented_unsafe_blocks,
            clippy::unwrap_used,
            clippy::expect_used,
            missing_docs,
            non_camel_case_types,
            unused
        )]
        $visibility mod $module {
            include!(concat!(env!("OUT_DIR"), "/", $name, ".skel.rs"));
        }
    };
}
