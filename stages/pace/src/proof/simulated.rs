//! A network of the table, as the simulator knows it.

use super::control::Control;
use super::networks::{Course, Network, Queue, Rivals, Trouble};
use super::path;
use crate::simulator::network as simulated;
use crate::skeleton::core::pace_parameters;

/// How the simulator stands in for what it has not.
///
/// BBR is our model with its window and without a response, which is the published response that takes nothing off.
fn control(control: Control, parameters: &pace_parameters) -> simulated::Control {
    let mut parameters = *parameters;
    match control {
        Control::Cubic => return simulated::Control::Cubic,
        Control::Bbr => {
            parameters.response = super::control::response("published");
            parameters.bw_delta_ceiling = 0;
        }
        ours => parameters.response = ours.parameters().map_or(0, |own| own.response),
    }
    simulated::Control::Pace(parameters)
}

/// The network with flows of a control, measured for so long; `None` where the simulator cannot.
pub fn network(
    network: &Network,
    judged: Control,
    parameters: &pace_parameters,
    length_ms: u64,
    seed: u64,
) -> Option<simulated::Network> {
    let is_known = matches!(network.queue, Queue::DropTail | Queue::Policer) && network.trouble != Trouble::Reordering;
    if !is_known {
        return None;
    }
    let rivals = match network.rivals {
        Rivals::None => (0, Control::Cubic),
        Rivals::Cubic(flows) => (flows, Control::Cubic),
        Rivals::Bbr(flows) => (flows, Control::Bbr),
    };
    let apart = if network.course == Course::Steady { 1000 } else { 10 };
    let flow = |number: u32| simulated::Flow {
        control: control(if number < network.flows { judged } else { rivals.1 }, parameters),
        start_ms: u64::from(number) * apart,
        source: simulated::Source::Endless,
    };
    let flows: Vec<_> = (0..network.flows + rivals.0).map(flow).collect();
    let measured_from_ms =
        u64::from(network.flows + rivals.0 - 1) * apart + 2000.max(20 * u64::from(network.round_trip));
    let (loss, lumps) = match network.trouble {
        Trouble::Loss(percent) => (f64::from(percent) / 100.0, 0),
        Trouble::Lumps(ms) => (0.0, ms.into()),
        Trouble::None | Trouble::Reordering => (0.0, 0),
    };
    let round_trip_us = u64::from(network.round_trip) * 1000;
    Some(simulated::Network {
        buffer: simulated::Buffer::Bytes(path::buffer(network)),
        polices: network.queue == Queue::Policer,
        loss,
        course: path::course(network),
        acknowledged_every_ms: lumps,
        flows,
        measured_from_ms: Some(measured_from_ms),
        duration_ms: measured_from_ms + length_ms,
        seed,
        ..simulated::Network::new(path::whole_rate(network), round_trip_us, simulated::Control::Cubic, 0)
    })
}
