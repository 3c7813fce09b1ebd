//! How the side view is read: one pass over the text, in which only what is asked for is kept. Knows JSON, and nothing
//! of what a message means.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A member that is read: its text, or what else it is. Null is as good as absent, and never seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// A string, decoded.
    Text(Cow<'a, str>),
    /// An object.
    Object,
    /// An array, a number, true or false.
    Other,
}

impl<'a> Seen<'a> {
    /// The string, if it is one.
    pub fn text(&self) -> Option<&Cow<'a, str>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Object | Self::Other => None,
        }
    }
}

/// The members of a message.
#[derive(Default)]
pub struct TopLevel<'a> {
    pub id: Option<&'a RawValue>,
    pub method: Option<Seen<'a>>,
    pub params: Params<'a>,
    pub result: bool,
    pub error: bool,
}

/// The members of `params`.
#[derive(Debug, Default)]
pub struct Params<'a> {
    /// Whether `params` is there and no object.
    pub malformed: bool,
    /// Of a tool or a prompt.
    pub name: Option<Seen<'a>>,
    /// Of a resource.
    pub uri: Option<Seen<'a>>,
    /// Of a task.
    pub task_id: Option<Seen<'a>>,
    /// Of a list.
    pub cursor: Option<Seen<'a>>,
    /// Of `initialize`.
    pub protocol_version: Option<Seen<'a>>,
    /// Of a tool or a prompt, as they were written.
    pub arguments: Option<&'a RawValue>,
    /// `_meta`.
    pub meta: Meta<'a>,
}

/// The members of `params._meta` that name the era.
#[derive(Debug, Default)]
pub struct Meta<'a> {
    /// `io.modelcontextprotocol/protocolVersion`.
    pub version: Option<Seen<'a>>,
    /// `io.modelcontextprotocol/clientCapabilities`.
    pub capabilities: Option<Seen<'a>>,
}

/// The keys of an object that are read. Each stands there once, and in its own spelling.
struct Keys<const N: usize> {
    known: [&'static str; N],
    found: [bool; N],
}

impl<const N: usize> Keys<N> {
    fn new(known: [&'static str; N]) -> Self {
        Self { known, found: [false; N] }
    }

    /// The known key that `key` is, if it is one.
    fn find<E: Error>(&mut self, key: &str) -> Result<Option<&'static str>, E> {
        if key.contains('\0') {
            return Err(E::custom("a key has the character NUL"));
        }
        for (known, found) in self.known.iter().zip(&mut self.found) {
            if *known == key {
                if std::mem::replace(found, true) {
                    return Err(E::custom(format_args!("{known} is there twice")));
                }
                return Ok(Some(known));
            }
            if is_variant(known, key) {
                return Err(E::custom(format_args!("{known} is written in another case")));
            }
        }
        Ok(None)
    }
}

/// Whether a parser that does not mind the case would take one for the other. Such parsers fold by Unicode, where two
/// letters outside of ASCII fold to k and s.
fn is_variant(known: &str, key: &str) -> bool {
    let fold = |letter: char| match letter {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    };
    // The longest of these letters has three bytes.
    (known.len()..=3 * known.len()).contains(&key.len()) && known.chars().map(fold).eq(key.chars().map(fold))
}

/// Text that is borrowed where it needs no decoding.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(text.into()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(text.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// A value of any kind, of which an object's members are read.
enum Kind<'a, T> {
    Null,
    Text(Cow<'a, str>),
    Object(T),
    Other,
}

/// What is read of an object's members.
trait Members<'de>: Sized {
    fn read<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error>;
}

impl<'de, T: Members<'de>> Deserialize<'de> for Kind<'de, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any<T>(PhantomData<T>);

        impl<'de, T: Members<'de>> Visitor<'de> for Any<T> {
            type Value = Kind<'de, T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a value")
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Kind::Null)
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Kind::Text(text.into()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Kind::Text(text.to_owned().into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::read(map).map(Kind::Object)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Kind::Other)
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Kind::Other)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Kind::Other)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Kind::Other)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Kind::Other)
            }
        }
        deserializer.deserialize_any(Any(PhantomData))
    }
}

/// An object of no interest.
struct Ignored;

impl<'de> Members<'de> for Ignored {
    fn read<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self)
    }
}

/// Reads a member that may be null.
fn seen<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Seen<'de>>, A::Error> {
    Ok(match map.next_value::<Kind<'de, Ignored>>()? {
        Kind::Null => None,
        Kind::Text(text) => Some(Seen::Text(text)),
        Kind::Object(Ignored) => Some(Seen::Object),
        Kind::Other => Some(Seen::Other),
    })
}

/// The same for a member by which a request is judged: what ends at NUL for somebody must not be longer for others.
fn judged<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Seen<'de>>, A::Error> {
    let seen = seen(map)?;
    match seen.as_ref().and_then(Seen::text) {
        Some(text) if text.contains('\0') => Err(A::Error::custom("a name has the character NUL")),
        _ => Ok(seen),
    }
}

impl<'de> Members<'de> for Meta<'de> {
    fn read<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
        const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
        let mut keys = Keys::new([VERSION, CAPABILITIES]);
        let mut meta = Self::default();
        while let Some(Text(key)) = map.next_key()? {
            match keys.find(&key)? {
                Some(VERSION) => meta.version = judged(&mut map)?,
                Some(_) => meta.capabilities = seen(&mut map)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(meta)
    }
}

impl<'de> Members<'de> for Params<'de> {
    fn read<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut keys = Keys::new(["name", "uri", "taskId", "cursor", "protocolVersion", "arguments", "_meta"]);
        let mut params = Self::default();
        while let Some(Text(key)) = map.next_key()? {
            match keys.find(&key)? {
                Some("name") => params.name = judged(&mut map)?,
                Some("uri") => params.uri = judged(&mut map)?,
                Some("taskId") => params.task_id = judged(&mut map)?,
                Some("cursor") => params.cursor = seen(&mut map)?,
                Some("protocolVersion") => params.protocol_version = seen(&mut map)?,
                Some("arguments") => params.arguments = Some(map.next_value()?),
                Some(_) => {
                    if let Kind::Object(meta) = map.next_value()? {
                        params.meta = meta;
                    }
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(params)
    }
}

impl<'de> Members<'de> for TopLevel<'de> {
    fn read<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut keys = Keys::new(["jsonrpc", "id", "method", "params", "result", "error"]);
        let mut message = Self::default();
        while let Some(Text(key)) = map.next_key()? {
            match keys.find(&key)? {
                Some("id") => message.id = Some(map.next_value()?),
                Some("method") => message.method = judged(&mut map)?,
                Some("params") => {
                    message.params = match map.next_value()? {
                        Kind::Null => Params::default(),
                        Kind::Object(params) => params,
                        Kind::Text(_) | Kind::Other => Params { malformed: true, ..Params::default() },
                    };
                }
                found => {
                    map.next_value::<IgnoredAny>()?;
                    message.result |= found == Some("result");
                    message.error |= found == Some("error");
                }
            }
        }
        Ok(message)
    }
}

impl<'de> Deserialize<'de> for TopLevel<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Kind::deserialize(deserializer)? {
            Kind::Object(message) => Ok(message),
            _ => Err(D::Error::custom("a message is a JSON object")),
        }
    }
}
