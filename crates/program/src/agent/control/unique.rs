//! JSON whose objects name each key once. RFC 8259, section 4, leaves open which value counts otherwise, and serde_json takes
//! the last one: a program would not learn that its request says two things.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A value, in which no key is repeated, on any level.
pub struct Unique(pub Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = sequence.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((key, Unique(value))) = object.next_entry::<String, _>()? {
            if values.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is given twice")));
            }
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_serde_json_reads() {
        for text in [
            "null",
            "true",
            "[1, -2, 1.5, 18446744073709551615, 1e300]",
            "\"a\\u00fc\\n\"",
            "{\"a\": {\"b\": [{}, {\"a\": []}]}, \"b\": null}",
        ] {
            let Unique(value) = serde_json::from_str(text).unwrap();
            assert_eq!(value, serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_repeated_is_named_on_every_level() {
        for text in [
            "{\"class\":1,\"class\":1}",
            "{\"b\":[{\"class\":1,\"a\":2,\"class\":3}]}",
            "{\"class\":1,\"cl\\u0061ss\":2}",
        ] {
            let error = serde_json::from_str::<Unique>(text).err().unwrap();
            assert!(error.is_data(), "{error}");
            assert!(
                error.to_string().contains("the key \"class\" is given twice"),
                "{error}"
            );
        }
    }

    /// It would overflow the agent's stack.
    #[test]
    fn an_endless_nest_is_refused() {
        let text = "[".repeat(100_000);
        assert!(serde_json::from_str::<Unique>(&text).is_err());
    }
}
