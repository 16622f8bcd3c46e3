//! The plots of the report.

use super::scenario::Scenario;
use tarn_lab::experiment::{Lanes, Plot};

/// Two distributions, and the course of the game where it moves from one uplink to another.
pub static PLOTS: &[Plot] = &[
    Plot::Cdf {
        title: "Round trips of the game: 30 ms, and 20 ms with spikes",
        series: "game_ms_spikes",
        logarithmic: true,
    },
    Plot::Cdf {
        title: "Round trips of the game: three uplinks",
        series: "game_ms_three",
        logarithmic: true,
    },
    course(
        "Round trips of the game over time, by uplink: one dies for 5 s",
        "game_ms_dies",
        lanes("game_path_dies", "game_s_dies", &DIES),
    ),
    course(
        "Round trips of the game over time, by uplink: one takes 200 ms for 5 s",
        "game_ms_worsens",
        lanes("game_path_worsens", "game_s_worsens", &WORSENS),
    ),
    course(
        "Round trips of the game over time, by uplink: one has spikes",
        "game_ms_spikes",
        lanes("game_path_spikes", "game_s_spikes", &SPIKES),
    ),
];

/// The uplinks of the scenario `dies`, in their order.
static DIES: [(&str, &str); 2] = [
    ("wan1", "20 ms; from second 4 to second 9 nothing comes through"),
    ("wan2", "35 ms"),
];
/// Those of `worsens`.
static WORSENS: [(&str, &str); 2] = [("wan1", "20 ms; from second 4 to second 9 200 ms"), ("wan2", "30 ms")];
/// Those of `spikes`.
static SPIKES: [(&str, &str); 2] = [("wan1", "20 ms; 200 ms during a spike"), ("wan2", "30 ms")];

const fn course(title: &'static str, series: &'static str, lanes: Lanes) -> Plot {
    Plot::Timeline {
        title,
        series,
        x: "answer",
        from: 0,
        step: 1,
        lanes: Some(lanes),
    }
}

const fn lanes(series: &'static str, time: &'static str, names: &'static [(&'static str, &'static str)]) -> Lanes {
    Lanes {
        noun: "Paths",
        series,
        time,
        x: "seconds since the first request",
        names,
        note: "colour and lane: the uplink, told by the round trip; a gap in all lanes: no answer",
    }
}

/// Whether a plot shows by which uplink the answers came. Where none does, that need not be told.
pub fn show_paths_of(scenario: &Scenario) -> bool {
    paths_of(scenario).is_some()
}

fn paths_of(scenario: &Scenario) -> Option<&'static Lanes> {
    let series = format!("game_ms_{}", scenario.suffix);
    PLOTS.iter().find_map(|plot| match plot {
        Plot::Timeline {
            series: drawn, lanes, ..
        } if *drawn == series => lanes.as_ref(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::path;
    use super::super::scenario::SCENARIOS;
    use super::*;

    /// Otherwise a legend would name an uplink as what it is not.
    #[test]
    fn the_plots_name_the_uplinks_as_they_are() {
        let shown: Vec<_> = SCENARIOS
            .iter()
            .filter_map(|scenario| Some((scenario, paths_of(scenario)?)))
            .collect();
        assert_eq!(shown.len(), 3);
        for (scenario, paths) in shown {
            assert!(path::can_be_told(scenario.uplinks));
            assert_eq!(paths.series, format!("game_path_{}", scenario.suffix));
            assert_eq!(paths.time, format!("game_s_{}", scenario.suffix));
            assert_eq!(paths.names.len(), scenario.uplinks.len());
            for (number, (uplink, name)) in scenario.uplinks.iter().zip(paths.names).enumerate() {
                assert_eq!(name.0, format!("wan{}", number + 1));
                assert!(name.1.starts_with(&format!("{} ms", uplink.round_trip_ms)));
            }
        }
    }
}
