//! Values of the file as serde reads them. What is wrong comes out in the words of a person who edits a configuration file.

use std::fmt::Display;
use std::ops::Range;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};
use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::nearest::suggestion;

/// What a mistake is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A key that is not known where it stands.
    UnknownKey,
    /// A key that is needed and does not stand there.
    Missing,
    /// A value that cannot be.
    Value,
    /// A value of another sort or range than its key has; the remedy says which that is.
    Mismatch,
}

/// A mistake in words.
#[derive(Debug, thiserror::Error)]
#[error("{message}; {remedy}")]
pub struct Mistake {
    pub sort: Sort,
    /// The key that is missing.
    pub key: Option<String>,
    pub message: String,
    pub remedy: String,
    /// The innermost value or key that it is in, in bytes of the file.
    pub span: Option<Range<usize>>,
}

impl Mistake {
    fn new(sort: Sort, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        Self {
            sort,
            key: None,
            message,
            remedy,
            span: None,
        }
    }

    /// Found in a value or key at this place, of which `expected` was wanted.
    fn at(mut self, span: Range<usize>, expected: Option<&str>) -> Self {
        if self.span.is_none() {
            self.span = Some(span);
            if let Some(expected) = expected.filter(|_| self.sort == Sort::Mismatch) {
                self.remedy = format!("expected {expected}");
            }
        }
        self
    }
}

impl Error for Mistake {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(Sort::Value, message.to_string(), "")
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => format!("the text {text:?}"),
            Unexpected::Signed(number) => format!("the whole number {number}"),
            Unexpected::Float(number) => format!("the number {number}"),
            Unexpected::Bool(truth) => format!("the truth value {truth}"),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a table".to_owned(),
            other => other.to_string(),
        };
        Self::new(Sort::Mismatch, format!("is {found}"), format!("expected {expected}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let remedy = format!("expected {expected}");
        Self::new(Sort::Value, format!("is {length} elements long"), remedy)
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let message = format!("`{variant}` is not a choice here");
        Self::new(Sort::Value, message, suggestion(variant, known))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::new(Sort::UnknownKey, "there is no such key", suggestion(field, known))
    }

    fn missing_field(field: &'static str) -> Self {
        let mistake = Self::new(Sort::Missing, "is missing", format!("add a line `{field} = ...`"));
        Self {
            key: Some(field.to_owned()),
            ..mistake
        }
    }
}

/// A value, and its place.
#[derive(Clone, Copy)]
pub struct Value<'a>(pub &'a Spanned<DeValue<'a>>);

impl<'de> Value<'de> {
    /// The value as what the seed makes of it, which may refuse it in words of its own.
    fn read<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Mistake> {
        seed.deserialize(self)
            .map_err(|mistake| mistake.at(self.0.span(), None))
    }

    /// Has the visitor see the value, which is to be what `expected` says.
    fn visit<V: Visitor<'de>>(self, visitor: V, expected: Option<&str>) -> Result<V::Value, Mistake> {
        let found = match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_borrowed_str(text),
            DeValue::Boolean(truth) => visitor.visit_bool(*truth),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => visitor.visit_i64(number),
                Err(_) => Err(Error::invalid_value(Unexpected::Other("too great a number"), &visitor)),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(Error::invalid_value(Unexpected::Other("too great a number"), &visitor)),
            },
            DeValue::Datetime(_) => Err(Error::invalid_type(Unexpected::Other("a date"), &visitor)),
            DeValue::Array(array) => visitor.visit_seq(Elements(array.iter())),
            DeValue::Table(table) => visitor.visit_map(Entries {
                entries: table.iter(),
                value: None,
            }),
        };
        found.map_err(|mistake| mistake.at(self.0.span(), expected))
    }
}

/// Methods of a deserializer, each with what it wants.
macro_rules! expect {
    ($($method:ident: $expected:expr,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
            self.visit(visitor, Some($expected))
        })*
    };
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Mistake;

    expect! {
        deserialize_bool: "true or false",
        deserialize_u8: "a whole number from 0 to 255",
        deserialize_u16: "a whole number from 0 to 65535",
        deserialize_u32: "a whole number from 0 to 4294967295",
        deserialize_u64: "a whole number, not negative",
        deserialize_i64: "a whole number",
        deserialize_f64: "a number",
        deserialize_str: "a text in quotes",
        deserialize_string: "a text in quotes",
        deserialize_seq: "a list in brackets: [..., ...]",
        deserialize_map: "a table with keys",
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.visit(visitor, None)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match is_spanned(name) {
            true => visitor.visit_map(SpannedDeserializer::new(self, self.0.span())),
            false => self.deserialize_map(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let found = match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_enum(BorrowedStrDeserializer::new(text)),
            _ => Err(Mistake::new(
                Sort::Value,
                "is no text",
                "write one of the choices, in quotes",
            )),
        };
        found.map_err(|mistake| mistake.at(self.0.span(), None))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Mistake> for Value<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The elements of a list that are left.
struct Elements<I>(I);

impl<'de, I: Iterator<Item = &'de Spanned<DeValue<'de>>>> SeqAccess<'de> for Elements<I> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Mistake> {
        self.0.next().map(|value| Value(value).read(seed)).transpose()
    }
}

/// The entries of a table that are left, and the value of the key that was read last.
struct Entries<'a, I> {
    entries: I,
    value: Option<Value<'a>>,
}

impl<'de, I> MapAccess<'de> for Entries<'de, I>
where
    I: Iterator<Item = (&'de Spanned<DeString<'de>>, &'de Spanned<DeValue<'de>>)>,
{
    type Error = Mistake;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Mistake> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(Value(value));
        let read = seed.deserialize(BorrowedStrDeserializer::new(key.get_ref()));
        read.map(Some).map_err(|mistake: Mistake| mistake.at(key.span(), None))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        let value = self
            .value
            .take()
            .ok_or_else(|| Error::custom("a value without its key"))?;
        value.read(seed)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Table {
        port: Option<u16>,
        mode: Option<Mode>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Auto,
        Xdp,
    }

    #[test]
    fn messages_say_what_would_be_right() {
        for (text, expected) in [
            (
                "{ prot = 1 }",
                "there is no such key; did you mean `port`? Known here: port, mode",
            ),
            (
                "{ port = \"a, expected b\" }",
                "is the text \"a, expected b\"; expected a whole number from 0 to 65535",
            ),
            (
                "{ port = 70000 }",
                "is the whole number 70000; expected a whole number from 0 to 65535",
            ),
            ("{ port = [] }", "is a list; expected a whole number from 0 to 65535"),
            (
                "{ port = 1.5 }",
                "is the number 1.5; expected a whole number from 0 to 65535",
            ),
            (
                "{ port = 2026-11-22 }",
                "is a date; expected a whole number from 0 to 65535",
            ),
            (
                "{ port = 99999999999999999999 }",
                "is too great a number; expected a whole number from 0 to 65535",
            ),
            (
                "{ mode = \"xpd\" }",
                "`xpd` is not a choice here; did you mean `xdp`? Known here: auto, xdp",
            ),
            ("{ mode = 1 }", "is no text; write one of the choices, in quotes"),
            ("true", "is the truth value true; expected a table with keys"),
        ] {
            let value = DeValue::parse(text).unwrap();
            assert_eq!(
                Table::deserialize(Value(&value)).unwrap_err().to_string(),
                expected,
                "{text}"
            );
        }
        let value = DeValue::parse("{ port = 0x1_0, mode = \"auto\" }").unwrap();
        assert_eq!(Table::deserialize(Value(&value)).unwrap().port, Some(16));
    }
}
