//! The rules of nftables as nft lists them (libnftables-json(5)), and which bits of marks they use.

use anyhow::{Context, Result};
use serde_json::Value;

use tarn_kernel::nft::{Nft, read};

/// Everything that nft lists; nothing where there is no nft.
///
/// # Errors
/// It does not list its rules, or in an unknown form.
pub fn objects() -> Result<Vec<Value>> {
    let Ok(nft) = Nft::find() else { return Ok(Vec::new()) };
    let listed: Value = serde_json::from_str(&nft.ruleset()?).context("nft lists its rules in an unknown form")?;
    Ok(listed["nftables"].as_array().cloned().unwrap_or_default())
}

/// The bits of marks, of packets and of connections, that rules of others set or look at. Of a whole mark, the bits of that one. What
/// iptables' own targets do is not told.
pub fn mark_bits(objects: &[Value]) -> u32 {
    let is_ours = |rule: &Value| rule["comment"].as_str().is_some_and(read::is_ours);
    let rules = objects.iter().filter_map(|object| object.get("rule"));
    let statements = rules
        .filter(|rule| !is_ours(rule))
        .flat_map(|rule| rule["expr"].as_array().into_iter().flatten());
    statements.map(bits_of_statement).fold(0, |all, bits| all | bits)
}

fn bits_of_statement(statement: &Value) -> u32 {
    if let Some(set) = statement.get("mangle").filter(|set| is_mark(&set["key"])) {
        return bits_set(&set["key"], &set["value"]);
    }
    match statement.get("match") {
        Some(condition) => bits_compared(&condition["left"], &condition["right"]),
        None => 0,
    }
}

/// Whether an expression is a whole mark.
fn is_mark(expression: &Value) -> bool {
    ["ct", "meta"].iter().any(|of| expression[*of]["key"] == "mark")
}

/// What a condition looks at: the bits of the mask, or without one those of the mark.
fn bits_compared(left: &Value, right: &Value) -> u32 {
    let is_masked = |operands: &&Vec<Value>| operands.first().is_some_and(is_mark);
    match left["&"].as_array().filter(is_masked) {
        Some(operands) => operands.iter().map(numbers).fold(0, |all, bits| all | bits),
        None if is_mark(left) => numbers(right),
        None => 0,
    }
}

/// The bits that a mark is given by what it is set to. Those that it keeps, or takes over from another mark, are no matter: `mark &
/// 0xffffff00 | 1` uses the lowest 8 bits.
fn bits_set(mark: &Value, value: &Value) -> u32 {
    if let Some(operands) = value["&"].as_array().filter(|operands| operands.iter().any(is_mark)) {
        let kept = operands.iter().map(numbers).fold(0, |all, bits| all | bits);
        return if operands.contains(mark) { !kept } else { 0 };
    }
    let operands = ["|", "^", "&"].iter().find_map(|operator| value[*operator].as_array());
    match operands {
        Some(operands) => operands
            .iter()
            .map(|operand| bits_set(mark, operand))
            .fold(0, |all, bits| all | bits),
        None => numbers(value),
    }
}

/// The bits of all numbers that an expression may come to: one, several, what a map leads to, or those that are chosen among.
fn numbers(value: &Value) -> u32 {
    let all = |values: &Vec<Value>| values.iter().map(numbers).fold(0, |all, bits| all | bits);
    match value {
        Value::Number(number) => number
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(0),
        Value::Array(values) => all(values),
        Value::Object(object) => match object.iter().next() {
            Some((kind, value)) if kind == "set" || kind == "range" => numbers(value),
            Some((kind, value)) if kind == "map" => mapped(&value["data"]["set"]),
            Some((_, value)) if value.get("mod").is_some() => chosen(value),
            _ => 0,
        },
        _ => 0,
    }
}

/// What a map's elements lead to.
fn mapped(elements: &Value) -> u32 {
    let pairs = elements.as_array().into_iter().flatten();
    let values = pairs.filter_map(|pair| pair.as_array()?.get(1));
    values.map(numbers).fold(0, |all, bits| all | bits)
}

/// What `numgen` and hashes choose among: `mod` numbers from `offset` on.
fn chosen(value: &Value) -> u32 {
    let number = |key: &str| {
        value[key]
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(0)
    };
    let (first, count) = (number("offset"), number("mod"));
    let last = first.saturating_add(count.saturating_sub(1));
    // Below the highest bit in which the ends differ, every number comes.
    let differing = u32::MAX.checked_shr((first ^ last).leading_zeros()).unwrap_or(0);
    last | differing
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bits(expressions: &[Value]) -> u32 {
        mark_bits(&[json!({"rule": {"family": "inet", "table": "home", "expr": expressions}})])
    }

    fn set(of: &str, value: &Value) -> Value {
        json!({"mangle": {"key": {of: {"key": "mark"}}, "value": value}})
    }

    fn compared(left: &Value, right: u32) -> Value {
        json!({"match": {"op": "==", "left": left, "right": right}})
    }

    /// A firewall's marks would be overwritten from the first connection on, and tarn's by it.
    #[test]
    fn bits_that_rules_set_are_used() {
        let (bit, other) = (0x0500_0000_u32, 0xfaff_ffff_u32);
        let values = |mark: Value| {
            [
                json!({"|": [mark, bit]}),
                json!({"^": [{"&": [mark, other]}, bit]}),
                json!({"|": [{"&": [mark, other]}, bit]}),
                json!(bit),
                json!({"map": {"key": {"meta": {"key": "iifname"}}, "data": {"set": [["wan0", bit], ["wan1", 0x0100_0000]]}}}),
                json!({"numgen": {"mode": "inc", "mod": 2, "offset": 0x0500_0000}}),
            ]
        };
        for of in ["ct", "meta"] {
            for value in values(json!({of: {"key": "mark"}})) {
                let found = bits(&[set(of, &value)]);
                assert_eq!(found & bit, bit, "{value}: {found:#x}");
                assert_eq!(found & 0x00ff_fffe, 0, "{value}: {found:#x}");
            }
        }
    }

    #[test]
    fn bits_that_rules_look_at_are_used() {
        let mark = json!({"meta": {"key": "mark"}});
        assert_eq!(bits(&[compared(&json!({"&": [mark, 0xff00]}), 0x100)]), 0xff00);
        assert_eq!(bits(&[compared(&mark, 7)]), 7);
        let several = json!({"match": {"op": "==", "left": mark, "right": {"set": [1, 4]}}});
        assert_eq!(bits(&[several]), 5);
    }

    #[test]
    fn what_only_takes_marks_over_uses_none() {
        let (connection, packet) = (json!({"ct": {"key": "mark"}}), json!({"meta": {"key": "mark"}}));
        assert_eq!(bits(&[set("meta", &connection), set("ct", &packet)]), 0);
        assert_eq!(bits(&[set("meta", &json!({"&": [connection, 0xff]}))]), 0);
        assert_eq!(bits(&[compared(&json!({"meta": {"key": "l4proto"}}), 6)]), 0);
        assert_eq!(
            bits(&[json!({"counter": {"packets": 5, "bytes": 7}}), json!({"accept": null})]),
            0
        );
    }

    #[test]
    fn tarn_s_own_rules_are_no_matter() {
        let rule = |comment: &str| {
            let expressions = [set("ct", &json!(1 << 24))];
            json!({"rule": {"family": "inet", "table": "home", "comment": comment, "expr": expressions}})
        };
        assert_eq!(mark_bits(&[rule("tarn")]), 0);
        assert_eq!(mark_bits(&[rule("a tarn"), rule("")]), 1 << 24);
    }
}
