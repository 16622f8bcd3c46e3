//! What serde and the TOML parser say, in the words of a person who edits a configuration file.

use super::nearest::suggestion;

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explained {
    /// A key that is not known where it stands.
    UnknownKey,
    /// A key that is needed and does not stand there.
    Missing,
    /// A value that cannot be.
    Value,
}

/// An error in words.
#[derive(Debug, PartialEq, Eq)]
pub struct Explanation {
    pub sort: Explained,
    /// The key that is missing.
    pub key: Option<String>,
    pub message: String,
    pub remedy: String,
}

/// Explains one of serde's messages. Those of a type's own `Deserialize` come through as they are.
pub fn explain(message: &str) -> Explanation {
    let names = backticked(message);
    let known: Vec<&str> = names.iter().skip(1).copied().collect();
    let first = names.first().copied().unwrap_or_default();
    let value = |message: String, remedy: String| Explanation {
        sort: Explained::Value,
        key: None,
        message,
        remedy,
    };
    if message.starts_with("unknown field ") {
        let message = "there is no such key".to_string();
        Explanation {
            sort: Explained::UnknownKey,
            key: None,
            message,
            remedy: suggestion(first, &known),
        }
    } else if message.starts_with("missing field ") {
        let remedy = format!("add a line `{first} = ...`");
        let key = Some(first.to_string());
        Explanation {
            sort: Explained::Missing,
            key,
            message: "is missing".to_string(),
            remedy,
        }
    } else if message.starts_with("unknown variant ") {
        value(format!("`{first}` is not a choice here"), suggestion(first, &known))
    } else if message == "wanted string or table" {
        // The parser's words for a choice (an enum) that is written as a number, a truth value or a list.
        value(
            "is no text".to_string(),
            "write one of the choices, in quotes".to_string(),
        )
    } else if let Some((found, expected)) = mismatch(message) {
        value(
            format!("is {}", describe_found(found)),
            format!("expected {}", describe_expected(expected)),
        )
    } else {
        value(message.trim().to_string(), String::new())
    }
}

/// Explains one of the TOML parser's messages: what is wrong, and what it expected.
pub fn syntax(message: &str) -> (String, String) {
    match message.split_once(", expected ") {
        Some((wrong, expected)) => (format!("not valid TOML: {wrong}"), format!("expected {expected}")),
        None => (format!("not valid TOML: {message}"), String::new()),
    }
}

/// What serde found and what it expected: `invalid type: FOUND, expected EXPECTED`.
fn mismatch(message: &str) -> Option<(&str, &str)> {
    let rest = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|p| message.strip_prefix(p))?;
    // The value itself may contain the words; what was expected never does.
    rest.rsplit_once(", expected ")
}

fn describe_found(found: &str) -> String {
    for (serde, ours) in [
        ("string ", "the text "),
        ("integer ", "the whole number "),
        ("floating point ", "the number "),
        ("boolean ", "the truth value "),
    ] {
        if let Some(value) = found.strip_prefix(serde) {
            return format!("{ours}{}", value.trim_matches('`'));
        }
    }
    match found {
        "sequence" => "a list".to_string(),
        "map" => "a table".to_string(),
        other if other.chars().all(|c| c.is_ascii_digit()) => format!("{other} elements long"),
        other => other.to_string(),
    }
}

fn describe_expected(expected: &str) -> String {
    let range = |low: i128, high: i128| format!("a whole number from {low} to {high}");
    match expected {
        "u8" => range(0, u8::MAX.into()),
        "u16" => range(0, u16::MAX.into()),
        "u32" => range(0, u32::MAX.into()),
        "u64" | "usize" => "a whole number, not negative".to_string(),
        "i8" => range(i8::MIN.into(), i8::MAX.into()),
        "i16" => range(i16::MIN.into(), i16::MAX.into()),
        "i32" => range(i32::MIN.into(), i32::MAX.into()),
        "i64" | "isize" => "a whole number".to_string(),
        "f32" | "f64" => "a number".to_string(),
        "a boolean" => "true or false".to_string(),
        "a string" | "string" => "a text in quotes".to_string(),
        "path string" => "a path in quotes".to_string(),
        "a sequence" => "a list in brackets: [..., ...]".to_string(),
        "a map" => "a table".to_string(),
        other if other.starts_with("struct ") => "a table with keys".to_string(),
        other if other.starts_with("a nonzero") => format!("{other}, which cannot be 0"),
        other => other.to_string(),
    }
}

/// Everything between backticks, in order.
fn backticked(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_would_be_right() {
        let told = |message: &str| {
            let explanation = explain(message);
            format!("{}; {}", explanation.message, explanation.remedy)
        };
        assert_eq!(
            told("unknown field `prot`, expected one of `port`, `to`"),
            "there is no such key; did you mean `port`? Known here: port, to"
        );
        assert_eq!(told("missing field `to`"), "is missing; add a line `to = ...`");
        assert_eq!(
            told("invalid type: string \"a, expected b\", expected u16"),
            "is the text \"a, expected b\"; expected a whole number from 0 to 65535"
        );
        assert_eq!(
            told("invalid value: integer `70000`, expected u16"),
            "is the whole number 70000; expected a whole number from 0 to 65535"
        );
        assert_eq!(
            told("unknown variant `xpd`, expected one of `auto`, `xdp`, `nftables`"),
            "`xpd` is not a choice here; did you mean `xdp`? Known here: auto, xdp, nftables"
        );
        assert_eq!(told("a port is at least 1"), "a port is at least 1; ");
    }
}
