//! Figures as people read them: thousands apart, a true minus, never a zero that is none.

/// Separates thousands: a thin space at which no line breaks.
pub const THIN_SPACE: char = '\u{202f}';

/// What stands where a figure should and there is none.
pub const NO_VALUE: &str = "–";

/// Magnitudes from here on are written as powers of ten.
const HUGE: f64 = 1e15;

/// `value` with `decimals` decimal places.
///
/// A figure that is not zero is not shown as zero: it gets two significant digits instead.
pub fn fixed(value: f64, decimals: u8) -> String {
    let half_of_last_place = 0.5 * 10f64.powi(-i32::from(decimals));
    if !value.is_finite() || value.abs() >= HUGE {
        special(value)
    } else if value != 0.0 && value.abs() < half_of_last_place {
        significant(value, 2)
    } else {
        grouped(value, usize::from(decimals))
    }
}

/// `value` with `digits` significant digits, but no fewer than its integer part has.
pub fn significant(value: f64, digits: u8) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() || value.abs() >= HUGE || value.abs() < 1e-4 {
        return special(value);
    }
    // Rounding may carry into the next magnitude (9.996 -> 10.0): the magnitude is that of the rounded figure.
    let digits = i32::from(digits.max(1));
    let rounding = 10f64.powi(digits - 1 - magnitude(value));
    let magnitude = magnitude((value * rounding).round() / rounding);
    grouped(value, usize::try_from(digits - 1 - magnitude).unwrap_or(0))
}

/// `value` as it was given, with up to nine decimal places: a published figure is not rounded again.
pub fn exact(value: f64) -> String {
    if !value.is_finite() || value.abs() >= HUGE || (value != 0.0 && value.abs() < 1e-4) {
        return special(value);
    }
    let given = format!("{value:.9}");
    let (_, fraction) = given.split_once('.').unwrap_or((&given, ""));
    grouped(value, fraction.trim_end_matches('0').len())
}

/// A count of things.
pub fn count(value: usize) -> String {
    group(&value.to_string())
}

/// What part of another a figure is: in percent up to twice the other, then how many times.
pub fn share(value: f64) -> String {
    if value.abs() < 0.1 {
        format!("{} %", significant(value * 100.0, 2))
    } else if value.abs() < 2.0 {
        format!("{} %", fixed(value * 100.0, 0))
    } else {
        format!("{} times that", significant(value, 3))
    }
}

/// The unit as it is written: `us` is the micro sign's.
pub fn unit(name: &str) -> &str {
    match name {
        "us" => "µs",
        "percent" => "%",
        other => other,
    }
}

fn magnitude(value: f64) -> i32 {
    value.abs().log10().floor() as i32
}

/// A figure that has no useful decimal form: not a number, infinite, huge or tiny.
fn special(value: f64) -> String {
    if value.is_nan() {
        return NO_VALUE.to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "−∞" } else { "∞" }.to_owned();
    }
    scientific(value, 1)
}

/// A finite figure as a power of ten, its mantissa with `decimals` decimal places.
pub fn scientific(value: f64, decimals: usize) -> String {
    let sign = if value < 0.0 { "−" } else { "" };
    let written = format!("{:.decimals$e}", value.abs());
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    format!(
        "{sign}{mantissa}×10{}",
        exponent.chars().map(superscript).collect::<String>()
    )
}

fn superscript(digit: char) -> char {
    match digit {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        other => other
            .to_digit(10)
            .and_then(|d| char::from_u32('⁰' as u32 + d))
            .unwrap_or(other),
    }
}

fn grouped(value: f64, decimals: usize) -> String {
    let written = format!("{:.decimals$}", value.abs());
    let (integer, fraction) = written.split_once('.').unwrap_or((&written, ""));
    let sign = if value < 0.0 && written.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        "−"
    } else {
        ""
    };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", group(integer))
}

fn group(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 * THIN_SPACE.len_utf8());
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(THIN_SPACE);
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        text.replace(THIN_SPACE, " ")
    }

    #[test]
    fn thousands_stand_apart() {
        let shown = [0.0, 1.0, 999.0, 1000.0, 26717.0, 1234567.0, -8901.0].map(|v| plain(&fixed(v, 0)));
        assert_eq!(shown, ["0", "1", "999", "1 000", "26 717", "1 234 567", "−8 901"]);
        assert_eq!(plain(&count(14_000)), "14 000");
    }

    #[test]
    fn decimals_are_the_metrics() {
        assert_eq!(fixed(0.029343, 3), "0.029");
        assert_eq!(plain(&fixed(1406.0, 2)), "1 406.00");
        assert_eq!(fixed(-0.001, 3), "−0.001");
    }

    #[test]
    fn a_small_figure_is_not_shown_as_zero() {
        assert_eq!(fixed(0.0004, 2), "0.00040");
        assert_eq!(fixed(0.00000123, 2), "1.2×10⁻⁶");
        assert_eq!(fixed(0.0, 2), "0.00");
    }

    #[test]
    fn figures_without_a_decimal_form_are_still_shown() {
        assert_eq!(fixed(f64::NAN, 1), NO_VALUE);
        assert_eq!(fixed(f64::NEG_INFINITY, 1), "−∞");
        assert_eq!(fixed(1.26e18, 0), "1.3×10¹⁸");
        assert_eq!(significant(f64::MAX, 3), "1.8×10³⁰⁸");
    }

    #[test]
    fn significant_digits_carry_into_the_next_magnitude() {
        let shown = [0.0, 9.996, 0.04501, 337.2, 12345.6, 0.99996].map(|v| plain(&significant(v, 3)));
        assert_eq!(shown, ["0", "10.0", "0.0450", "337", "12 346", "1.00"]);
    }

    #[test]
    fn a_published_figure_is_not_rounded_again() {
        let shown = [1411.5, 0.04501, 35618.0, 0.1 + 0.2, f64::NAN].map(|v| plain(&exact(v)));
        assert_eq!(shown, ["1 411.5", "0.04501", "35 618", "0.3", NO_VALUE]);
    }

    #[test]
    fn shares_are_short() {
        assert_eq!(
            [0.0424, 0.4294, 1.0, 4.1, 41.0].map(share),
            ["4.2 %", "43 %", "100 %", "4.10 times that", "41.0 times that"]
        );
    }
}
