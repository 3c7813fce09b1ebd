//! The side view of a JSON-RPC message: what policy reads, and nothing more. The message itself is forwarded as it
//! came. What could be read in two ways (a key twice, or in another case) is refused, because the backend might read it
//! the other way.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// What a body says.
#[derive(Debug)]
pub enum Message {
    /// A request; `id` byte for byte as it came.
    Request(Box<RawValue>, String),
    /// A notification, or a request whose id is null: nobody waits for an answer.
    Notification(String),
    /// An answer to a request of the server.
    Response,
    /// An array of messages (2025-03-26).
    Batch,
}

impl Message {
    /// The id to answer with.
    pub fn id(&self) -> Option<&RawValue> {
        match self {
            Self::Request(id, _) => Some(id),
            _ => None,
        }
    }

    /// The method, where there is one.
    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Request(_, method) | Self::Notification(method) => Some(method),
            _ => None,
        }
    }
}

/// Reads the side view of a whole body.
pub fn peek(body: &[u8]) -> Result<Message, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::NotJson)?;
    let first = text.trim_ascii_start().bytes().next();
    if first != Some(b'{') {
        serde_json::from_str::<IgnoredAny>(text).map_err(|_| Refusal::NotJson)?;
        let batch = first == Some(b'[');
        return if batch { Ok(Message::Batch) } else { Err(not_message("a message is a JSON object")) };
    }
    let seen: Seen = serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => not_message(&without_position(&error)),
        _ => Refusal::NotJson,
    })?;
    let method = seen.method.map(|method| serde_json::from_str::<String>(method.get()));
    let method = method.transpose().map_err(|_| not_message("method must be a string"))?;
    match (method, seen.id.map(RawValue::get)) {
        (Some(method), None | Some("null")) => Ok(Message::Notification(method)),
        (Some(method), Some(id))
            if id.starts_with(['"', '-']) || id.starts_with(|first: char| first.is_ascii_digit()) =>
        {
            Ok(Message::Request(id_of(seen.id)?, method))
        }
        (Some(_), Some(_)) => Err(not_message("id must be a string or a number")),
        (None, _) if seen.answer => Ok(Message::Response),
        (None, _) => Err(not_message("method is missing")),
    }
}

fn id_of(id: Option<&RawValue>) -> Result<Box<RawValue>, Refusal> {
    id.map(RawValue::to_owned).ok_or_else(|| not_message("id is missing"))
}

fn not_message(reason: &str) -> Refusal {
    Refusal::NotMessage(reason.to_owned())
}

fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// The top-level keys of JSON-RPC.
const KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

#[derive(Default)]
struct Seen<'a> {
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    answer: bool,
}

impl<'de> Deserialize<'de> for Seen<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TopLevel;
        impl<'de> Visitor<'de> for TopLevel {
            type Value = Seen<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON-RPC message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut seen = Seen::default();
                let mut found = [false; KEYS.len()];
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    let position = KEYS.iter().position(|known| known.eq_ignore_ascii_case(&key));
                    let known = position.and_then(|position| Some((KEYS.get(position)?, found.get_mut(position)?)));
                    let Some((known, found)) = known else {
                        map.next_value::<IgnoredAny>()?; // a field of a later revision
                        continue;
                    };
                    if *known != key {
                        return Err(A::Error::custom(format_args!("{known} is written in lower case")));
                    }
                    if std::mem::replace(found, true) {
                        return Err(A::Error::custom(format_args!("{known} is there twice")));
                    }
                    match *known {
                        "id" => seen.id = Some(map.next_value()?),
                        "method" => seen.method = Some(map.next_value()?),
                        other => {
                            map.next_value::<IgnoredAny>()?;
                            seen.answer |= matches!(other, "result" | "error");
                        }
                    }
                }
                Ok(seen)
            }
        }
        deserializer.deserialize_map(TopLevel)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn view(text: &str) -> String {
        match peek(text.as_bytes()) {
            Ok(Message::Request(id, method)) => format!("request {id} {method}"),
            Ok(Message::Notification(method)) => format!("notification {method}"),
            Ok(Message::Response) => "response".into(),
            Ok(Message::Batch) => "batch".into(),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn messages_are_told_apart() {
        let cases = [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#" {"method":"ping","id":"a\u0022","future":{"id":2}} "#,
            r#"{"id":12345678901234567890123,"method":"m"}"#,
            r#"{"id":1.0,"method":"m"}"#,
            r#"{"id":-1e2,"method":"m"}"#,
            r#"{"m\u0065thod":"m","id":1}"#,
            r#"{"method":"notifications/x"}"#,
            r#"{"method":"ping","id":null}"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"id":1,"error":{"code":1}}"#,
            r#"[{"id":1,"method":"m"}]"#,
            r"[]",
            r#"{"id":1,"method":"a","method":"b"}"#,
            r#"{"id":1,"m\u0065thod":"a","method":"b"}"#,
            r#"{"id":1,"id":1,"method":"b"}"#,
            r#"{"id":1,"method":"a","Method":"b"}"#,
            r#"{"ID":1,"method":"a"}"#,
            r#"{"id":1,"method":7}"#,
            r#"{"id":true,"method":"a"}"#,
            r#"{"id":[1],"method":"a"}"#,
            r#"{"id":1}"#,
            r"{}",
            r"1",
            r#""text""#,
            r"null",
            r"",
            r"{",
            r#"{"id":1,"method":"a"} {}"#,
            r#"{"id":1,"method":"a",}"#,
            r#"{"id":01,"method":"a"}"#,
            "\u{feff}{}",
        ];
        let lines: Vec<_> = cases.iter().map(|case| format!("{case} -> {}", view(case))).collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert_eq!(peek(b"{\"id\":1,\"method\":\"\xff\"}").unwrap_err(), Refusal::NotJson);
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let deep = format!(r#"{{"id":1,"method":"m","params":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        let _ = peek(deep.as_bytes());
        let _ = peek("[".repeat(1_000_000).as_bytes());
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_view_agrees_with_a_whole_parse(method in "\\PC{0,12}", id in any::<i64>(), params in json_value()) {
            let text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
            let message = peek(text.as_bytes()).unwrap();
            prop_assert_eq!(message.method(), Some(method.as_str()));
            prop_assert_eq!(message.id().unwrap().get(), id.to_string());
        }

        #[test]
        fn any_bytes_are_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = peek(&bytes);
        }

        #[test]
        fn what_is_accepted_is_json(text in r#"[\[\]{}":,a-c0-9 ]{0,24}"#) {
            if peek(text.as_bytes()).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            }
        }

        #[test]
        fn a_second_method_is_refused_wherever_it_stands(before in json_value(), after in json_value()) {
            let text = format!(r#"{{"id":1,"method":"a","x":{before},"method":"b","y":{after}}}"#);
            prop_assert!(peek(text.as_bytes()).is_err());
        }
    }
}
