//! SVG elements.

use std::fmt::{self, Display, Formatter};

use super::super::axis::{Axis, Tick};
use super::super::markup::{self, Escaped};

/// The font sizes of the plots in pixels, as in plot.css.
pub const NORMAL: f64 = 13.0;
/// The smaller one.
pub const SMALL: f64 = 12.0;
/// How much wider bold text is.
pub const BOLD: f64 = 1.1;

/// A coordinate: a tenth of a pixel is as fine as anybody can see.
#[derive(Debug, Clone, Copy)]
pub struct Px(pub f64);

impl Display for Px {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        write!(f, "{}", if tenths == 0.0 { 0.0 } else { tenths })
    }
}

/// A line of text at its baseline; `anchor` is `start`, `middle` or `end`.
pub fn text(x: f64, y: f64, anchor: &str, class: &str, content: &str) -> String {
    let anchor = if anchor == "start" {
        String::new()
    } else {
        format!(r#" text-anchor="{anchor}""#)
    };
    format!(
        r#"<text class="{class}" x="{}" y="{}"{anchor}>{}</text>"#,
        Px(x),
        Px(y),
        Escaped(content)
    )
}

/// Lines of text below each other, `step` apart, the first at its baseline `y`.
pub fn paragraph(x: f64, y: f64, step: f64, class: &str, lines: &[String]) -> String {
    let line = |(index, line): (usize, &String)| text(x, y + step * index as f64, "start", class, line);
    lines.iter().enumerate().map(line).collect()
}

/// A line of text as [`text`] draws it, on paper that hides what lies below it.
pub fn text_on_paper(x: f64, y: f64, anchor: &str, class: &str, content: &str, size: f64) -> String {
    let width = markup::width(content, size);
    let left = match anchor {
        "end" => x - width,
        "middle" => x - width / 2.0,
        _ => x,
    };
    rectangle(left - 2.0, y - size * 0.85, width + 4.0, size * 1.1, "paper") + &text(x, y, anchor, class, content)
}

/// A straight line.
pub fn line(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(Px);
    format!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#)
}

/// A rectangle; a negative width goes to the left.
pub fn rectangle(x: f64, y: f64, width: f64, height: f64, class: &str) -> String {
    let (x, width) = if width < 0.0 { (x + width, -width) } else { (x, width) };
    let [x, y, width, height] = [x, y, width, height].map(Px);
    format!(r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="1.5"/>"#)
}

/// A group that shows `tip` under the pointer.
pub fn group(class: &str, tip: &str, content: &str) -> String {
    format!(r#"<g class="{class}"><title>{}</title>{content}</g>"#, Escaped(tip))
}

/// Where the axes of a plot with lines lie.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    /// The left edge.
    pub left: f64,
    /// The right edge.
    pub right: f64,
    /// The upper edge.
    pub top: f64,
    /// The lower edge.
    pub bottom: f64,
}

impl Area {
    /// Grid lines of the horizontal axis, and its ground line.
    pub fn grid(&self, axis: &Axis, ticks: &[Tick]) -> String {
        let of_tick = |tick: &Tick| {
            let x = axis.position(tick.value);
            line((x, self.top), (x, self.bottom), "grid")
        };
        ticks.iter().map(of_tick).collect::<String>()
            + &line((self.left, self.bottom), (self.right, self.bottom), "axis")
    }

    /// Grid lines and labels of the horizontal axis, and its title below.
    pub fn horizontal(&self, axis: &Axis, ticks: &[Tick], title: &str) -> String {
        let mut out = self.grid(axis, ticks);
        let mut free = f64::NEG_INFINITY;
        for tick in ticks {
            let x = axis.position(tick.value);
            let half = markup::width(&tick.label, SMALL) / 2.0;
            // Near the edge a label is moved inwards; where there is no room the grid line stands alone.
            let middle = x.min(self.right + 6.0 - half);
            if middle - half >= free {
                out += &text(middle, self.bottom + 17.0, "middle", "small muted", &tick.label);
                free = middle + half + 6.0;
            }
        }
        out + &text(
            (self.left + self.right) / 2.0,
            self.bottom + 35.0,
            "middle",
            "small muted",
            title,
        )
    }

    /// Grid lines and labels of the vertical axis.
    pub fn vertical(&self, axis: &Axis, ticks: &[Tick]) -> String {
        let of_tick = |tick: &Tick| {
            let y = axis.position(tick.value);
            line((self.left, y), (self.right, y), "grid")
                + &text(self.left - 7.0, y + 4.0, "end", "small muted", &tick.label)
        };
        ticks.iter().map(of_tick).collect()
    }
}

/// The room that labels of the vertical axis take.
pub fn label_room(ticks: &[Tick]) -> f64 {
    ticks
        .iter()
        .map(|tick| markup::width(&tick.label, SMALL))
        .fold(0.0, f64::max)
        + 9.0
}
