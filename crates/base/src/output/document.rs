//! What a verb answers a program with.

use std::io::{Error, ErrorKind, Result as IoResult, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// The longest answer, in bytes. A list of a million clients has 60 MB.
const LIMIT: usize = 256 << 20;

/// One JSON document, or the text that a verb without one printed.
#[derive(Debug, Default)]
pub struct Document {
    json: Bounded,
    text: Bounded,
}

impl Document {
    /// Keeps a value, in the place of one that was kept before.
    ///
    /// # Errors
    /// A value that is no JSON, or too long.
    pub fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.json.0.clear();
        let written = serde_json::to_writer(&mut self.json, value);
        if written.is_err() {
            // Half a value is no document.
            self.json.0 = Vec::new();
        }
        written.context("cannot write the answer as JSON")
    }

    /// Keeps text.
    ///
    /// # Errors
    /// When it becomes too long.
    pub fn add_text(&mut self, text: &str) -> IoResult<()> {
        self.text.write_all(text.as_bytes())
    }

    /// The document as one line of JSON, without a line break: the value, or else the text as a string; `None` when the verb
    /// said nothing.
    ///
    /// # Errors
    /// None that a text could have.
    pub fn into_json(self) -> Result<Option<Vec<u8>>> {
        if !self.json.0.is_empty() {
            return Ok(Some(self.json.0));
        }
        if self.text.0.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&self.text.0);
        serde_json::to_vec(text.trim_end())
            .map(Some)
            .context("cannot write the answer as JSON")
    }
}

/// Bytes that never become more than [`LIMIT`].
#[derive(Debug, Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        if bytes.len() > LIMIT - self.0.len() {
            let text = format!(
                "the answer has more than {} MiB: ask on the command line, which has no limit",
                LIMIT >> 20
            );
            return Err(Error::new(ErrorKind::OutOfMemory, text));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Output;

    fn answered(work: impl FnOnce(&mut Output)) -> Option<String> {
        let mut output = Output::to_document();
        work(&mut output);
        let document = output.into_document().into_json().unwrap();
        document.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    /// A program reads an answer up to the line break.
    #[test]
    fn a_document_is_one_line_whatever_is_in_it() {
        let value = serde_json::json!({"note": "a\nb", "list": [1, 2]});
        let text = answered(|output| output.json(&value).unwrap()).unwrap();
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn what_a_verb_prints_is_a_string_where_it_has_no_document() {
        assert_eq!(answered(|_| {}), None);
        let printed = answered(|output| ["one", "two"].map(|line| output.line(line)).into_iter().collect());
        assert_eq!(printed.as_deref(), Some("\"one\\ntwo\""));
    }

    #[test]
    fn an_answer_that_never_ends_does_not_take_all_memory() {
        struct Endless;
        impl Serialize for Endless {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                let text = "x".repeat(1 << 20);
                serializer.collect_seq(std::iter::repeat_n(text, 1 << 20))
            }
        }
        let mut document = Document::default();
        let told = format!("{:#}", document.put(&Endless).unwrap_err());
        assert!(told.contains("256 MiB"), "{told}");
        assert_eq!(document.into_json().unwrap(), None);
    }
}
