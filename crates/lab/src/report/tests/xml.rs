//! A checker of well-formed markup, enough for what the report writes: it finds what a browser would guess at.

use std::collections::HashSet;

/// Elements that HTML never closes; the report writes them as `<x/>`.
const VOID: [&str; 4] = ["meta", "link", "br", "hr"];

/// Checks a document or fragment: tags balanced, attributes quoted and each once, references known, ids unique
/// and every `aria-labelledby` and `#link` with a target.
pub fn check(document: &str) -> Result<(), String> {
    let mut checker = Checker::default();
    let mut rest = document.strip_prefix("<!DOCTYPE html>").unwrap_or(document);
    while let Some(start) = rest.find('<') {
        checker.text(&rest[..start])?;
        let end = rest[start..]
            .find('>')
            .ok_or_else(|| format!("unclosed tag: {}", excerpt(&rest[start..])))?;
        checker.tag(&rest[start + 1..start + end])?;
        rest = &rest[start + end + 1..];
    }
    checker.text(rest)?;
    checker.finish()
}

#[derive(Default)]
struct Checker {
    open: Vec<String>,
    ids: HashSet<String>,
    wanted: Vec<String>,
}

impl Checker {
    fn text(&self, text: &str) -> Result<(), String> {
        if self.open.last().is_some_and(|name| name == "style") {
            return Ok(());
        }
        if text.contains('>') || text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
            return Err(format!("not text: {}", excerpt(text)));
        }
        for reference in text.split('&').skip(1) {
            let name = reference.split_once(';').map_or("", |(name, _)| name);
            if !["amp", "lt", "gt", "quot", "#39"].contains(&name) {
                return Err(format!("unknown reference: &{}", excerpt(reference)));
            }
        }
        Ok(())
    }

    fn tag(&mut self, tag: &str) -> Result<(), String> {
        if let Some(name) = tag.strip_prefix('/') {
            let open = self.open.pop();
            return if open.as_deref() == Some(name) {
                Ok(())
            } else {
                Err(format!("</{name}> closes {open:?}"))
            };
        }
        let (tag, alone) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        self.attributes(attributes)?;
        if VOID.contains(&name) && !alone {
            return Err(format!("<{name}> is left open"));
        }
        if !alone {
            self.open.push(name.to_owned());
        }
        Ok(())
    }

    fn attributes(&mut self, mut rest: &str) -> Result<(), String> {
        let mut seen = HashSet::new();
        while !rest.trim_start().is_empty() {
            let malformed = || format!("malformed attribute: {}", excerpt(rest));
            let (name, quoted) = rest.trim_start().split_once("=\"").ok_or_else(malformed)?;
            let (value, after) = quoted.split_once('"').ok_or_else(malformed)?;
            if name.contains(char::is_whitespace) || value.contains('<') || !seen.insert(name) {
                return Err(malformed());
            }
            self.text(value)?;
            self.names(name, value)?;
            rest = after;
        }
        Ok(())
    }

    fn names(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "id" if !self.ids.insert(value.to_owned()) => return Err(format!("id `{value}` occurs twice")),
            "aria-labelledby" => self.wanted.extend(value.split(' ').map(str::to_owned)),
            "href" => self.wanted.extend(value.strip_prefix('#').map(str::to_owned)),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<(), String> {
        match (self.open.last(), self.wanted.iter().find(|id| !self.ids.contains(*id))) {
            (Some(name), _) => Err(format!("<{name}> is never closed")),
            (_, Some(id)) => Err(format!("nothing has the id `{id}`")),
            (None, None) => Ok(()),
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

#[test]
fn the_checker_finds_what_is_wrong() {
    for wrong in [
        "<p>",
        "<p></b>",
        "<p a=1></p>",
        "a & b",
        "<p>\u{1}</p>",
        "<p a=\"1\" a=\"2\"></p>",
        "<br>",
        "<a href=\"#x\"></a>",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
    assert_eq!(
        check("<!DOCTYPE html><p id=\"x\">a &amp; b<br/><a href=\"#x\">c</a></p>"),
        Ok(())
    );
}
