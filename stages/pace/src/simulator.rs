//! A simulator of networks, packet by packet, that runs the algorithm itself.
//!
//! ```text
//!     sender 1 --+
//!     sender 2 --+--> bottleneck --> receivers --- round trip without a queue ---> senders
//!     ping     --+    (queue or policer)           (acknowledgements, perhaps gathered)
//! ```
//!
//! `core.c` compiles the files of `core/` that the BPF program consists of, too. A network that takes half a minute is simulated in
//! hundredths of a second, and the same seed gives the same outcome: enough for property tests over many networks, and for
//! the choice of parameters. The lab, with the kernel's own TCP, remains what figures are taken from.

pub(crate) mod core;
pub(crate) mod course;
pub(crate) mod network;
pub(crate) mod outcome;

mod bottleneck;
mod classic;
mod control;
mod events;
mod receiver;
mod run;
mod scoreboard;
mod sender;
mod timer;

#[cfg(test)]
mod tests;

use self::core::Connection;
use network::Network;
use outcome::Outcome;

/// How a sender stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// Of a flow with our control.
    pub(crate) connection: Option<&'a Connection>,
    /// Segments.
    pub(crate) window: u32,
    /// Bytes a second; 0: no pace.
    pub(crate) pacing: u64,
}

/// Somebody who watches a network while it runs.
pub(crate) trait Observer {
    /// A flow has taken an acknowledgement of so many segments into account, at a time in ns.
    fn acknowledged(&mut self, now: u64, flow: usize, segments: u32, view: View<'_>);
}

/// Nobody watches.
impl Observer for () {
    fn acknowledged(&mut self, _now: u64, _flow: usize, _segments: u32, _view: View<'_>) {}
}

/// Simulates a network.
pub(crate) fn simulate(network: &Network) -> Outcome {
    watch(network, &mut ())
}

/// Simulates a network while somebody watches.
pub(crate) fn watch(network: &Network, observer: &mut impl Observer) -> Outcome {
    run::Run::new(network, observer).finish()
}

/// Simulates a network and prints one line of it.
pub(crate) fn report(name: &str, network: &Network) -> Outcome {
    let outcome = simulate(network);
    println!("{name:40} {outcome}");
    outcome
}
