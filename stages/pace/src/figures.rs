//! The stage's figures, for `status`, `top`, `watch` and the metrics.

pub mod connection;
mod destination;
pub mod sums;

use anyhow::Result;
use tarn_base::described;
use tarn_base::figures::{Combine, FigureTable, Figures, Headline, Value};
use tarn_frame::journal::Journal;
use tarn_frame::state::StateDirectory;
use tarn_kernel::sysctl;

use crate::config::Config;
use crate::parameters::PARAMETERS;
use crate::registration::{Identity, NAME, Registration};
use crate::skeleton::connections::types::pace_connection;
use crate::standing::{DEFAULT, FILE, registered};

described! {
    /// Which connections use the congestion control, and how it responds.
    struct Pacing {
        congestion_control: Label "" "None after somebody else has removed it",
        trouble: Note "" "Why no connection is paced, though some should be, and what to do",
        response: Label "" "How new connections answer a drop",
        default: Label "" "Default of this network namespace",
        prefixes: Gauge "prefixes" "Destinations in tarn.toml",
        cgroups: Gauge "groups" "Control groups in tarn.toml",
    }
}

described! {
    /// A parameter of the algorithm.
    struct Parameter {
        parameter: Label "" "Key in tarn.toml",
        value: Gauge "" "Value in force, in the unit of tarn.toml",
    }
}

/// The connections that use it; none after somebody else has removed it.
fn connections_of(registered: Option<&(u64, Identity, Registration)>) -> Result<Vec<pace_connection>> {
    registered.map_or_else(|| Ok(Vec::new()), |(.., registration)| registration.connections())
}

/// The connections of this network namespace that use the congestion control.
///
/// # Errors
/// The kernel's, or a file that is damaged.
pub fn connections(state: &StateDirectory) -> Result<Vec<pace_connection>> {
    connections_of(registered(&Journal::open(state)?)?.as_ref())
}

/// The connections that have sent the most, at most `rows`; nothing when there is none.
///
/// # Errors
/// As [`connections`].
pub fn detail(state: &StateDirectory, rows: usize) -> Result<Vec<FigureTable>> {
    let busiest = connection::busiest(connections(state)?, rows);
    let is_empty = busiest.is_empty();
    Ok((!is_empty).then(|| connection::table(&busiest)).into_iter().collect())
}

/// The figures, read from the kernel; `None` when the stage is down.
///
/// # Errors
/// The kernel's, or a file that is damaged.
pub fn read(state: &StateDirectory) -> Result<Option<Figures>> {
    let Some(config) = state.read_json::<Config>(FILE)? else {
        return Ok(None);
    };
    let registered = registered(&Journal::open(state)?)?;
    let values =
        Pacing {
            congestion_control: Value::from(registered.as_ref().map_or("none", |_| NAME)),
            trouble: Value::from(registered.is_none().then_some(
                "left alone: somebody else has removed the congestion control; `tarn up` registers it again",
            )),
            response: Value::from(config.response_name()),
            default: Value::from(sysctl::read(DEFAULT.as_ref())?),
            prefixes: Value::from(config.destinations.len()),
            cgroups: Value::from(config.groups.len()),
        };
    let parameters = registered
        .as_ref()
        .map(|(.., registration)| registration.parameters())
        .transpose()?;
    let row = |parameter: &crate::parameters::Parameter| {
        let value = parameters.as_ref().map(|parameters| parameter.get(parameters));
        Parameter {
            parameter: Value::from(parameter.name),
            value: Value::from(value),
        }
        .values()
    };
    let connections = connections_of(registered.as_ref())?;
    Ok(Some(Figures {
        fields: Pacing::FIELDS,
        values: values.values(),
        tables: vec![
            destination::table(&config.destinations, &connections),
            FigureTable {
                name: "parameters",
                about: "The parameters in force",
                key: 1,
                plot: None,
                fields: Parameter::FIELDS,
                rows: PARAMETERS.iter().map(row).collect(),
            },
        ],
        headline: Some(Headline {
            table: "destinations",
            field: "rate_mbit_s",
            less: None,
            what: "Mbit/s",
            combine: Combine::Sum,
        }),
        alarms: &[],
    }))
}
