//! Axes: from figures to pixels, with ticks that people can count by.

use super::number;

/// Ticks closer to each other than this many are never asked for.
const MOST_TICKS: usize = 20;

/// Maps a range of figures to a range of pixels.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

/// A labelled place on an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The figure.
    pub value: f64,
    /// The figure as text, with no more decimals than the ticks need.
    pub label: String,
}

impl Axis {
    /// A linear axis over `low..=high`, drawn from pixel `from` to pixel `to`. A range without extent is widened.
    pub fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let (low, high) = widened(low.clamp(-1e300, 1e300), high.clamp(-1e300, 1e300));
        Self {
            low,
            high,
            from,
            to,
            logarithmic: false,
        }
    }

    /// A logarithmic axis over `low..=high`, both above zero.
    pub fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = low.clamp(1e-300, 1e300);
        let high = if high > low * 1.01 { high.min(1e301) } else { low * 10.0 };
        Self {
            low,
            high,
            from,
            to,
            logarithmic: true,
        }
    }

    /// The pixel of `value`; values beyond the range lie at its end.
    pub fn position(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.logarithmic {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// About `count` ticks within the range.
    pub fn ticks(&self, count: usize) -> Vec<Tick> {
        let count = count.clamp(2, MOST_TICKS);
        if self.logarithmic {
            let ticks = self.logarithmic_ticks(count);
            if ticks.len() >= 2 {
                return ticks;
            }
        }
        self.linear_ticks(count)
    }

    /// Multiples of 1, 2 or 5 times a power of ten.
    fn linear_ticks(&self, count: usize) -> Vec<Tick> {
        let step = nice_step((self.high - self.low) / count as f64);
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as u8;
        let slack = step * 1e-9;
        let first = ((self.low - slack) / step).ceil();
        (0..=2 * MOST_TICKS)
            .map(|index| (first + index as f64) * step)
            .take_while(|value| *value <= self.high + slack)
            .map(|value| Tick {
                value,
                label: label(value, step, decimals),
            })
            .collect()
    }

    /// Powers of ten, with their double and fivefold where there is room.
    fn logarithmic_ticks(&self, count: usize) -> Vec<Tick> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let span = self.high.log10() - self.low.log10();
        let multiples: &[f64] = if span * 3.0 <= count as f64 * 1.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let stride = (span / count as f64).ceil().max(1.0) as i32;
        decades
            .filter(|decade| decade.rem_euclid(stride) == 0)
            .flat_map(|decade| multiples.iter().map(move |multiple| multiple * 10f64.powi(decade)))
            .filter(|value| (self.low * (1.0 - 1e-9)..=self.high * (1.0 + 1e-9)).contains(value))
            .map(|value| Tick {
                value,
                label: number::significant(value, 1),
            })
            .collect()
    }
}

/// The least and the greatest of the finite `values`; `None` when there is none.
pub fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite
        .map(|value| (value, value))
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Gives a range without extent, or one too narrow for its magnitude, some of both sides.
fn widened(low: f64, high: f64) -> (f64, f64) {
    let magnitude = low.abs().max(high.abs());
    if high - low > magnitude * 1e-9 {
        (low, high)
    } else if magnitude == 0.0 {
        (0.0, 1.0)
    } else {
        (low - magnitude * 0.1, high + magnitude * 0.1)
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let multiple = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|multiple| multiple * power >= rough * (1.0 - 1e-9));
    multiple.unwrap_or(10.0) * power
}

/// A tick's label: plain where plain is short, a power of ten otherwise.
fn label(value: f64, step: f64, decimals: u8) -> String {
    let value = if value.abs() < step * 1e-6 { 0.0 } else { value };
    if value != 0.0 && (value.abs() >= 1e9 || step < 1e-6) {
        return number::scientific(value, 1);
    }
    number::fixed(value, decimals)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::number::THIN_SPACE;
    use super::*;

    fn labels(axis: &Axis, count: usize) -> Vec<String> {
        axis.ticks(count)
            .into_iter()
            .map(|tick| tick.label.replace(THIN_SPACE, " "))
            .collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(
            labels(&Axis::linear(0.0, 35_618.0, 0.0, 1.0), 4),
            ["0", "10 000", "20 000", "30 000"]
        );
        assert_eq!(
            labels(&Axis::linear(0.0, 1.0, 0.0, 1.0), 5),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(labels(&Axis::linear(-3.0, 3.0, 0.0, 1.0), 3), ["−2", "0", "2"]);
        assert_eq!(
            labels(&Axis::linear(0.010, 0.045, 0.0, 1.0), 4),
            ["0.01", "0.02", "0.03", "0.04"]
        );
    }

    #[test]
    fn logarithmic_ticks_are_decades_with_halves_where_there_is_room() {
        assert_eq!(labels(&Axis::logarithmic(0.01, 5.0, 0.0, 1.0), 4), ["0.01", "0.1", "1"]);
        assert_eq!(
            labels(&Axis::logarithmic(20.0, 300.0, 0.0, 1.0), 6),
            ["20", "50", "100", "200"]
        );
        assert!(labels(&Axis::logarithmic(1.0, 1e12, 0.0, 1.0), 4).len() <= 5);
    }

    #[test]
    fn less_than_a_decade_still_has_ticks() {
        assert_eq!(labels(&Axis::logarithmic(31.0, 45.0, 0.0, 1.0), 4), ["35", "40", "45"]);
    }

    #[test]
    fn one_value_alone_is_in_the_middle() {
        let axis = Axis::linear(42.0, 42.0, 0.0, 100.0);
        assert!((axis.position(42.0) - 50.0).abs() < 1e-6);
        assert_eq!(labels(&Axis::linear(0.0, 0.0, 0.0, 1.0), 2), ["0.0", "0.5", "1.0"]);
    }

    #[test]
    fn positions_on_a_logarithmic_axis() {
        let axis = Axis::logarithmic(1.0, 100.0, 0.0, 200.0);
        assert!((axis.position(10.0) - 100.0).abs() < 1e-9);
        assert_eq!((axis.position(0.0), axis.position(1e9)), (0.0, 200.0));
    }

    proptest! {
        #[test]
        fn any_range_has_few_ticks_in_order_and_inside(
            low in prop::num::f64::NORMAL, high in prop::num::f64::NORMAL, count in 2usize..12, logarithmic: bool,
        ) {
            let (low, high) = (low.min(high), low.max(high));
            let axis = match logarithmic {
                true => Axis::logarithmic(low, high, 0.0, 500.0),
                false => Axis::linear(low, high, 0.0, 500.0),
            };
            let ticks = axis.ticks(count);
            prop_assert!(ticks.len() <= 2 * MOST_TICKS + 1);
            prop_assert!(ticks.windows(2).all(|pair| pair[0].value < pair[1].value));
            prop_assert!(ticks.iter().all(|tick| (0.0..=500.0).contains(&axis.position(tick.value))));
        }
    }
}
