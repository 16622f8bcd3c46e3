//! Tables in plain text: aligned columns, fitted to a width.

use super::printable;

/// Between two columns.
const GAP: &str = "  ";

/// A column is not made narrower than this, in characters.
const NARROWEST: usize = 8;

/// A cell of more words than a figure and its unit, in a column of figures, is text, which may be broken.
const WORDS_OF_FIGURE: usize = 2;

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Figures, so that their digits stand below each other. A figure is never broken.
    Right,
}

/// Rows of cells below a line of titles.
///
/// A table that is too wide for the terminal has its widest columns of text broken over several lines, between
/// words where there are any; figures stay whole. Columns that do not fit even so follow below, next to the key again.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Number of leading columns that identify a row.
    key: usize,
}

impl Table {
    /// A table with these columns, by title and alignment.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns
            .iter()
            .map(|(title, align)| (printable(title), *align))
            .collect();
        Self {
            columns,
            rows: Vec::new(),
            key: 1,
        }
    }

    /// Sets how many leading columns identify a row (default: 1).
    pub fn keyed(self, columns: usize) -> Self {
        Self { key: columns, ..self }
    }

    /// Adds a row. Missing cells are empty, cells beyond the last column are dropped.
    pub fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| printable(cell.as_ref())).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The titles of its columns, and where their cells stand.
    pub fn columns(&self) -> &[(String, Align)] {
        &self.columns
    }

    /// The cells of its rows, as many as there are columns in each.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as text, every line ended by a line break, at most `width` columns wide unless the key and another column are
    /// wider together; without a width every row is one line.
    pub fn render(&self, width: Option<usize>) -> String {
        let widest = self.widest();
        let every: Vec<usize> = (0..widest.len()).collect();
        let Some(limit) = width else {
            return self.render_part(&every, &widest);
        };
        let narrowest = self.narrowest(&widest);
        let parts = parts(&narrowest, self.key, limit);
        let part = |columns: &Vec<usize>| self.render_part(columns, &fitted(columns, &widest, &narrowest, limit));
        parts.iter().map(part).collect::<Vec<_>>().join("\n")
    }

    /// The width of each column's widest cell, in characters.
    fn widest(&self) -> Vec<usize> {
        let titles = self.columns.iter().map(|(title, _)| length(title));
        let cells = |index: usize| self.rows.iter().filter_map(move |row| row.get(index));
        titles
            .enumerate()
            .map(|(index, title)| cells(index).map(|cell| length(cell)).chain([title]).max().unwrap_or(0))
            .collect()
    }

    /// How narrow each column can be made, in characters: a column of figures has room for its widest figure.
    fn narrowest(&self, widest: &[usize]) -> Vec<usize> {
        let figure = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let figures = cells.filter(|cell| cell.split(' ').count() <= WORDS_OF_FIGURE);
            let widest = figures.map(|cell| length(cell)).max().unwrap_or(0);
            widest.max(length(&self.columns[index].0))
        };
        let columns = self.columns.iter().zip(widest).enumerate();
        columns
            .map(|(index, ((_, align), widest))| match align {
                Align::Left => NARROWEST.min(*widest),
                Align::Right => figure(index).max(NARROWEST).min(*widest),
            })
            .collect()
    }

    /// The titles and all rows, some columns of them.
    fn render_part(&self, columns: &[usize], widths: &[usize]) -> String {
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        let mut text = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            self.render_row(row, columns, widths, &mut text);
        }
        text
    }

    /// Some columns of a row. What is broken over several lines is text, and stands to the left in any column.
    fn render_row(&self, row: &[String], columns: &[usize], widths: &[usize], text: &mut String) {
        let cells: Vec<Vec<String>> = columns
            .iter()
            .map(|index| split(&row[*index], widths[*index]))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            let mut rendered = String::new();
            for (cell, index) in cells.iter().zip(columns) {
                let (width, (_, align)) = (widths[*index], &self.columns[*index]);
                let part = cell.get(line).map_or("", String::as_str);
                match align {
                    Align::Right if cell.len() == 1 => rendered.push_str(&format!("{part:>width$}{GAP}")),
                    Align::Left | Align::Right => rendered.push_str(&format!("{part:<width$}{GAP}")),
                }
            }
            text.push_str(rendered.trim_end());
            text.push('\n');
        }
    }
}

/// The width of columns side by side.
fn total(widths: impl Iterator<Item = usize>) -> usize {
    let with_gaps: usize = widths.map(|width| width + GAP.len()).sum();
    with_gaps.saturating_sub(GAP.len())
}

/// The widths of all columns, so that these ones fit the limit side by side: the widest column that can still shrink does so first.
fn fitted(columns: &[usize], widest: &[usize], narrowest: &[usize], limit: usize) -> Vec<usize> {
    let mut widths = widest.to_vec();
    while total(columns.iter().map(|index| widths[*index])) > limit {
        let narrower = columns.iter().filter(|index| widths[**index] > narrowest[**index]);
        let Some(index) = narrower.max_by_key(|index| widths[**index]) else {
            break;
        };
        widths[*index] -= 1;
    }
    widths
}

/// The columns, parted so that each part fits the limit; each begins with the key.
fn parts(widths: &[usize], key: usize, limit: usize) -> Vec<Vec<usize>> {
    let key: Vec<usize> = (0..key.min(widths.len())).collect();
    let mut parts = vec![key.clone()];
    for index in key.len()..widths.len() {
        let Some(part) = parts.last_mut() else { break };
        let with_it = total(part.iter().chain([&index]).map(|index| widths[*index]));
        if part.len() > key.len() && with_it > limit {
            parts.push(key.iter().copied().chain([index]).collect());
        } else {
            part.push(index);
        }
    }
    parts
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Breaks a cell into lines of at most `width` characters, between words where possible.
fn split(cell: &str, width: usize) -> Vec<String> {
    if length(cell) <= width {
        return vec![cell.to_string()];
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in cell.split(' ') {
        if !line.is_empty() && length(&line) + 1 + length(word) > width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        for character in word.chars() {
            if length(&line) >= width.max(1) {
                // An address is broken before its port, a name between its parts.
                let end = line.rfind([':', '.', '-', '/']).map_or(line.len(), |at| at + 1);
                let rest = line.split_off(end);
                lines.push(std::mem::replace(&mut line, rest));
            }
            line.push(character);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&[("RULE", Align::Right), ("NOTE", Align::Left), ("PACKETS", Align::Right)]);
        table.row(["1", "the web server in its namespace", "12"]);
        table.row(["12", "dns", "1234567"]);
        table
    }

    #[test]
    fn columns_stand_below_each_other() {
        let expected = "RULE  NOTE                             PACKETS\n   1  the web server in its namespace       12\n  \
                        12  dns                              1234567\n";
        assert_eq!(sample().render(None), expected);
    }

    #[test]
    fn a_narrow_terminal_breaks_text_and_never_a_figure() {
        let text = sample().render(Some(30));
        assert!(text.lines().all(|line| length(line) <= 30), "{text}");
        assert!(text.contains("1234567"));
        let words: Vec<&str> = text.split_whitespace().collect();
        for word in ["the", "web", "server", "in", "its", "namespace"] {
            assert!(words.contains(&word), "{text}");
        }
    }

    /// In a terminal, lines that the terminal itself breaks cannot be read.
    #[test]
    fn figures_that_do_not_fit_follow_below_with_the_name_of_their_row() {
        let titles = ["A", "B", "C", "D", "E"].map(|title| (title, Align::Right));
        let mut table = Table::new(&[&[("NAME", Align::Left)], &titles[..]].concat());
        table.row(["one", "1234567", "2345678", "3456789", "4567890", "5678901"]);
        let expected = "NAME        A        B\none   1234567  2345678\n\nNAME        C        D\none   3456789  4567890\n\n\
                        NAME        E\none   5678901\n";
        assert_eq!(table.render(Some(23)), expected);
        assert_eq!(table.render(None).lines().count(), 2);
    }

    /// `tarn status` of a stage that explains itself in a value: its meanings keep the room they need.
    #[test]
    fn a_sentence_among_figures_is_broken_like_text() {
        let mut table = Table::new(&[
            ("FIELD", Align::Left),
            ("VALUE", Align::Right),
            ("MEANING", Align::Left),
        ]);
        table.row(["packets", "123456789012345 packets", "a figure and its unit stay whole"]);
        table.row(["threads", "4", "threads that receive, one for each queue"]);
        table.row([
            "trouble",
            "no device is watched: name one in devices",
            "what keeps the stage from working",
        ]);
        let expected = "FIELD                      VALUE  MEANING\npackets  123456789012345 packets  a figure and its\n                                  unit stay whole\n\
                        threads                        4  threads that\n                                  receive, one for\n                                  each queue\n\
                        trouble  no device is watched:    what keeps the\n         name one in devices      stage from\n                                  working\n";
        assert_eq!(table.render(Some(50)), expected);
    }

    /// Columns that follow below have the whole width for themselves.
    #[test]
    fn columns_that_follow_below_are_as_wide_as_there_is_room() {
        let figures = ["A", "B", "C"].map(|title| (title, Align::Right));
        let mut table = Table::new(&[&[("NAME", Align::Left)], &figures[..], &[("NOTE", Align::Left)]].concat());
        table.row(["one", "1234567", "2345678", "3456789", "a note of five words"]);
        let expected = "NAME        A        B        C\none   1234567  2345678  3456789\n\nNAME  NOTE\none   a note of five words\n";
        assert_eq!(table.render(Some(32)), expected);
    }

    /// Of two uplinks to one destination, nobody would know whose the figures below are.
    #[test]
    fn what_follows_below_has_all_of_the_key() {
        let figures = ["A", "B"].map(|title| (title, Align::Right));
        let mut table = Table::new(&[&[("TO", Align::Left), ("BY", Align::Left)], &figures[..]].concat()).keyed(2);
        table.row(["all", "one", "1234567", "2345678"]);
        table.row(["all", "two", "3456789", "4567890"]);
        let expected = "TO   BY         A\nall  one  1234567\nall  two  3456789\n\n\
                        TO   BY         B\nall  one  2345678\nall  two  4567890\n";
        assert_eq!(table.render(Some(20)), expected);
    }

    #[test]
    fn a_pipe_gets_one_line_a_row() {
        let mut table = Table::new(&[("A", Align::Left), ("B", Align::Left)]);
        table.row(["x".repeat(300), "y z".repeat(100)]);
        assert_eq!(table.render(None).lines().count(), 2);
    }

    proptest! {
        #[test]
        fn any_cells_fit_and_none_is_lost(
            cells in proptest::collection::vec(("[a-z ]{0,40}", "[a-z ]{0,40}", "[a-z]{0,8}"), 0..6),
            width in 30usize..120,
        ) {
            let mut table = Table::new(&[("A", Align::Left), ("B", Align::Left), ("C", Align::Right)]);
            for (name, note, figure) in &cells {
                table.row([name, note, figure]);
            }
            let text = table.render(Some(width));
            for line in text.lines() {
                prop_assert!(length(line) <= width, "{:?}", line);
            }
            let letters = |text: &str| {
                let mut letters: Vec<char> = text.chars().filter(|c| c.is_ascii_lowercase()).collect();
                letters.sort_unstable();
                letters
            };
            let all: String = cells.iter().map(|(name, note, figure)| format!("{name}{note}{figure}")).collect();
            prop_assert_eq!(letters(&text), letters(&all));
            for (.., figure) in &cells {
                prop_assert!(text.contains(figure.as_str()), "{} is not whole: {}", figure, text);
            }
        }

        #[test]
        fn nothing_makes_it_fail(cells in proptest::collection::vec(".{0,30}", 0..9), width in 0usize..200) {
            let mut table = Table::new(&[("A", Align::Left), ("B", Align::Right)]);
            for row in cells.chunks(2) {
                table.row(row);
            }
            table.render(Some(width));
            table.render(None);
        }
    }
}
