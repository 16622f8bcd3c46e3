//! The colours can be read: contrast after WCAG 2.2, in light and in dark.

use super::super::{page, plot};

const STYLES: [&str; 2] = [plot::STYLE, page::STYLE];

/// The value of a custom property: the first definition is the light one, the second the dark one.
fn colour(name: &str, dark: bool) -> [f64; 3] {
    let prefix = format!("--{name}: #");
    let found = STYLES
        .iter()
        .flat_map(|style| style.split(prefix.as_str()).skip(1))
        .nth(usize::from(dark));
    let digits = &found.unwrap_or_else(|| panic!("no colour {name}"))[..6];
    [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0)
}

/// Relative luminance, WCAG 2.2.
fn luminance(colour: [f64; 3]) -> f64 {
    let linear = colour.map(|part| {
        if part <= 0.04045 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

fn contrast(a: &str, b: &str, dark: bool) -> f64 {
    let (a, b) = (luminance(colour(a, dark)), luminance(colour(b, dark)));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn text_has_the_contrast_of_level_aa() {
    let pairs = [
        ("ink", "paper"),
        ("muted", "paper"),
        ("link", "paper"),
        ("pass", "paper"),
        ("fail", "paper"),
        ("mark", "paper"),
    ];
    let panels = [
        ("ink", "panel"),
        ("ink", "tint"),
        ("muted", "tint"),
        ("link", "tint"),
        ("pass", "tint"),
        ("muted", "panel"),
    ];
    for (text, ground) in pairs.into_iter().chain(panels) {
        for dark in [false, true] {
            assert!(
                contrast(text, ground, dark) >= 4.5,
                "{text} on {ground}: {}",
                contrast(text, ground, dark)
            );
        }
    }
}

#[test]
fn lines_and_bars_stand_out_from_the_paper() {
    for mark in ["c0", "c1", "c2", "c3", "c4", "c5", "ours", "others", "mark", "own"] {
        for dark in [false, true] {
            assert!(
                contrast(mark, "paper", dark) >= 3.0,
                "{mark}, dark {dark}: {}",
                contrast(mark, "paper", dark)
            );
        }
    }
}
