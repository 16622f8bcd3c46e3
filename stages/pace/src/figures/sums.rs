//! Figures of several connections together, and numbers as people read them.

use tarn_base::figures::{Value, rounded};

use crate::skeleton::connections::types::pace_connection;

/// Bytes a second in Mbit/s.
pub fn mbit_s(bytes: u64) -> f64 {
    rounded(bytes as f64 * 8e-6, 2)
}

/// Microseconds in ms; `None` for 0, which is not known.
pub fn ms(us: u32) -> Option<f64> {
    (us > 0).then(|| rounded(f64::from(us) / 1e3, 2))
}

/// The smallest of the minimum round trip times that are known, in ms.
pub fn min_rtt_ms<'a>(connections: impl IntoIterator<Item = &'a pace_connection>) -> Option<f64> {
    let all = connections.into_iter().map(|connection| connection.min_rtt_us);
    all.filter(|us| *us > 0).min().and_then(ms)
}

/// The mean of the round trip times that are known, in ms.
pub fn mean_rtt_ms<'a>(connections: impl IntoIterator<Item = &'a pace_connection>) -> Option<f64> {
    let all = connections.into_iter().map(|connection| f64::from(connection.rtt_us));
    mean(all.filter(|us| *us > 0.0)).map(|us| rounded(us / 1e3, 2))
}

/// The mean of how far the estimates fell at the last drop, over the connections that have answered one.
pub fn mean_depth_percent<'a>(connections: impl IntoIterator<Item = &'a pace_connection>) -> Value {
    let histories = connections.into_iter().map(|connection| connection.history);
    let answered = histories.filter(|history| history.responses > 0);
    let depth = mean(answered.map(|history| f64::from(history.depth) / 2.56));
    Value::from(depth.map(|percent| rounded(percent, 1)))
}

/// The mean duration of the responses that are over.
pub fn mean_drained_ms<'a>(connections: impl IntoIterator<Item = &'a pace_connection>) -> Value {
    let histories = connections.into_iter().map(|connection| connection.history);
    let (over, took) = histories.fold((0, 0), |(over, took), history| {
        let unfinished = u32::from(history.began_us != 0);
        (
            over + u64::from(history.responses.saturating_sub(unfinished)),
            took + history.drained_us,
        )
    });
    Value::from((over > 0).then(|| rounded(took as f64 / over as f64 / 1e3, 1)))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// A measure with fewer decimals the larger it is; at most 8 characters below 100 million.
pub fn short(value: f64) -> String {
    let decimals = match value {
        ..1e3 => 2,
        1e3..1e5 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// The same of one that may not be known.
pub fn short_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trips(min_rtt_us: u32, rtt_us: u32) -> pace_connection {
        pace_connection {
            min_rtt_us,
            rtt_us,
            ..pace_connection::default()
        }
    }

    /// A connection without a round trip would halve the mean.
    #[test]
    fn what_is_not_known_counts_in_no_mean() {
        let connections = [
            round_trips(0, 0),
            round_trips(40_000, 50_000),
            round_trips(30_000, 60_000),
        ];
        assert_eq!(
            (min_rtt_ms(&connections), mean_rtt_ms(&connections)),
            (Some(30.0), Some(55.0))
        );
        assert_eq!(
            (min_rtt_ms(&connections[..1]), mean_rtt_ms(&connections[..1])),
            (None, None)
        );
    }

    #[test]
    fn means_of_responses_are_of_those_that_there_were() {
        let mut connections = [round_trips(1, 1), round_trips(1, 1)];
        assert_eq!(mean_depth_percent(&connections), Value::Null);
        assert_eq!(mean_drained_ms(&connections), Value::Null);
        let history = &mut connections[1].history;
        // The third is not over yet.
        (history.responses, history.depth, history.began_us, history.drained_us) = (3, 128, 7, 80_000);
        assert_eq!(mean_depth_percent(&connections), 50.0);
        assert_eq!(mean_drained_ms(&connections), 40.0);
    }

    #[test]
    fn large_numbers_take_no_more_room_than_small_ones() {
        let shown = [0.0, 12.345, 999.99, 99_999.9, 99_999_999.0].map(short);
        assert_eq!(shown, ["0.00", "12.35", "999.99", "99999.9", "99999999"]);
    }
}
