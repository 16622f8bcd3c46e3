//! The plots, drawn as SVG.

use crate::experiment::Plot;

use super::markup::{Escaped, joined, wrap};
use super::{Entry, result};

mod bars;
mod cdf;
mod groups;
mod legend;
mod svg;
mod timeline;

/// Colours, lines and type of the plots; the page and a plot of its own both include it.
pub const STYLE: &str = include_str!("plot/plot.css");

/// What every figure of the lab is; stands wherever figures are shown.
pub const MODEL: &str = concat!(
    "Guest under emulation, one instruction a nanosecond: exact instruction counts, a model, ",
    "not the speed of a real CPU."
);

/// How wide a plot is drawn, in pixels: text keeps its size, so that a phone gets a drawing of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// For a desk, and for print.
    Wide,
    /// For a phone.
    Narrow,
}

impl Width {
    fn pixels(self) -> f64 {
        match self {
            Self::Wide => 640.0,
            Self::Narrow => 320.0,
        }
    }

    /// Ticks that fit a horizontal axis.
    fn ticks(self) -> usize {
        match self {
            Self::Wide => 7,
            Self::Narrow => 4,
        }
    }
}

/// A finished drawing; it begins at the origin.
#[derive(Debug, Clone, Default)]
pub struct Drawing {
    height: f64,
    body: String,
    /// What it shows, in words.
    description: String,
}

/// A plot's title.
pub fn title(plot: &Plot) -> &'static str {
    match plot {
        Plot::Bars { title, .. }
        | Plot::Cdf { title, .. }
        | Plot::Timeline { title, .. }
        | Plot::Groups { title, .. } => title,
    }
}

/// What a plot's axis shows: unit, direction, and how to read it.
pub fn subtitle(entry: &Entry, plot: &Plot) -> String {
    let parts = match plot {
        Plot::Bars { metric, .. } => {
            let column = result::column(entry, metric);
            vec![column.title.clone(), column.unit.clone(), column.direction().to_owned()]
        }
        Plot::Cdf {
            series, logarithmic, ..
        } => {
            let logarithmic = *logarithmic || cdf::is_widened(entry.outcome, series);
            let scale = if logarithmic { ", logarithmic" } else { "" };
            vec![
                format!("cumulative distribution{scale}"),
                "further left and steeper is calmer".to_owned(),
            ]
        }
        Plot::Timeline { series, x, lanes, .. } => match lanes {
            Some(lanes) if timeline::shows(entry.outcome, series, lanes) => {
                vec![format!("by {}", lanes.x), lanes.note.to_owned()]
            }
            _ => vec![format!("by {x}")],
        },
        Plot::Groups { promise, .. } => vec![format!("dashed: {promise}; right of it is good")],
    };
    joined(&parts, " · ")
}

/// Draws `plot` for a page; `id` must be unique on it.
pub fn inline(entry: &Entry, plot: &Plot, width: Width, id: &str) -> String {
    let drawing = draw(entry, plot, width);
    let label = format!(r#"role="img" aria-labelledby="{id}-t {id}-d""#);
    format!(
        concat!(
            r#"<svg class="plot" {label} viewBox="0 0 {} {}"><title id="{id}-t">{}</title>"#,
            r#"<desc id="{id}-d">{}</desc>{}</svg>"#
        ),
        svg::Px(width.pixels()),
        svg::Px(drawing.height),
        Escaped(title(plot)),
        Escaped(&drawing.description),
        drawing.body,
        label = label,
        id = id,
    )
}

/// Draws `plot` as a document of its own, with its title above and where it comes from below.
pub fn standalone(entry: &Entry, plot: &Plot) -> String {
    let outcome = entry.outcome;
    let drawing = draw(entry, plot, Width::Wide);
    let width = Width::Wide.pixels();
    let origin = format!(
        "tarn {} · Linux {} ({}) · seed {} · {}",
        outcome.tarn, outcome.kernel, outcome.suite, outcome.seed, MODEL
    );
    let notes = wrap(&origin, svg::SMALL, width, 3);
    let mut body = svg::text(0.0, 18.0, "start", "heading", title(plot));
    body += &svg::text(0.0, 38.0, "start", "muted", &subtitle(entry, plot));
    body += &format!(r#"<g transform="translate(0 52)">{}</g>"#, drawing.body);
    body += &svg::paragraph(0.0, 52.0 + drawing.height + 18.0, 15.0, "small muted", &notes);
    let height = 52.0 + drawing.height + 12.0 + 15.0 * notes.len() as f64;
    let (full_width, full_height) = (svg::Px(width + 32.0), svg::Px(height + 32.0));
    format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" aria-labelledby="t d" width="{0}" "#,
            r#"height="{1}" viewBox="-16 -16 {0} {1}"><title id="t">{2}</title><desc id="d">{3}</desc>"#,
            r#"<style>{4}</style><rect class="paper" x="-16" y="-16" width="{0}" height="{1}"/>{5}</svg>"#,
        ),
        full_width,
        full_height,
        Escaped(title(plot)),
        Escaped(&drawing.description),
        STYLE,
        body
    )
}

fn draw(entry: &Entry, plot: &Plot, width: Width) -> Drawing {
    match plot {
        Plot::Bars { metric, references, .. } => bars::draw(entry, metric, references, width),
        Plot::Cdf {
            series, logarithmic, ..
        } => cdf::draw(entry.outcome, series, *logarithmic, width),
        Plot::Timeline {
            series,
            x,
            from,
            step,
            lanes,
            ..
        } => {
            let numbers = timeline::Numbers {
                title: x,
                from: *from,
                step: *step,
            };
            timeline::draw(entry.outcome, series, numbers, lanes.as_ref(), width)
        }
        Plot::Groups {
            series,
            groups,
            promised,
            ..
        } => groups::draw(entry.outcome, series, (groups, promised), width),
    }
    .unwrap_or_else(|| nothing(width))
}

/// What stands where there is nothing to draw.
fn nothing(width: Width) -> Drawing {
    let body = svg::text(width.pixels() / 2.0, 34.0, "middle", "muted", "no values");
    Drawing {
        height: 60.0,
        body,
        description: "no values".to_owned(),
    }
}
