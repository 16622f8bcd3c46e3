//! What faces the kernel and is shared by stages. Nothing here keeps a record of what it changes.

#![cfg_attr(any(test, feature = "testing"), allow(clippy::unwrap_used, clippy::expect_used))]

pub mod addresses;
pub mod attach;
pub mod busy_poll;
pub mod cgroup;
pub mod clock;
pub mod conntrack;
pub mod features;
pub mod genl;
pub mod icmp;
pub mod libbpf;
pub mod links;
pub mod listeners;
pub mod modules;
pub mod netconf;
pub mod netdev;
pub mod netlink;
pub mod netns;
pub mod nfnetlink;
pub mod nft;
pub mod plain;
mod program;
pub mod qdisc;
pub mod route;
pub mod scheduling;
mod skeleton;
pub mod sysctl;
pub mod sysfs;
pub mod undone;
pub mod xdp_next;
pub mod xfrm;
