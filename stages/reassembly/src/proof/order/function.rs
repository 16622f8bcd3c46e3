//! The function alone, in the bench module.

use anyhow::Result;

use super::FUNCTION;
use super::load::{self, Order, SHAPES, Shape};
use crate::proof::bench::{Bench, Load};
use tarn_lab::experiment::{Check, Guest, Measurement, Size, metrics};

/// Fragments of all datagrams of a case together, about; at least so many datagrams.
const FRAGMENTS: u32 = 10_000;
const FRAGMENTS_FULL: u32 = 200_000;
const DATAGRAMS: u32 = 20;

/// Whose functions there are, as the bench calls them and as a reader is told.
const FUNCTIONS: [(&str, &str); 2] = [("mainline", "stock kernel"), ("tarn", "tarn")];

type Plan = ((&'static str, &'static str), Shape, Order);

/// Measures all of a family.
pub fn run(guest: &mut Guest, is_v6: bool) -> Result<Measurement> {
    let plans: Vec<Plan> = FUNCTIONS
        .iter()
        .flat_map(|function| SHAPES.iter().map(move |shape| (*function, *shape)))
        .flat_map(|(function, shape)| Order::ALL.map(|order| (function, shape, order)))
        .collect();
    let wanted = if guest.size == Size::Full {
        FRAGMENTS_FULL
    } else {
        FRAGMENTS
    };
    let bench = Bench::load()?;
    let describe = |(who, (fragments, _), order): &Plan| load::case(*who, *order, *fragments, is_v6);
    guest.measure(&plans, describe, |(who, shape, order), case, all| {
        let fragments = shape.0;
        let load = Load {
            is_v6,
            fragments,
            size: load::size(*shape, is_v6),
            order: order.name(),
            datagrams: (wanted / fragments).max(DATAGRAMS),
        };
        let cost = bench.cost(who.0, &load)?;
        case.metrics = metrics([(FUNCTION, cost.per_fragment)]);
        all.checks.push(Check {
            name: format!("{}: every datagram became whole", case.name),
            passed: cost.completed == load.datagrams,
            detail: format!("{} of {}", cost.completed, load.datagrams),
        });
        Ok(())
    })
}
