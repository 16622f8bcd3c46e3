//! All figures of a stage: its tables with what moves, and then what stands alone.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tarn_base::error::wrap_line;
use tarn_base::figures::{FigureTable, Figures};
use tarn_base::output::Table;

use super::plot;
use crate::model::Model;
use crate::styles::{FAINT, Styles, TITLE};
use tarn_watch::history::History;
use tarn_watch::plot::{Plotted, rows_that_matter};

/// Rows of a table that are always shown, however small the screen is.
const ROWS_LEAST: usize = 10;

/// The lines of the open stage, for this area.
pub fn lines(model: &Model, styles: &Styles, area: Rect) -> Vec<Line<'static>> {
    let Some(stage) = model.stage() else { return Vec::new() };
    let width = usize::from(area.width);
    let said = |text: &str, style| -> Vec<Line<'static>> {
        let text = wrap_line(text, width);
        text.lines().map(|line| Line::styled(line.to_owned(), style)).collect()
    };
    let mut lines = vec![Line::from(Span::styled(stage.name, TITLE))];
    match &stage.figures {
        Err(error) => lines.extend(said(error, styles.bad)),
        Ok(None) => lines.extend(said("Down. Configure it in tarn.toml, then run `tarn up`.", FAINT)),
        Ok(Some(figures)) => {
            let page = Page {
                history: model.record().history(stage.name),
                styles,
                width,
                rows_most: usize::from(area.height).saturating_sub(6).max(ROWS_LEAST),
                is_explained: model.is_explained,
            };
            lines.extend(page.lines(figures, detail(model)));
            lines.extend(said(detail_error(model).unwrap_or_default(), styles.bad));
        }
    }
    lines
}

fn detail(model: &Model) -> &[FigureTable] {
    let sample = model.record().sample.as_ref();
    sample.map_or(&[], |sample| sample.detail_of(model.selected))
}

fn detail_error(model: &Model) -> Option<&str> {
    model.record().sample.as_ref()?.detail_error(model.selected)
}

/// What the lines of a stage depend on, beside its figures.
struct Page<'a> {
    history: Option<&'a History>,
    styles: &'a Styles,
    width: usize,
    rows_most: usize,
    is_explained: bool,
}

impl Page<'_> {
    /// The table that says most, what is read only for this screen, the other tables, and the figures that stand alone.
    fn lines(&self, figures: &Figures, detail: &[FigureTable]) -> Vec<Line<'static>> {
        let (first, others) = figures.tables.split_at(figures.tables.len().min(1));
        let section = |tables: &[FigureTable], is_whole| -> Vec<Line<'static>> {
            tables.iter().flat_map(|table| self.table(table, is_whole)).collect()
        };
        let mut lines = [section(first, true), section(detail, false), section(others, true)].concat();
        let alone = match self.is_explained {
            true => figures.table(),
            false => figures.short_table(),
        };
        if !figures.fields.is_empty() {
            lines.extend(self.text(&alone));
        }
        lines
    }

    /// A table's rows, what moves in them, and an empty line. One that is not whole had rows left out before.
    fn table(&self, table: &FigureTable, is_whole: bool) -> Vec<Line<'static>> {
        let none = History::default();
        let history = self.history.unwrap_or(&none);
        let rows = rows_that_matter(table, history, self.rows_most);
        let left_out = table.rows.len() - rows.len();
        let shown = FigureTable {
            name: table.name,
            about: table.about,
            key: table.key,
            plot: table.plot,
            fields: table.fields,
            rows: rows.iter().copied().cloned().collect(),
        };
        let mut lines = vec![Line::styled(table.about, TITLE)];
        lines.extend(self.text(&shown.table()));
        if is_whole && left_out > 0 {
            lines.push(Line::styled(format!("and {left_out} more, which are less busy"), FAINT));
        }
        if let Some(plotted) = Plotted::of(table, &rows, history).filter(|plot| !plot.rows.is_empty()) {
            lines.extend(plot::lines(&plotted, self.styles, self.width));
        }
        if self.is_explained {
            lines.extend(self.text(&table.meanings()));
        }
        lines.push(Line::default());
        lines
    }

    fn text(&self, table: &Table) -> Vec<Line<'static>> {
        let text = table.render(Some(self.width));
        text.lines().map(|line| Line::from(line.to_owned())).collect()
    }
}
