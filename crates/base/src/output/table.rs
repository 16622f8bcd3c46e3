//! Tables in plain text: aligned columns, fitted to a width.

use super::printable;

/// Between two columns.
const GAP: &str = "  ";

/// A column is not made narrower than this, in characters.
const NARROWEST: usize = 8;

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Figures, so that their digits stand below each other. Such a column is never broken.
    Right,
}

/// Rows of cells below a line of titles.
///
/// A table that is too wide for the terminal has its widest columns of text broken over several lines, between
/// words where there are any; figures always stay whole. Columns that do not fit even so follow below, next to the first column
/// again.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
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
        }
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

    /// The table as text, every line ended by a line break, at most `width` columns wide unless the first column and another one
    /// are wider together; without a width every row is one line.
    pub fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        let parts = width.map_or_else(|| vec![(0..widths.len()).collect()], |limit| parts(&widths, limit));
        let part = |columns: &Vec<usize>| {
            let mut text = String::new();
            for row in std::iter::once(&titles).chain(&self.rows) {
                self.render_row(row, columns, &widths, &mut text);
            }
            text
        };
        parts.iter().map(part).collect::<Vec<_>>().join("\n")
    }

    /// The width of each column: that of its widest cell, less what the terminal has not got.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let widest = |(index, (title, _)): (usize, &(String, Align))| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(index))
                .map(|cell| length(cell));
            cells.chain([length(title)]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(widest).collect();
        let Some(limit) = limit else { return widths };
        loop {
            let total = total(widths.iter().copied());
            let columns = widths.iter_mut().zip(&self.columns);
            let widest = columns
                .filter(|(_, column)| column.1 == Align::Left)
                .map(|(width, _)| width)
                .max();
            match widest {
                Some(width) if total > limit && *width > NARROWEST => *width -= 1,
                _ => return widths,
            }
        }
    }

    /// Some columns of a row.
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
                    Align::Left => rendered.push_str(&format!("{part:<width$}{GAP}")),
                    Align::Right => rendered.push_str(&format!("{part:>width$}{GAP}")),
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

/// The columns, parted so that each part fits the limit; each begins with the first column, which says what a row is about.
fn parts(widths: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = vec![(0..widths.len().min(1)).collect()];
    for index in 1..widths.len() {
        let Some(part) = parts.last_mut() else { break };
        let with_it = total(part.iter().chain([&index]).map(|index| widths[*index]));
        if part.len() > 1 && with_it > limit {
            parts.push(vec![0, index]);
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

    #[test]
    fn a_pipe_gets_one_line_a_row() {
        let mut table = Table::new(&[("A", Align::Left), ("B", Align::Left)]);
        table.row(["x".repeat(300), "y z".repeat(100)]);
        assert_eq!(table.render(None).lines().count(), 2);
    }

    proptest! {
        #[test]
        fn any_cells_fit_and_none_is_lost(
            cells in proptest::collection::vec(proptest::collection::vec("[a-z ]{0,40}", 3), 0..6),
            width in 30usize..120,
        ) {
            let mut table = Table::new(&[("A", Align::Left), ("B", Align::Left), ("C", Align::Left)]);
            for row in &cells {
                table.row(row);
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
            prop_assert_eq!(letters(&text), letters(&cells.concat().concat()));
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
