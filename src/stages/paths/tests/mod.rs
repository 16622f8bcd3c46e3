//! The stage on a host with two uplinks, in a guest.

mod devices;
mod load;
mod moves;
mod others;
mod pins;
mod scene;
