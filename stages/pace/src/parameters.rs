//! The parameters of the algorithm, with their ranges: the one list that `tarn.toml`, `tarn pace set` and `status` use.

use std::ops::RangeInclusive;

use crate::skeleton::types::pace_parameters;

/// How a connection answers a drop of the bandwidth: the name in `tarn.toml`, and the number in the core (enum pace_response).
pub const RESPONSES: [(&str, u32); 4] = [("tarn", 0), ("off", 1), ("published", 2), ("published-repaired", 3)];

/// The unit in which a person writes a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Written in percent; parts of 256 in the core.
    Percent,
    /// Parts of 256, as the author of the published response writes them.
    Of256,
    /// Packets.
    Packets,
    /// One packet in so many; 0 for none.
    OneIn,
}

/// A parameter.
pub struct Parameter {
    /// The key in `tarn.toml`.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// In that unit.
    pub default: u32,
    /// In that unit.
    pub range: RangeInclusive<u32>,
    field: fn(&mut pace_parameters) -> &mut u32,
}

impl Parameter {
    /// A value in the core's unit.
    fn to_core(&self, value: u32) -> u32 {
        match self.unit {
            Unit::Percent => (value * 256 + 50) / 100,
            Unit::Of256 | Unit::Packets | Unit::OneIn => value,
        }
    }

    /// A value of the core in this one's unit.
    fn to_written(&self, value: u32) -> u32 {
        match self.unit {
            Unit::Percent => (value * 100 + 128) / 256,
            Unit::Of256 | Unit::Packets | Unit::OneIn => value,
        }
    }

    /// Sets it, in its unit.
    pub fn set(&self, parameters: &mut pace_parameters, value: u32) {
        *(self.field)(parameters) = self.to_core(value);
    }

    /// Its value, in its unit.
    pub fn get(&self, parameters: &pace_parameters) -> u32 {
        let mut parameters = *parameters;
        self.to_written(*(self.field)(&mut parameters))
    }
}

/// Declares a parameter: field of the core, unit, default, range, what it does. Its key is the field's name.
macro_rules! parameter {
    ($field:ident, $unit:ident, $default:expr, $range:expr, $about:literal) => {
        Parameter {
            name: stringify!($field),
            about: $about,
            unit: Unit::$unit,
            default: $default,
            range: $range,
            field: |parameters| &mut parameters.$field,
        }
    };
}

/// All of them.
pub static PARAMETERS: [Parameter; 13] = [
    parameter!(
        drop_below,
        Percent,
        75,
        50..=95,
        "A rate below this share of the estimate is a drop of the bandwidth"
    ),
    parameter!(
        queue_margin,
        Percent,
        12,
        3..=100,
        "There is a queue when the round trip is this much above the minimum"
    ),
    parameter!(
        queue_rise,
        Percent,
        6,
        0..=100,
        "The queue grows when the round trip is this much above the last one"
    ),
    parameter!(
        drain_gain,
        Percent,
        75,
        25..=97,
        "Share of the new rate that is sent until the queue is gone"
    ),
    parameter!(
        window_gain,
        Percent,
        125,
        100..=300,
        "Window, as a share of the bandwidth-delay product"
    ),
    parameter!(
        probe_window_gain,
        Percent,
        150,
        100..=300,
        "The same while probing for more bandwidth"
    ),
    parameter!(
        competing_window_gain,
        Percent,
        156,
        100..=400,
        "The same while others keep the queue full"
    ),
    parameter!(
        competing_above,
        Percent,
        195,
        120..=400,
        "Round trips that stay above this (of the minimum) mean competition"
    ),
    parameter!(
        loss_share,
        OneIn,
        20,
        0..=1000,
        "More loss than one in this many limits what is in flight; 0: never"
    ),
    parameter!(
        probe_packets,
        Packets,
        8,
        0..=64,
        "A probe for more bandwidth sends at least this many packets more"
    ),
    parameter!(
        bw_delta_alpha,
        Of256,
        128,
        0..=1024,
        "Sensitivity of the published response (BW_DELTA_ALPHA)"
    ),
    parameter!(
        bw_delta_ceiling,
        Of256,
        64,
        0..=255,
        "Largest reduction by the published response (BW_DELTA_CEILING)"
    ),
    parameter!(
        bw_delta_floor,
        Of256,
        192,
        0..=256,
        "Below this it reduces the window as well (BW_DELTA_FLOOR)"
    ),
];

/// For `--help`: each key with its range, unit and default, and its meaning on the next line.
pub fn described() -> String {
    let entry = |parameter: &Parameter| {
        let unit = match parameter.unit {
            Unit::Percent => " %",
            Unit::Of256 => " of 256",
            Unit::Packets => " packets",
            Unit::OneIn => "",
        };
        let (first, last) = (parameter.range.start(), parameter.range.end());
        format!(
            "  {}, {first} to {last}{unit}, default {}\n      {}",
            parameter.name, parameter.default, parameter.about
        )
    };
    let entries: Vec<String> = PARAMETERS.iter().map(entry).collect();
    entries.join("\n")
}

/// The defaults.
#[cfg(any(test, feature = "proof"))]
pub fn defaults() -> pace_parameters {
    let mut parameters = pace_parameters::default();
    for parameter in &PARAMETERS {
        parameter.set(&mut parameters, parameter.default);
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `status` shows what was set, and another `up` finds nothing changed.
    #[test]
    fn every_number_comes_back_as_it_was_set() {
        for parameter in &PARAMETERS {
            for value in parameter.range.clone() {
                let mut parameters = defaults();
                parameter.set(&mut parameters, value);
                assert_eq!(parameter.get(&parameters), value, "{}", parameter.name);
            }
        }
    }

    #[test]
    fn defaults_are_within_their_bounds() {
        let outside = PARAMETERS
            .iter()
            .find(|parameter| !parameter.range.contains(&parameter.default));
        assert!(outside.is_none(), "{:?}", outside.map(|parameter| parameter.name));
    }
}
