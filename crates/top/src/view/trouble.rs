//! What does not work, above everything else.

use tarn_base::error::wrap_line;

/// Lines that troubles take at most.
const LINES_MOST: u16 = 4;

/// Lines that troubles may take on a screen of this height.
pub fn room(height: u16) -> usize {
    LINES_MOST.min(height / 4).into()
}

/// Troubles, broken between words; with how many more there are, when they do not all fit.
pub fn lines(troubles: &[String], width: usize, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut whole = 0;
    for trouble in troubles {
        lines.extend(wrap_line(trouble, width).lines().map(str::to_owned));
        whole += usize::from(lines.len() < room);
    }
    if lines.len() > room {
        lines.truncate(room);
        // On a single line the beginning of the first one says more.
        if let Some(last) = lines.last_mut().filter(|_| room > 1) {
            *last = format!("and {} more: see `tarn status`", troubles.len() - whole);
        }
    }
    lines
}
