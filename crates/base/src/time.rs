//! Times as people write them: `500us`, `4ms`, `10s`, `30m`, `12h`, `7d`.

use std::time::Duration;

use crate::wrong::Wrong;

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Reads a time.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn parse(text: &str) -> Result<Duration, Wrong> {
    let remedy = "write a number and its unit: 500us, 4ms, 10s, 30m, 12h or 7d";
    let wrong = || Wrong::new(format!("'{text}' is no time"), remedy);
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let unit = unit.trim_start();
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let nanoseconds = number * *scale as f64;
    if !nanoseconds.is_finite() || nanoseconds > i64::MAX as f64 {
        return Err(wrong());
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// A time in the largest unit that it is a whole number of.
pub fn text(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let whole = |scale: &u64| nanoseconds != 0 && nanoseconds % u128::from(*scale) == 0;
    match UNITS.iter().rev().find(|(_, scale)| whole(scale)) {
        Some((unit, scale)) => format!("{}{unit}", nanoseconds / u128::from(*scale)),
        None => "0ms".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown_alike() {
        for written in ["1ns", "500us", "4ms", "10s", "30m", "12h", "7d", "0ms"] {
            assert_eq!(text(parse(written).unwrap()), written);
        }
        assert_eq!(parse("1.5ms").unwrap(), Duration::from_micros(1500));
        assert_eq!(parse("4 ms").unwrap(), Duration::from_millis(4));
        assert_eq!(text(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn what_is_no_time_is_told_with_what_would_be_right() {
        for wrong in ["", "4", "ms", "4 weeks", "-4ms", "1.2.3s", "99999999999999d"] {
            assert!(parse(wrong).unwrap_err().remedy.contains("30m"), "{wrong}");
        }
    }
}
