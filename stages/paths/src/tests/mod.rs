//! The stage on a host with two uplinks, in a guest.

mod adopt;
mod busy;
mod conntrack;
mod devices;
mod downloads;
mod firewalls;
mod gateways;
mod leases;
mod load;
mod many;
mod meanwhile;
mod moves;
mod networks;
mod others;
mod pins;
mod prefixes;
mod protocols;
mod scene;
mod sctp;
mod set;
mod steps;
mod targets;
mod tcp;
mod thrift;
mod udp;
