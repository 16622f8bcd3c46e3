//! Numbers, texts and bars in little room.

use unicode_width::UnicodeWidthChar;

/// Heights of a bar, as eighths of a line.
pub type Glyphs = [char; 8];

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

/// A text in exactly so many columns of the terminal: cut off, or filled up with spaces.
pub fn fit(text: &str, columns: usize) -> String {
    let mut fitted = String::new();
    let mut used = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width > columns {
            break;
        }
        used += width;
        fitted.push(c);
    }
    fitted.extend(std::iter::repeat_n(' ', columns - used));
    fitted
}

/// What bars are drawn to: from the least value to the greatest. 0 is always on it, so that a bar's height can be compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    /// One for all of these values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        values.into_iter().fold(Self::default(), |scale, value| Self {
            least: scale.least.min(value),
            most: scale.most.max(value),
        })
    }

    fn bar(&self, value: f64, glyphs: &Glyphs) -> char {
        let range = self.most - self.least;
        let part = if range > 0.0 { (value - self.least) / range } else { 0.0 };
        let last = glyphs.len() - 1;
        glyphs[((part * last as f64).round() as usize).min(last)]
    }
}

/// Values as bars; a gap where one is not known. The last one ends the line of so many columns, so that those of one moment stand
/// below each other.
pub fn bars(values: impl Iterator<Item = Option<f64>>, columns: usize, scale: Scale, glyphs: &Glyphs) -> String {
    let bar = |value: Option<f64>| value.map_or(' ', |value| scale.bar(value, glyphs));
    let drawn: String = values.map(bar).collect();
    format!("{drawn:>columns$}")
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

    /// A rule's note in Chinese would push all that follows out of its column.
    #[test]
    fn a_text_takes_its_columns_whatever_its_letters() {
        for (text, fitted) in [
            ("wan0", "wan0  "),
            ("wan-long", "wan-lo"),
            ("網網網網", "網網網"),
            ("a網網網", "a網網 "),
        ] {
            assert_eq!(fit(text, 6), fitted);
        }
    }

    #[test]
    fn a_gap_is_not_a_zero_and_rows_share_a_scale() {
        const GLYPHS: Glyphs = ['0', '1', '2', '3', '4', '5', '6', '7'];
        let scale = Scale::of([0.0, 14.0]);
        let text = bars([Some(14.0), None, Some(0.0), Some(2.0)].into_iter(), 5, scale, &GLYPHS);
        assert_eq!(text, " 7 01");
        let below = Scale::of([-7.0]);
        assert_eq!(bars([Some(-7.0), Some(0.0)].into_iter(), 2, below, &GLYPHS), "07");
    }
}
