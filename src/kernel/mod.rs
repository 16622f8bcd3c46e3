//! What faces the kernel and is shared by stages.

pub mod attach;
pub mod conntrack;
pub mod features;
pub mod genl;
pub mod libbpf;
pub mod links;
pub mod modules;
pub mod netdev;
pub mod netlink;
pub mod netns;
pub mod nfnetlink;
pub mod nft;
pub mod plain;
pub mod sysctl;
