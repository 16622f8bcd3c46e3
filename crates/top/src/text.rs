//! Texts and bars in little room.

use unicode_width::UnicodeWidthChar;

/// Heights of a bar, as eighths of a line.
pub type Glyphs = [char; 8];

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
