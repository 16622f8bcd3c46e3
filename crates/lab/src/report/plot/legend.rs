//! Lines that can be told apart, by colour, by dash and by marker, and the legend that names them.

use super::super::markup;
use super::super::result::Line;
use super::Width;
use super::svg::{self, Px};

/// Colours that can be told apart.
pub const COLOURS: usize = 6;
const DASHES: [&str; 5] = ["", "7 3", "2 3", "9 3 2 3", "5 2"];
const MARKERS: usize = 8;

/// The height of a row of the legend.
const ROW: f64 = 20.0;
/// Between the lines of a title.
const LINE: f64 = 14.0;
const SAMPLE: f64 = 38.0;
/// Between columns.
const GAP: f64 = 14.0;

/// How the line of a case looks. Two of thirty places never look alike, nor do they without colour in twelve.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    place: usize,
    default: bool,
}

impl Style {
    /// The style of a line.
    pub fn of(line: &Line) -> Self {
        Self {
            place: line.place,
            default: line.default,
        }
    }

    /// The classes of everything that belongs to the line.
    pub fn class(self) -> String {
        let emphasis = if self.default { " ours" } else { "" };
        format!("k k{} c{}{emphasis}", self.place % 12, self.place % COLOURS)
    }

    /// The path of the line.
    pub fn path(self, commands: &str) -> String {
        let dash = DASHES[(self.place + self.place / COLOURS) % DASHES.len()];
        let dash = if dash.is_empty() {
            String::new()
        } else {
            format!(r#" stroke-dasharray="{dash}""#)
        };
        format!(r#"<path class="line" d="{commands}"{dash}/>"#)
    }

    /// The path of a line that has a picture of its own.
    pub fn solid(self, commands: &str) -> String {
        format!(r#"<path class="line thin" d="{commands}"/>"#)
    }

    /// The line's marker at a point.
    pub fn marker(self, (x, y): (f64, f64)) -> String {
        let shape = match self.place % MARKERS {
            0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
            1 => "m-3.5-3.5h7v7h-7z",
            2 => "m0-4.6l4.6 8h-9.2z",
            3 => "m0-5l5 5-5 5-5-5z",
            4 => "m0 4.6l4.6-8h-9.2z",
            5 => "m-4-4l8 8m-8 0l8-8",
            6 => "m-5 0h10m-5-5v10",
            _ => "m-2.5-4.5h5v9h-5z",
        };
        // From the second round on the markers are hollow.
        let hollow = if (self.place / MARKERS) % 2 == 1 { " hollow" } else { "" };
        format!(r#"<path class="marker{hollow}" d="M{} {}{shape}"/>"#, Px(x), Px(y))
    }
}

/// An entry: a style, the case's title, and its figures.
pub struct Item<'a> {
    /// How the line looks.
    pub style: Style,
    title: &'a str,
    unit: &'a str,
    /// How the figures are called: the heads of the legend's columns.
    heads: &'static [&'static str],
    /// One figure a head.
    pub figures: Vec<String>,
}

impl<'a> Item<'a> {
    /// The entry of a line, with one figure a head.
    pub fn new(line: &Line<'a>, heads: &'static [&'static str], figures: Vec<String>) -> Self {
        Self {
            style: Style::of(line),
            title: line.title,
            unit: line.unit,
            heads,
            figures,
        }
    }

    /// What belongs to the line; it shows the entry in words under the pointer.
    pub fn group(&self, content: &str) -> String {
        svg::group(&self.style.class(), &self.words(), content)
    }

    fn words(&self) -> String {
        let figures: Vec<String> = self
            .heads
            .iter()
            .zip(&self.figures)
            .map(|(head, figure)| format!("{head} {figure}"))
            .collect();
        format!("{}: {}", self.title, figures.join(", "))
    }
}

/// All entries in words.
pub fn words(items: &[Item]) -> String {
    let parts: Vec<String> = items
        .iter()
        .map(|item| format!("{} {}", item.words(), item.unit))
        .collect();
    parts.join("; ")
}

/// The legend, a small table whose upper edge is at `top`: its drawing, and where it ends.
pub fn draw(items: &[Item], top: f64, width: Width) -> (String, f64) {
    let heads = items.first().map_or(&[][..], |item| item.heads);
    let figures = |column: usize| {
        items
            .iter()
            .filter_map(move |item| item.figures.get(column))
            .map(String::as_str)
    };
    let room = |column: usize| {
        figures(column)
            .chain([heads[column]])
            .map(|text| markup::width(text, svg::SMALL))
            .fold(0.0, f64::max)
    };
    let rooms: Vec<f64> = (0..heads.len()).map(room).collect();
    // The figures stand near the titles, not at the far end of a wide plot.
    let titles = items
        .iter()
        .map(|item| markup::width(item.title, svg::SMALL * svg::BOLD))
        .fold(0.0, f64::max);
    let left_over = width.pixels() - SAMPLE - rooms.iter().map(|room| room + GAP).sum::<f64>();
    let titles = titles.min(left_over);
    let mut right = SAMPLE + titles;
    let rights: Vec<f64> = rooms
        .iter()
        .map(|room| {
            right += room + GAP;
            right
        })
        .collect();
    let mut out = String::new();
    for (head, right) in heads.iter().zip(&rights) {
        out += &svg::text(*right, top + 4.0, "end", "small muted", head);
    }
    let mut y = top + ROW;
    for item in items {
        let title = markup::wrap(item.title, svg::SMALL * svg::BOLD, titles, 2);
        out += &entry(item, y, &title, &rights);
        y += ROW + LINE * (title.len() as f64 - 1.0);
    }
    (out, y - 8.0)
}

fn entry(item: &Item, y: f64, title: &[String], rights: &[f64]) -> String {
    let mut content = item.style.path(&format!("M0 {}h{}", Px(y), SAMPLE - 8.0));
    content += &item.style.marker((SAMPLE / 2.0 - 4.0, y));
    content += &svg::paragraph(SAMPLE, y + 4.0, LINE, "small name", title);
    for (figure, right) in item.figures.iter().zip(rights) {
        content += &svg::text(*right, y + 4.0, "end", "small", figure);
    }
    item.group(&content)
}
