//! A configuration on its way from JSON to its types. Whatever is wrong with it is told with the place and with what is
//! expected there, and never with what was found: values are secrets at times, also in the wrong place.

use std::fmt::{self, Display};

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{
    self, Deserialize, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Number, Value};

/// Why a document is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(String);

impl de::Error for Misfit {
    fn custom<T: Display>(reason: T) -> Self {
        Self(reason.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(format!("invalid type: {}, expected {expected}", kind(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(format!("invalid value: {}, expected {expected}", kind(found)))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(format!("unknown choice, expected {}", expected.join(" or ")))
    }
}

/// What was found, without its value.
fn kind(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "number",
        Unexpected::Char(_) | Unexpected::Str(_) => "string",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "list",
        Unexpected::Map => "map",
        _ => "something else",
    }
}

fn kind_of(value: &Value) -> &'static str {
    kind(match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(_) => Unexpected::Unsigned(0),
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    })
}

/// Understands a [`Document`], or what reads one on the way; what is wrong is told with its place.
pub fn understand<'de, T: Deserialize<'de>>(document: impl Deserializer<'de, Error = Misfit>) -> Result<T, Misfit> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let place = error.path().to_string();
        let misfit = error.into_inner();
        if place == "." { misfit } else { Misfit(format!("{place}: {misfit}")) } // a dot is the whole document
    })
}

/// A document, or a part of one.
#[derive(Clone, Debug)]
pub struct Document(pub Value);

/// As it stands in a file, of which no object has a key twice: whoever reads it would take one, and others the other.
impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Document;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
                Ok(Document(Value::Bool(value)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
                Ok(Document(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
                Ok(Document(value.into()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Document, E> {
                let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
                Ok(Document(Value::Number(number)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Document, E> {
                Ok(Document(value.into()))
            }

            fn visit_unit<E>(self) -> Result<Document, E> {
                Ok(Document(Value::Null))
            }

            fn visit_none<E>(self) -> Result<Document, E> {
                Ok(Document(Value::Null))
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
                Document::deserialize(deserializer)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Document, A::Error> {
                let mut values = Vec::new();
                while let Some(Document(value)) = items.next_element()? {
                    values.push(value);
                }
                Ok(Document(Value::Array(values)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Document, A::Error> {
                let mut values = Map::new();
                while let Some(key) = entries.next_key::<String>()? {
                    if values.contains_key(&key) {
                        return Err(de::Error::custom(twice(&key)));
                    }
                    let Document(value) = entries.next_value()?;
                    values.insert(key, value);
                }
                Ok(Document(Value::Object(values)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// That a key is there twice.
pub fn twice(key: &str) -> String {
    format!("{} is there twice", if is_name(key) { key } else { "a field" })
}

/// Whether a key is the name of a field; anything else may be a value, with a secret, that lacks its colon or its quotes.
pub fn is_name(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_alphabetic())
}

impl IntoDeserializer<'_, Misfit> for Document {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Document {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => SeqDeserializer::new(items.into_iter().map(Document)).deserialize_any(visitor),
            Value::Object(fields) => fields_of(fields).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    /// A choice is its name, or a map of its name alone.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::String(choice) => {
                IntoDeserializer::<Misfit>::into_deserializer(choice).deserialize_enum(name, choices, visitor)
            }
            Value::Object(fields) if fields.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(fields_of(fields)))
            }
            Value::Object(_) => Err(Misfit(format!("expected one of {}", choices.join(" and ")))),
            other => Err(Misfit(format!("invalid type: {}, expected {}", kind_of(&other), choices.join(" or ")))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

fn fields_of<'de>(
    fields: Map<String, Value>,
) -> MapDeserializer<'de, impl Iterator<Item = (String, Document)>, Misfit> {
    MapDeserializer::new(fields.into_iter().map(|(name, value)| (name, Document(value))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Config;

    fn config() -> Value {
        json!({
            "version": 1,
            "server": {"name": "weather"},
            "path": "/weather",
            "security": {"hosts": ["a.example.com"], "anonymous": true},
            "source": {"tools": [{
                "name": "forecast",
                "http": {
                    "url": "http://127.0.0.1:1/",
                    "timeoutMs": 1000,
                    "headers": [{"name": "x-token", "value": "text"}, {"name": "x-other", "env": "OTHER"}],
                },
                "overrides": {"stdio": {"description": "other", "inputSchema": {"type": "object"}}},
            }]},
            "limits": {"bodyBytes": 1000},
            "sessions": {"mode": "Stateless", "maxPerPod": 7},
        })
    }

    /// Every place of a document, as JSON pointers.
    fn places(document: &Value, place: &str, found: &mut Vec<String>) {
        found.push(place.to_owned());
        match document {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| places(value, &format!("{place}/{name}"), found));
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| places(item, &format!("{place}/{index}"), found));
            }
            _ => {}
        }
    }

    #[test]
    fn what_serde_json_understands_is_understood() {
        let document = config();
        let expected: Config = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(understand::<Config>(Document(document)).unwrap(), expected);
    }

    #[test]
    fn no_error_has_a_value() {
        let mut all = Vec::new();
        places(&config(), "", &mut all);
        let secrets = [
            json!("s3cr3t"),
            json!(98765),
            json!(-98765),
            json!(98765.5),
            json!(["s3cr3t"]),
            json!([98765]),
            json!({"value": "s3cr3t"}),
            json!({"s3cr3t": "s3cr3t"}),
        ];
        let mut told = 0;
        for place in &all {
            for secret in &secrets {
                let mut document = config();
                *document.pointer_mut(place).unwrap() = secret.clone();
                let expected = serde_json::from_value::<Config>(document.clone());
                let understood = understand::<Config>(Document(document.clone()));
                assert_eq!(understood.is_ok(), expected.is_ok(), "{place} {secret}: {understood:?} {expected:?}");
                for error in [understood.map_err(|error| error.to_string()), parsed(&document)] {
                    let Err(error) = error else { continue };
                    // The name of a field and the version are told: they say what to correct.
                    let named = error.contains("field `s3cr3t`") || error.contains("has version");
                    assert!(named || !error.contains("s3cr3t") && !error.contains("98765"), "{place}: {error}");
                    told += 1;
                }
            }
        }
        assert!(told > 100);
    }

    #[test]
    fn the_place_and_what_is_expected_are_told() {
        let cases = [
            ("", json!("s3cr3t"), "invalid type: string, expected struct Config"),
            ("/source", json!({"tool": []}), "source: unknown choice, expected tools or http"),
            ("/source", json!({"tools": [], "http": {}}), "source: expected one of tools and http"),
            ("/source", json!(7), "source: invalid type: number, expected tools or http"),
            ("/limits/bodyBytes", json!(-1), "limits.bodyBytes: invalid value: number, expected u64"),
            (
                "/source/tools/0/http/headers",
                json!(["authorization: Bearer s3cr3t"]),
                "source.tools[0].http.headers[0]: invalid type: string, expected struct ToolHeader",
            ),
            (
                "/source/tools/0/http/headers/0",
                json!({"name": "x", "value": 98765}),
                "source.tools[0].http.headers[0]: invalid type: number, expected a string",
            ),
            ("/source/tools/0/http", json!({}), "source.tools[0].http: missing field `url`"),
        ];
        for (place, value, told) in cases {
            let mut document = config();
            *document.pointer_mut(place).unwrap() = value;
            assert_eq!(understand::<Config>(Document(document)).unwrap_err().to_string(), told);
        }
    }

    fn parsed(document: &Value) -> Result<Config, String> {
        Config::parse(document.to_string().as_bytes()).map_err(|error| error.to_string())
    }
}
