//! `x-mcp-header`: arguments that a modern client repeats in `Mcp-Param-*` headers, so that others on the way can go by
//! them (2026-07-28, Streamable HTTP, "Custom Headers from Tool Parameters"). Decides whether a call's headers say what
//! its arguments say; which a schema names, and what is wrong with it, [`mooring_contract::param_header`] decides.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use mooring_contract::config::Schema;
use mooring_contract::param_header::{self, ParamHeader};
use serde_json::value::RawValue;

use super::arguments::{self, Arguments};
use crate::era::decoded;
use crate::refusal::Refusal;

/// Integers beyond it are not the same in every client (JavaScript's largest safe integer).
const SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// One argument that is repeated in a header.
#[derive(Debug)]
pub struct Mirror {
    header: HeaderName,
    named: ParamHeader,
}

/// Finds what a schema names; the error says what is wrong with it. Clients leave out a tool whose schema is wrong here.
pub fn compile(schema: &Schema) -> Result<Vec<Mirror>, String> {
    let mirror = |named: ParamHeader| match HeaderName::try_from(&named.header) {
        Ok(header) => Ok(Mirror { header, named }),
        Err(error) => Err(format!("{}: {error}", named.header)),
    };
    let named = param_header::param_headers(schema).map_err(|error| error.to_string());
    let mirrors = named.and_then(|named| named.into_iter().map(mirror).collect());
    mirrors.map_err(|error| format!("inputSchema: {error}"))
}

/// Refuses a call whose headers do not say what its arguments say. An argument that is absent or null has no header.
pub fn check(mirrors: &[Mirror], headers: &HeaderMap, arguments: Option<&RawValue>) -> Result<(), Refusal> {
    mirrors.iter().try_for_each(|mirror| {
        let mut values = headers.get_all(&mirror.header).iter();
        let argument = find(arguments, &mirror.named.path).and_then(spelled);
        let agrees = match (values.next(), values.next(), argument) {
            (None, _, None) => true,
            (Some(value), None, Some(argument)) => decoded(value)
                .is_some_and(|value| value == argument || mirror.named.is_integer && same(&value, &argument)),
            _ => false,
        };
        if agrees { Ok(()) } else { Err(Refusal::HeaderMismatch(mirror.named.header.clone().into())) }
    })
}

/// The argument at a path.
fn find<'a>(arguments: Option<&'a RawValue>, path: &[String]) -> Option<&'a RawValue> {
    path.iter().try_fold(arguments?, |object, name| {
        let members: Arguments<'a> = arguments::read(Some(object)).ok()?;
        members.get(name).copied()
    })
}

/// How a header spells an argument; `None` for null and for what has no spelling.
fn spelled(argument: &RawValue) -> Option<Cow<'_, str>> {
    match argument.get() {
        "null" => None,
        text if text.starts_with('"') => serde_json::from_str::<String>(text).ok().map(Cow::Owned),
        text if text.starts_with(['[', '{']) => None,
        text => Some(text.into()),
    }
}

/// Whether two spellings are the same integer, as far as every client can tell.
fn same(header: &str, argument: &str) -> bool {
    let plain = header.strip_prefix('-').unwrap_or(header);
    let plain = plain.starts_with(|first: char| first.is_ascii_digit())
        && plain.ends_with(|last: char| last.is_ascii_digit())
        && plain.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    // Adding zero makes -0 the 0 that it is.
    let number = |text: &str| text.parse::<f64>().ok().map(|number| number + 0.0);
    let safe = |text: &str| number(text).filter(|number| number.abs() <= SAFE_INTEGER);
    plain && safe(header).zip(safe(argument)).is_some_and(|(header, argument)| header.total_cmp(&argument).is_eq())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    /// A header's values as bytes, the arguments, and whether they agree.
    type Case<'a> = (&'a str, &'a [&'a [u8]], &'a str, bool);

    #[test]
    fn a_header_is_its_argument() {
        let schema = json!({"type": "object", "properties": {
            "s": {"type": "string", "x-mcp-header": "S"},
            "i": {"type": "integer", "x-mcp-header": "I"},
            "b": {"type": "boolean", "x-mcp-header": "B"},
            "o": {"type": "object", "properties": {"deep": {"type": "string", "x-mcp-header": "Deep"}}},
        }});
        let mirrors = compile(schema.as_object().unwrap()).unwrap();
        let cases: &[Case] = &[
            ("s", &[], r"{}", true),
            ("s", &[], r#"{"s":null}"#, true),
            ("s", &[], "null", true),
            ("s", &[], r#"{"s":"x"}"#, false),
            ("s", &[], r#"{"s":""}"#, false),
            ("s", &[b""], r#"{"s":""}"#, true),
            ("s", &[b"x"], r#"{"s":"x"}"#, true),
            ("s", &[b" x\t"], r#"{"s":"\u0078"}"#, true),
            ("s", &[b"X"], r#"{"s":"x"}"#, false),
            ("s", &[b"x", b"x"], r#"{"s":"x"}"#, false),
            ("s", &[b"x"], r"{}", false),
            ("s", &[b"x"], r#"{"s":null}"#, false),
            ("s", &[b"null"], r#"{"s":null}"#, false),
            ("s", &[b"=?base64?SGVsbG8sIOS4lueVjA==?="], r#"{"s":"Hello, 世界"}"#, true),
            ("s", &[b"=?base64?IHBhZGRlZCA=?="], r#"{"s":" padded "}"#, true),
            ("s", &[b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="], r#"{"s":"=?base64?literal?="}"#, true),
            ("s", &[b"=?base64?literal?="], r#"{"s":"=?base64?literal?="}"#, false),
            ("s", &[b"SGVsbG8=?="], r#"{"s":"SGVsbG8=?="}"#, true),
            ("s", &[b"=?base64?SGVsbG8="], r#"{"s":"=?base64?SGVsbG8="}"#, true),
            ("s", &[b"=?base64?SGVs!G8=?="], r#"{"s":"Hello"}"#, false),
            ("s", &["é".as_bytes()], r#"{"s":"é"}"#, false),
            ("s", &[b"42.0"], r#"{"s":"42"}"#, false),
            ("i", &[b"42"], r#"{"i":42}"#, true),
            ("i", &[b"42.0"], r#"{"i":42}"#, true),
            ("i", &[b"42"], r#"{"i":42.0}"#, true),
            ("i", &[b"42"], r#"{"i":4.2e1}"#, true),
            ("i", &[b"-7"], r#"{"i":-7}"#, true),
            ("i", &[b"0"], r#"{"i":-0}"#, true),
            ("i", &[b"43"], r#"{"i":42}"#, false),
            ("i", &[b"42.5"], r#"{"i":42}"#, false),
            ("i", &[b"4.2e1"], r#"{"i":42}"#, false),
            ("i", &[b"0x2a"], r#"{"i":42}"#, false),
            ("i", &[b"+42"], r#"{"i":42}"#, false),
            ("i", &[b""], r#"{"i":0}"#, false),
            ("i", &[b"."], r#"{"i":0}"#, false),
            ("i", &[b"9007199254740991"], r#"{"i":9007199254740991}"#, true),
            ("i", &[b"9007199254740993"], r#"{"i":9007199254740993}"#, true),
            ("i", &[b"9007199254740992"], r#"{"i":9007199254740993}"#, false),
            ("i", &[b"42"], r#"{"i":"42"}"#, true),
            ("b", &[b"true"], r#"{"b":true}"#, true),
            ("b", &[b"True"], r#"{"b":true}"#, false),
            ("b", &[b"1"], r#"{"b":true}"#, false),
            ("deep", &[b"x"], r#"{"o":{"deep":"x"}}"#, true),
            ("deep", &[], r#"{"o":{"deep":"x"}}"#, false),
            ("deep", &[], r#"{"o":{}}"#, true),
            ("deep", &[], r#"{"o":7}"#, true),
            ("s", &[], r#"{"s":{"a":1}}"#, true),
            ("s", &[b"x"], r#"{"s":["x"]}"#, false),
            ("other", &[b"x"], r"{}", true),
        ];
        for (name, values, arguments, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in *values {
                let name = HeaderName::try_from(format!("mcp-param-{name}")).unwrap();
                headers.append(name, HeaderValue::from_bytes(value).unwrap());
            }
            let arguments: Box<RawValue> = serde_json::from_str(arguments).unwrap();
            let agrees = check(&mirrors, &headers, Some(&arguments)).is_ok();
            assert_eq!(agrees, *expected, "{name} {values:?} {arguments}");
        }
        assert!(check(&mirrors, &HeaderMap::new(), None).is_ok());
    }
    #[test]
    fn a_wrong_schema_is_told_with_its_place() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "two words"}}});
        let error = compile(schema.as_object().unwrap()).unwrap_err();
        assert!(error.starts_with("inputSchema: the x-mcp-header of a "), "{error}");
    }
}
