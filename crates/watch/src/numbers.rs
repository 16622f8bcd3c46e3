//! Numbers in little room.

/// The units of a number that is too large, by what it is divided by.
const UNITS: [(f64, &str); 6] = [
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
    (1e18, "E"),
];

/// A number in at most six columns: three significant digits, or four without a unit.
pub fn short(value: f64) -> String {
    // Rounded before the unit is chosen: 999,999 is 1.00M, and not 1000k.
    if value.abs() < 9_999.5 {
        return digits(value);
    }
    let fitting = UNITS.into_iter().find(|(scale, _)| (value / scale).abs() < 999.5);
    let (scale, unit) = fitting.unwrap_or((1e18, "E"));
    digits(value / scale) + unit
}

/// The same of one that may not be known.
pub fn short_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), short)
}

fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        _ if value.fract() == 0.0 => 0,
        ..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads 1000k or 10.00 in a column has lost the others' alignment, or takes one unit for another.
    #[test]
    fn numbers_take_six_columns_and_the_unit_that_fits_them() {
        for (value, text) in [
            (0.0, "0"),
            (8.25, "8.25"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.97, "100"),
            (-1.8, "-1.80"),
            (9_999.0, "9999"),
            (9_999.7, "10.0k"),
            (12_345.0, "12.3k"),
            (999_999.0, "1.00M"),
            (1_234_567.0, "1.23M"),
            (285e9, "285G"),
            (1e13, "10T"),
            (1.8e19, "18E"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(short_or_dash(None), "-");
    }
}
