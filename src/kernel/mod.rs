//! What faces the kernel and is shared by stages.

pub mod addresses;
pub mod attach;
pub mod cgroup;
pub mod clock;
pub mod conntrack;
pub mod features;
pub mod foreign;
pub mod genl;
pub mod icmp;
pub mod libbpf;
pub mod links;
pub mod modules;
pub mod netdev;
pub mod netlink;
pub mod netns;
pub mod nexthop;
pub mod nfnetlink;
pub mod nft;
pub mod plain;
pub mod route;
pub mod sysctl;
