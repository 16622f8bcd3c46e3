//! The tests: what the module does without the kernel, compiled into them (`core`, `memory`, `hash`), and the module in a guest, with
//! fragments from the wire.

mod core;
mod debug_kernel;
mod deliveries;
mod devices;
mod filters;
mod hash;
mod headers;
mod life;
mod limits;
mod memory;
mod orders;
mod packet;
mod program;
mod random;
mod rig;
mod router;
mod rules;
mod teardown;
mod tunnels;
mod wire;
