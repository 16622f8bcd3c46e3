//! Suggestions for mistyped names.

use strsim::osa_distance;

/// What to write instead of `name`: the nearest known name when one is near, and all of them.
pub fn suggestion(name: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    match nearest(name, known) {
        _ if known.is_empty() => "remove it".to_string(),
        Some(nearest) if known.len() > 1 => format!("did you mean `{nearest}`? Known here: {list}"),
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known here: {list}"),
    }
}

/// The known name with the fewest typing errors in between, if they are at most a third of its letters. An error is a letter put
/// in, left out, exchanged, or swapped with its neighbour (optimal string alignment distance).
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let by_distance = known
        .iter()
        .map(|candidate| (osa_distance(&name, &candidate.to_lowercase()), *candidate));
    let (distance, nearest) = by_distance.min_by_key(|(distance, _)| *distance)?;
    let limit = (nearest.chars().count().max(name.chars().count()) / 3).max(1);
    (distance <= limit).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognised_and_a_different_word_is_not() {
        let known = ["redirect", "reassembly", "classes", "pace", "paths", "poll"];
        assert_eq!(nearest("redirct", &known), Some("redirect"));
        assert_eq!(nearest("Redirect", &known), Some("redirect"));
        assert_eq!(nearest("psce", &known), Some("pace"));
        assert_eq!(nearest("apths", &known), Some("paths"));
        assert_eq!(nearest("firewall", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn distances_count_typing_errors() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("port", "ports", 1),
        ] {
            assert_eq!(osa_distance(a, b), expected, "{a} {b}");
            assert_eq!(osa_distance(b, a), expected, "{b} {a}");
        }
    }
}
