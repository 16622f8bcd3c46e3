//! How the screen looks on this terminal.

use ratatui::style::{Color, Modifier, Style};

use crate::text::Glyphs;

/// What is less important.
pub const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
/// Titles, and what is selected.
pub const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);

const BLOCKS: Glyphs = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LETTERS: Glyphs = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// What depends on the user's wishes and the terminal.
#[derive(Debug, Clone, Copy)]
pub struct Styles {
    /// What does not work.
    pub bad: Style,
    /// Bars, from low to high.
    pub glyphs: Glyphs,
}

impl Styles {
    /// With colours or not (https://no-color.org), with letters beyond ASCII or not.
    pub fn new(has_colours: bool, has_blocks: bool) -> Self {
        let red = Style::new().fg(Color::Red);
        let bad = if has_colours { red } else { Style::new() };
        Self {
            bad: bad.add_modifier(Modifier::BOLD),
            glyphs: if has_blocks { BLOCKS } else { LETTERS },
        }
    }

    /// As the environment says.
    pub fn of_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        // The first one that is set counts (locale(7)).
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let is_utf8 = |locale: &std::ffi::OsString| {
            let locale = locale.to_string_lossy().to_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        };
        Self::new(set("NO_COLOR").is_none(), locale.as_ref().is_some_and(is_utf8))
    }
}
