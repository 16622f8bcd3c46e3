//! A network with a router behind the host.
//!
//! ```text
//!   client              host                    router                 server
//!   192.168.64.1 ── 192.168.64.2  10.0.1.1 ── 10.0.1.2  10.0.2.1 ── 10.0.2.2
//!   fd64::1   eth0 left fd64::2   fd01::1 right left fd01::2  fd02::1 right eth0 fd02::2
//! ```

use super::scene::{Family, V4, V6, end};
use super::way::Way;
use tarn_lab::topology::{Node, Topology};

pub const FAMILIES: [Family; 2] = [
    Family {
        server: "10.0.2.2",
        ..V4
    },
    Family {
        server: "fd02::2",
        ..V6
    },
];

/// The network, with these MTUs of its links from the client on. Client and server say that they can receive segments
/// for 1500 bytes whatever their link can, as one does that does not know of a narrow link on the way.
pub fn far(way: Way, offload: bool, mtus: [u32; 3]) -> Topology {
    let link = |index: usize, node: &str, interface: &str, v4: &str, v6: &str| {
        // What leaves the router for the server has its checksums completed by the router's stack.
        let offload = offload && (node, interface) != ("router", "right");
        let end = end(way, offload, node, interface).mtu(mtus[index]);
        end.address(&format!("{v4}/24")).address(&format!("{v6}/64"))
    };
    Topology::new()
        .node(
            Node::new("client")
                .ip("route replace 192.168.64.0/24 dev eth0 advmss 1460")
                .ip("route replace fd64::/64 dev eth0 metric 256 advmss 1440")
                .ip("route add default via 192.168.64.2 advmss 1460")
                .ip("route add default via fd64::2 advmss 1440"),
        )
        .node(
            Node::new("host")
                .forwarding()
                .route("10.0.2.0/24", "10.0.1.2")
                .route("fd02::/64", "fd01::2"),
        )
        .node(
            Node::new("router")
                .forwarding()
                .route("default", "10.0.1.1")
                .route("default", "fd01::1"),
        )
        .node(
            Node::new("server")
                .ip("route add default via 10.0.2.1 advmss 1460")
                .ip("route add default via fd02::1 advmss 1440"),
        )
        .link(
            link(0, "client", "eth0", V4.client, V6.client),
            link(0, "host", "left", V4.host, V6.host),
        )
        .link(
            link(1, "host", "right", "10.0.1.1", "fd01::1"),
            link(1, "router", "left", "10.0.1.2", "fd01::2"),
        )
        .link(
            link(2, "router", "right", "10.0.2.1", "fd02::1"),
            link(2, "server", "eth0", "10.0.2.2", "fd02::2"),
        )
}
