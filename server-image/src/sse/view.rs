//! The side view of a JSON-RPC message, as far as a session must know where it belongs. The message itself passes as it
//! came, but for an id or a token that a session must tell apart from another. What cannot be read belongs nowhere in
//! particular.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// An id or a progress token: two spellings of one value are one value, because servers write ids anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Id {
    /// A string.
    Text(String),
    /// A number, in one spelling.
    Number(String),
}

impl Id {
    /// Reads an id as it was written; `None` where it is neither string nor number.
    pub fn of(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        if text.starts_with('"') {
            return serde_json::from_str(text).map(Self::Text).ok();
        }
        let number: Number = serde_json::from_str(text).ok()?;
        let whole = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 9e15);
        Some(Self::Number(match (number.is_f64(), whole) {
            (true, Some(whole)) => format!("{whole:.0}"), // 1.0 and 1e2 are 1 and 100
            _ => number.to_string(),
        }))
    }

    /// It as JSON.
    pub fn json(&self) -> String {
        match self {
            Self::Text(text) => Value::from(text.as_str()).to_string(),
            Self::Number(number) => number.clone(),
        }
    }
}

/// What a message of a server is.
#[derive(Debug, PartialEq, Eq)]
pub enum FromServer {
    /// The answer to the request with this id.
    Answer {
        /// The request's id.
        id: Id,
        /// The revision that an answer to `initialize` settles on.
        version: Option<String>,
    },
    /// A progress notification for whoever brought this token.
    Progress(Id),
    /// A request, another notification, or what nobody understands.
    Other,
}

/// Looks at a message of a server.
pub fn from_server(message: &[u8]) -> FromServer {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        method: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        result: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Settled {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    let Some(envelope) = object::<Envelope<'_>>(message) else { return FromServer::Other };
    match (envelope.method, envelope.id.and_then(Id::of)) {
        (None, Some(id)) => {
            let settled = envelope.result.and_then(|result| object::<Settled>(result.get().as_bytes()));
            let version = settled.map(|settled| settled.version);
            FromServer::Answer { id, version }
        }
        (Some(method), None) if method == "notifications/progress" => {
            told_token(message).and_then(Id::of).map_or(FromServer::Other, FromServer::Progress)
        }
        _ => FromServer::Other,
    }
}

/// The id of a message, as it was written.
pub fn written_id(message: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    Some(object::<Envelope<'_>>(message)?.id)
}

/// `params.progressToken` of a server's progress notification: whose progress it tells.
pub fn told_token(message: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    Some(object::<Params<'_>>(params(message)?)?.token)
}

/// `params._meta.progressToken` of a client's request: under which it wants progress told.
pub fn progress_token(message: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    let meta = object::<Params<'_>>(params(message)?)?.meta;
    Some(object::<Meta<'_>>(meta.get().as_bytes())?.token)
}

/// The request that a client's `notifications/cancelled` gives up: it is not answered any more.
pub fn given_up(message: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "requestId")]
        id: &'a RawValue,
    }
    object::<Envelope<'_>>(message).filter(|envelope| envelope.method == "notifications/cancelled")?;
    Some(object::<Params<'_>>(params(message)?)?.id)
}

fn params(message: &[u8]) -> Option<&[u8]> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        params: &'a RawValue,
    }
    Some(object::<Envelope<'_>>(message)?.params.get().as_bytes())
}

/// The message with another value where `find` finds one, and not a byte different elsewhere.
pub fn replace(message: Bytes, find: impl Fn(&[u8]) -> Option<&RawValue>, value: &str) -> Bytes {
    let found = find(&message).map(|found| message.slice_ref(found.get().as_bytes()));
    let Some(found) = found else { return message };
    let before = found.as_ptr().addr().saturating_sub(message.as_ptr().addr());
    let after = before + found.len();
    [&message.slice(..before), value.as_bytes(), &message.slice(after..)].concat().into()
}

/// The members of an object that are read. (An array would be read as one, by position.)
fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    serde_json::from_slice(json).ok().filter(|_| json.trim_ascii_start().starts_with(b"{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<Id> {
        Id::of(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn an_id_is_its_value_and_not_its_spelling() {
        for (one, other) in [("1", "1.0"), ("100", "1e2"), (r#""é""#, r#""\u00e9""#), ("-0.0", "-0.0"), ("2.5", "2.50")]
        {
            assert_eq!(id(one), id(other), "{one} {other}");
        }
        for (one, other) in [("1", r#""1""#), ("1", "2"), ("1", "1.5"), ("9007199254740993", "9007199254740992")] {
            assert_ne!(id(one), id(other), "{one} {other}");
        }
        for none in ["null", "true", "[1]", "{}"] {
            assert_eq!(id(none), None, "{none}");
        }
    }

    #[test]
    fn messages_of_a_server_are_told_apart() {
        let number = |text: &str| Id::Number(text.into());
        let answer = |id| FromServer::Answer { id, version: None };
        let cases = [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, answer(number("1"))),
            (r#"{"id":"a","result":null}"#, answer(Id::Text("a".into()))),
            (r#"{"id":1,"error":{"code":1}}"#, answer(number("1"))),
            (
                r#"{"id":0,"result":{"protocolVersion":"2025-11-25","x":12345678901234567890123}}"#,
                FromServer::Answer { id: number("0"), version: Some("2025-11-25".into()) },
            ),
            (
                r#"{"method":"notifications/progress","params":{"progress":1,"progressToken":"t"}}"#,
                FromServer::Progress(Id::Text("t".into())),
            ),
            (r#"{"method":"notifications/progress","params":{}}"#, FromServer::Other),
            (r#"{"method":"notifications/message","params":{"progressToken":1}}"#, FromServer::Other),
            (r#"{"id":1,"method":"sampling/createMessage"}"#, FromServer::Other),
            (r#"{"id":null,"error":{}}"#, FromServer::Other),
            (r"[]", FromServer::Other),
            (r"[1,null,null,{}]", FromServer::Other),
            (r#"{"method":"notifications/progress","params":["t"]}"#, FromServer::Other),
            (r"{", FromServer::Other),
        ];
        for (text, expected) in cases {
            assert_eq!(from_server(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_request_is_given_up_by_its_id() {
        let id = |text: &str| given_up(text.as_bytes()).and_then(Id::of);
        let text = r#"{"method":"notifications/cancelled","params":{"requestId":"a","reason":"x"}}"#;
        assert_eq!(id(text), Some(Id::Text("a".into())));
        for none in [
            r#"{"method":"notifications/cancelled"}"#,
            r#"{"method":"notifications/cancelled","params":["a"]}"#,
            r#"{"method":"notifications/other","params":{"requestId":"a"}}"#,
            "[]",
        ] {
            assert_eq!(id(none), None, "{none}");
        }
    }

    #[test]
    fn the_token_of_a_request_is_found() {
        let token = |text: &str| progress_token(text.as_bytes()).and_then(Id::of);
        let meta = r#"{"id":1,"method":"m","params":{"x":[],"_meta":{"y":{},"progressToken":7}}}"#;
        assert_eq!(token(meta), Some(Id::Number("7".into())));
        for none in [
            r#"{"id":1,"method":"m"}"#,
            r#"{"params":{}}"#,
            r#"{"params":[{"progressToken":7}]}"#,
            r#"{"params":{"_meta":[7]}}"#,
            r#"{"params":{"_meta":{"progressToken":null}}}"#,
            "[]",
        ] {
            assert_eq!(token(none), None, "{none}");
        }
    }
    #[test]
    fn a_value_is_replaced_and_nothing_else() {
        type Find = fn(&[u8]) -> Option<&RawValue>;
        let cases: [(Find, &str, &str); 7] = [
            (written_id, r#" {"x":7, "id" : 7 ,"big":12345678901234567890123}"#, "7 ,"),
            (written_id, r#"{"result":{"id":7},"i\u0064":"\u0037"}"#, r#""\u0037""#),
            (written_id, r#"{"id":1e0,"é":"é"}"#, "1e0"),
            (told_token, r#"{"method":"m","params":{"x":[7],"progressToken":7}}"#, "7}}"),
            (progress_token, r#"{"id":7,"params":{"name":"7","_meta":{"progressToken":7.50 }}}"#, "7.50"),
            (given_up, r#"{"method":"notifications/cancelled","params":{"requestId":7,"reason":"7"}}"#, "7,"),
            (written_id, r#"{"method":"m"}"#, "nothing"),
        ];
        let ours = Id::Text("\"ours\"".into()).json();
        for (find, text, place) in cases {
            let replaced = replace(Bytes::from_static(text.as_bytes()), find, &ours);
            let value = place.trim_end_matches([' ', ',', '}']);
            let expected = text.replacen(place, &place.replacen(value, &ours, 1), 1);
            assert_eq!(replaced, expected, "{text}");
        }
    }
}
