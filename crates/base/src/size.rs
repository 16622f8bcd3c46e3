//! Sizes as people write them: `64KiB`, `4 MiB`, `1GiB`.

use std::ops::RangeInclusive;

use crate::wrong::Wrong;

/// Units, the largest first.
const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Reads a size, in bytes.
///
/// # Errors
/// What is wrong, and what would be right: a size in this range.
pub fn parse(written: &str, range: &RangeInclusive<u64>) -> Result<u64, Wrong> {
    let wrong = |message: String| Wrong::new(message, remedy(range));
    let bytes = bytes(written).ok_or_else(|| wrong(format!("'{written}' is no size")))?;
    match range.contains(&bytes) {
        true => Ok(bytes),
        false => Err(wrong(format!("{written} is out of range"))),
    }
}

/// What to write instead of a size that is not in this range.
pub fn remedy(range: &RangeInclusive<u64>) -> String {
    format!("write \"{}\" to \"{}\"", text(*range.start()), text(*range.end()))
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, shift) = UNITS.into_iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A size in the largest unit that it is a whole number of.
pub fn text(bytes: u64) -> String {
    let is_whole = |(_, shift): &(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    let (unit, shift) = UNITS.into_iter().find(is_whole).unwrap_or(("B", 0));
    format!("{}{unit}", bytes >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown_alike() {
        let any = 0..=u64::MAX;
        for (written, bytes) in [
            ("64KiB", 64 << 10),
            ("4GiB", 4 << 30),
            ("3B", 3),
            ("0B", 0),
            ("1025KiB", 1025 << 10),
        ] {
            assert_eq!((parse(written, &any), text(bytes)), (Ok(bytes), written.to_owned()));
        }
        assert_eq!(parse("4 MiB", &any), Ok(4 << 20));
        for wrong in ["", "64", "64 apples", "99999999999GiB", "-1B"] {
            let told = parse(wrong, &any).unwrap_err().to_string();
            assert!(
                told.starts_with(&format!("'{wrong}' is no size; write \"0B\"")),
                "{told}"
            );
        }
    }

    #[test]
    fn a_size_out_of_range_is_refused_with_the_range() {
        let range = (256 << 10)..=(256 << 20);
        assert_eq!(parse("256MiB", &range), Ok(256 << 20));
        let told = parse("1KiB", &range).unwrap_err().to_string();
        assert_eq!(told, "1KiB is out of range; write \"256KiB\" to \"256MiB\"");
    }
}
