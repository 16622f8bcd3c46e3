//! Errors as a user meets them: one readable paragraph, and an exit code that a script can rely on.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed; the host is as it was before |
//! | 2 | wrong usage or configuration; nothing was tried |
//! | 3 | this host cannot do it; nothing was tried |

use serde_json::{Value, json};
use thiserror::Error;

use crate::config::ConfigErrors;

/// The command line or the configuration is wrong: exit code 2. The message says what would be right.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// This host cannot do what was asked: exit code 3. The message has the reason and the remedy.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// An error that another process of tarn met and reported, with the exit code it chose.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct Reported {
    /// What failed, as one paragraph.
    pub message: String,
    /// The exit code, 1 to 3.
    pub code: u8,
}

/// An agent that is ending has not carried out what it was asked, and will not. The next one may be asked again.
#[derive(Debug, Error)]
#[error("the agent is ending, and has not carried this out: connect again, and repeat the request")]
pub struct Ending;

/// The exit code of an error: that of the first of its contexts and causes that knows one, and 1 otherwise.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() || error.is::<ConfigErrors>() {
        return 2;
    }
    if error.is::<Unsupported>() {
        return 3;
    }
    error.downcast_ref::<Reported>().map_or(1, |reported| reported.code)
}

/// What failed, why, and the remedy, joined by colons: the chain of causes without repetitions.
pub fn paragraph(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        let cause = cause.trim();
        if cause.is_empty() || text.contains(cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(cause);
    }
    text
}

/// The error as programs read it: on the control socket, and on standard error with `--json`.
pub fn json(error: &anyhow::Error) -> Value {
    let mut json = json!({"ok": false, "error": paragraph(error), "code": exit_code(error)});
    if error.is::<Ending>() {
        json["retry"] = true.into();
    }
    json
}

/// The error as printed on standard error, every line of it led by the program's name.
///
/// `width` is the terminal's in columns; without one nothing is wrapped.
pub fn render(error: &anyhow::Error, width: Option<usize>) -> String {
    if let Some(errors) = error.downcast_ref::<ConfigErrors>() {
        let lines: Vec<String> = errors
            .0
            .iter()
            .map(|error| wrap(&format!("tarn: {error}"), width))
            .collect();
        return lines.join("\n");
    }
    wrap(&format!("tarn: {}", paragraph(error)), width)
}

/// Wraps `text` between words so that no line is longer than `width` columns, the following lines indented below
/// the first one's text. A word that is longer than a line (a path) is left whole.
fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_string() };
    text.lines()
        .map(|line| wrap_line(line, width))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The same for a text without line breaks.
pub fn wrap_line(line: &str, width: usize) -> String {
    const INDENT: &str = "      ";
    let mut wrapped = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            wrapped.push('\n');
            wrapped.push_str(INDENT);
            column = INDENT.len();
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += length;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_script_can_tell_the_kinds_of_failure_apart_through_any_context() {
        let usage = anyhow::Error::new(Usage("no".into())).context("a").context("b");
        assert_eq!(exit_code(&usage), 2);
        let unsupported = Err::<(), _>(Unsupported("no".into()))
            .context("a")
            .context("b")
            .unwrap_err();
        assert_eq!(exit_code(&unsupported), 3);
        let marked = anyhow!("io").context(Unsupported("no BTF".into())).context("up");
        assert_eq!(exit_code(&marked), 3);
        let reported = anyhow::Error::new(Reported {
            message: "no".into(),
            code: 3,
        })
        .context("up");
        assert_eq!(exit_code(&reported), 3);
        assert_eq!(exit_code(&anyhow!("anything else")), 1);
    }

    #[test]
    fn the_causes_are_told_once_each_and_in_order() {
        let error = anyhow!("permission denied")
            .context("cannot write: permission denied")
            .context("up failed");
        assert_eq!(paragraph(&error), "up failed: cannot write: permission denied");
        let error = anyhow!("run it as root").context("permission denied").context("up");
        assert_eq!(render(&error, None), "tarn: up: permission denied: run it as root");
    }

    #[test]
    fn long_errors_are_wrapped_for_a_terminal_without_cutting_a_path() {
        let path = "/a/path/".repeat(12);
        let error = anyhow!("this is what to do about it, at some length, so that it wraps").context(path.clone());
        let text = render(&error, Some(80));
        assert!(text.contains(&path), "{text}");
        for line in text.lines().filter(|line| !line.contains(&path)) {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(words(&text), words(&render(&error, None)));
    }
}
