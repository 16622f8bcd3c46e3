//! Text for HTML and SVG: escaping, and how wide it will be where the browser does not wrap it.

use std::fmt::{self, Display, Formatter, Write};

/// Displays a string as text that is safe in an element and in a quoted attribute, in HTML and in XML.
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' => f.write_char(character)?,
                // XML 1.0, production 2: other control characters and these two may not occur at all.
                other if other.is_control() || matches!(other, '\u{fffe}' | '\u{ffff}') => f.write_char('\u{fffd}')?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A paragraph's text as HTML: what stands between two backticks is code, as in Markdown.
pub fn prose(text: &str) -> String {
    let mut parts = text.split('`');
    let mut html = Escaped(parts.next().unwrap_or_default()).to_string();
    while let Some(code) = parts.next() {
        html += &match parts.next() {
            Some(after) => format!("<code>{}</code>{}", Escaped(code), Escaped(after)),
            None => format!("`{}", Escaped(code)),
        };
    }
    html
}

/// The parts that are not empty, with a separator between them.
pub fn joined(parts: &[String], separator: &str) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(separator)
}

/// An element's id made of arbitrary text; unique when `text`'s letters and digits are.
pub fn slug(text: &str) -> String {
    let mapped = text.chars().map(|c| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    });
    mapped.collect()
}

/// The width of `text` in the units of `size` (its font size).
///
/// An estimate on the wide side for common sans-serif fonts: a label that is given too much room is
/// harmless, one that is given too little is cut off.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// The advance of a character in em, after DejaVu Sans, the widest of the usual sans-serif fonts.
fn advance(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
        '\u{202f}' => 0.2,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' => 0.41,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' => 0.97,
        'A'..='Z' | '×' | '+' | '=' | '<' | '>' | '−' | '≤' | '≥' => 0.75,
        other if other.is_ascii() => 0.61,
        other if (other as u32) < 0x2e80 => 0.7,
        _ => 1.05, // ideographs are square
    }
}

/// Breaks `text` between words into at most `lines` lines of at most `room`; the last ends in `…` when text is left.
pub fn wrap(text: &str, size: f64, room: f64, lines: usize) -> Vec<String> {
    let mut wrapped: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let current = wrapped.last().map_or("", String::as_str);
        let joined = if current.is_empty() {
            word.to_owned()
        } else {
            format!("{current} {word}")
        };
        if current.is_empty() || width(&joined, size) <= room {
            wrapped.pop();
            wrapped.push(joined);
        } else {
            wrapped.push(word.to_owned());
        }
    }
    if wrapped.len() > lines {
        let rest = wrapped.split_off(lines.max(1) - 1).join(" ");
        wrapped.push(rest);
    }
    wrapped.iter().map(|line| shorten(line, size, room)).collect()
}

/// Cuts `text` to `room`, with an ellipsis when something was cut.
fn shorten(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut left = room - width("…", size);
    let kept = text.chars().take_while(|character| {
        left -= advance(*character) * size;
        left >= 0.0
    });
    format!("{}…", kept.collect::<String>().trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_prose_are_code() {
        assert_eq!(
            prose("by `tarn <up>`, then `x`."),
            "by <code>tarn &lt;up&gt;</code>, then <code>x</code>."
        );
        assert_eq!(prose("a ` alone"), "a ` alone");
        assert_eq!(prose("plain"), "plain");
    }

    #[test]
    fn a_hostile_title_stays_text() {
        let shown = Escaped("<script>alert('1')</script> & \"\u{0}\u{1b}[31m").to_string();
        assert_eq!(
            shown,
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;\u{fffd}\u{fffd}[31m"
        );
    }

    #[test]
    fn a_long_label_is_wrapped_and_shortened_within_its_room() {
        let label = "tarn over XDP, redirected into the namespace of the server, with a very long remark behind it";
        for room in [60.0, 120.0, 200.0, 2000.0] {
            let lines = wrap(label, 13.0, room, 2);
            assert!(lines.len() <= 2, "{lines:?}");
            assert!(
                lines.iter().all(|line| width(line, 13.0) <= room),
                "{lines:?} in {room}"
            );
        }
        assert_eq!(wrap(label, 13.0, 2000.0, 2), [label]);
        assert!(wrap(label, 13.0, 120.0, 2)[1].ends_with('…'));
    }

    #[test]
    fn one_word_wider_than_its_room_is_cut() {
        assert!(wrap("nftables-with-a-flowtable-and-conntrack", 13.0, 80.0, 2)[0].ends_with('…'));
        assert_eq!(wrap("", 13.0, 80.0, 2), [""]);
    }
}
