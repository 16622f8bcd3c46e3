//! The experiment `pace-fair`: who gets how much where flows share a steady path.

use tarn_lab::cards::Cards;
use tarn_lab::experiment::{Check, Experiment, Guest, Measurement, Size};

use super::control::Control;
use super::goal;
use super::networks::{self, Network, Rivals};
use super::table;

/// The experiment.
pub static FAIR: Experiment = Experiment {
    stage: crate::STAGE,
    name: "pace-fair",
    title: "how flows share a path",
    method: METHOD,
    cpus: 1,
    cards: Cards::None,
    software: false,
    metrics: table::METRICS,
    plots: table::PLOTS,
    references: &[],
    highlights: &[],
    parts: |size| table::parts(size, networks_of),
    headline: &[],
    run: |guest: &mut Guest| {
        table::run(
            guest,
            networks_of(guest.size),
            &[Control::Cubic, Control::Bbr, Control::Tarn],
        )
    },
    conclude: Some(conclude),
};

const METHOD: &str = "\
The networks and figures are as in pace-drops, but the rate stays, and flows begin a second apart. `vs1cubic` and the like: flows of \
another control share the path; goodput, share and what is sent again are of the flows that the case is called by. Jain's index \
is over all flows: 1 when all get the same, 1/n when one gets everything.";

/// The least that Jain's index may be: the goal, and what is a fault.
const JAIN: f64 = 0.9;
const STARVES: f64 = 0.65;

fn networks_of(size: Size) -> Vec<Network> {
    let all = networks::fair();
    if size == Size::Full {
        return all;
    }
    let slow = |network: &Network| network.rate <= 20 && network.is_held_out() && is_in_the_goal(network);
    table::some(all.into_iter().filter(slow).collect(), 2)
}

/// Of the goal: ours among ourselves, and one of ours against one of CUBIC, with half a product of buffer and more.
fn is_in_the_goal(network: &Network) -> bool {
    network.buffer >= 50 && matches!(network.rivals, Rivals::None | Rivals::Cubic(1))
}

fn conclude(measurement: &mut Measurement) {
    for (half, networks) in goal::halves(measurement, &networks::fair()) {
        let mut least = (1.0, String::new());
        let (mut met, mut all) = (0, 0);
        for network in networks.iter().filter(|network| is_in_the_goal(network)) {
            let case = table::name(Control::Tarn, network);
            let Some(jain) = measurement.figure(&case, "jain") else {
                continue;
            };
            all += 1;
            met += u32::from(jain >= JAIN);
            if jain < least.0 {
                least = (jain, case);
            }
        }
        measurement.checks.push(Check {
            name: format!("{half}: none of these flows starves: Jain's index is at least {STARVES}"),
            passed: all > 0 && least.0 >= STARVES,
            detail: format!("least {:.3} {}", least.0, least.1),
        });
        measurement.goals.push(Check {
            name: format!("{half}: Jain's index of ours, and of one with one of CUBIC, is at least {JAIN}"),
            passed: met == all,
            detail: format!("met in {met} of {all} networks; least {:.3} {}", least.0, least.1),
        });
    }
}
