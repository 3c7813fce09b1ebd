use serde_json::{Value, json};

use super::*;
use crate::peek::{Reading, peek};

/// Header name and value; the value is bytes, because a header may have any.
type Headers<'a> = &'a [(&'static str, &'a [u8])];

fn judged(headers: Headers, message: &Value) -> String {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    let text = message.to_string();
    let Ok(Reading::One(message)) = peek(text.as_bytes()) else { panic!("{text}") };
    match tell(&map, &message) {
        Ok(era) => format!("{era:?}"),
        Err(refusal) => refusal.to_string(),
    }
}

fn request(method: &str, mut params: Value, revision: &Value) -> Value {
    if !revision.is_null() {
        params["_meta"] = json!({META_VERSION: revision});
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn notification(revision: &Value) -> Value {
    let mut message = request("notifications/cancelled", json!({}), revision);
    message.as_object_mut().unwrap().remove("id");
    message
}

const V: &str = "mcp-protocol-version";
const M: &str = "mcp-method";
const N: &str = "mcp-name";

#[test]
fn eras_are_told_apart() {
    let (new, old, next, none) = (json!(MODERN), json!("2025-11-25"), json!("2027-03-01"), Value::Null);
    let list = |revision: &Value| request("tools/list", json!({}), revision);
    let cases: &[(Headers, Value)] = &[
        (&[], list(&none)),
        (&[(V, b"2025-11-25")], list(&none)),
        (&[(V, b"2024-11-05")], list(&none)),
        (&[(V, b"1999-01-01")], list(&none)),
        (&[(V, b"DRAFT-2026")], list(&none)),
        (&[(V, b"\xff")], list(&none)),
        (&[(V, b"2025-11-25"), (M, b"tools/call"), (N, b"other")], list(&none)),
        (&[(V, b"2025-11-25")], list(&old)),
        (&[], list(&old)),
        (&[(V, b"2026-07-28"), (M, b"tools/list")], list(&new)),
        (&[(V, b" \t2026-07-28 "), (M, b" tools/list\t")], list(&new)),
        (&[(V, b"2027-03-01"), (M, b"tools/list")], list(&next)),
        (&[(V, b"DRAFT-2026"), (M, b"tools/list")], list(&json!("DRAFT-2026"))),
        (&[(V, b"2026-07-28"), (M, b"tools/list")], list(&none)),
        (&[(V, b"2026-07-28"), (M, b"tools/list")], list(&json!(7))),
        (&[(V, b"2026-07-28"), (M, b"tools/list")], list(&next)),
        (&[(V, b"2026-07-28"), (M, b"tools/list")], list(&old)),
        (&[(V, b"2025-11-25"), (M, b"tools/list")], list(&new)),
        (&[(V, b"\xff"), (M, b"tools/list")], list(&new)),
        (&[(M, b"tools/list")], list(&new)),
        (&[(V, b"2026-07-28")], list(&new)),
        (&[(V, b"2026-07-28"), (M, b"Tools/list")], list(&new)),
        (&[(V, b"2026-07-28"), (M, b"tools/call")], list(&new)),
        (&[(V, b"2026-07-28"), (M, b"=?base64?dG9vbHMvbGlzdA==?=")], list(&new)),
        (&[(V, b"2026-07-28"), (M, b"\xff")], list(&new)),
        (&[(V, b"2026-07-28"), (M, b"tools/list"), (N, b"whatever")], list(&new)),
        (&[(V, b"2026-07-28")], request("initialize", json!({"protocolVersion": "2026-07-28"}), &none)),
        (&[(V, b"2026-07-28"), (M, b"initialize")], request("initialize", json!({}), &new)),
        (&[], notification(&none)),
        (&[(V, b"2026-07-28")], notification(&none)),
        (&[(V, b"2026-07-28")], notification(&new)),
        (&[], notification(&new)),
        (&[(V, b"2026-07-28")], notification(&next)),
        (&[(V, b"2026-07-28"), (M, b"notifications/cancelled")], notification(&none)),
        (&[(V, b"2026-07-28"), (M, b"tools/call")], notification(&none)),
        (&[(V, b"2025-11-25"), (M, b"tools/call")], notification(&none)),
        (&[(V, b"2025-11-25")], json!({"id": 1, "result": {}})),
        (&[(V, b"2026-07-28")], json!({"id": 1, "result": {}})),
    ];
    insta::assert_snapshot!(table(cases));
}

fn table(cases: &[(Headers, Value)]) -> String {
    let lines = cases.iter().map(|(headers, message)| {
        let shown: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value).escape_debug()))
            .collect();
        format!("{message} [{}]\n  {}", shown.join("; "), judged(headers, message))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_name_in_the_header_is_the_name_in_the_body() {
    let mut cases = Vec::new();
    let mut case = |name: Option<&'static [u8]>, method: &'static str, params: Value| {
        let mut headers: Vec<(&'static str, &'static [u8])> = vec![(V, MODERN.as_bytes()), (M, method.as_bytes())];
        headers.extend(name.map(|name| (N, name)));
        cases.push((headers, request(method, params, &json!(MODERN))));
    };
    let tool = |name: Value| json!({"name": name, "uri": "u", "taskId": "i"});
    let headers: [&[u8]; 12] = [
        b"forecast",
        b"  forecast\t",
        b"=?base64?Zm9yZWNhc3Q=?=",
        b"Forecast",
        b"other",
        b"",
        b"\xff",
        b"=?base64?Zm9yZWNhc3Q?=",
        b"=?base64?b3RoZXI=?=",
        b"=?BASE64?Zm9yZWNhc3Q=?=",
        b"=?base64?Zm9yZWNhc3Q=",
        b"u",
    ];
    for header in headers {
        case(Some(header), "tools/call", tool(json!("forecast")));
    }
    case(None, "tools/call", tool(json!("forecast")));
    case(Some(b"=?base64?U8OjbyBQYXVsbw==?="), "tools/call", tool(json!("São Paulo")));
    case(Some("São Paulo".as_bytes()), "tools/call", tool(json!("São Paulo")));
    case(Some(b"=?base64?/w==?="), "tools/call", tool(json!("\u{fffd}")));
    case(None, "tools/call", tool(json!(null)));
    case(None, "tools/call", tool(json!(7)));
    case(Some(b"7"), "tools/call", tool(json!(7)));
    case(Some(b"forecast"), "tools/call", tool(json!(null)));
    case(Some(b"p"), "prompts/get", json!({"name": "p"}));
    case(None, "prompts/get", json!({"name": "p"}));
    case(Some(b"file:///a"), "resources/read", json!({"uri": "file:///a"}));
    case(Some(b"file:///b"), "resources/read", json!({"uri": "file:///a", "name": "file:///b"}));
    case(Some(b"t-1"), "tasks/get", json!({"taskId": "t-1"}));
    case(Some(b"t-1"), "tasks/update", json!({"taskId": "t-1"}));
    case(Some(b"t-2"), "tasks/cancel", json!({"taskId": "t-1"}));
    case(None, "tasks/cancel", json!({"taskId": "t-1"}));
    case(None, "tasks/list", json!({"taskId": "t-1"}));
    let cases: Vec<(Headers, Value)> =
        cases.iter().map(|(headers, message)| (headers.as_slice(), message.clone())).collect();
    insta::assert_snapshot!(table(&cases));
}

#[test]
fn revisions_are_dates() {
    let eras = ["2026-07-28", "2026-07-29", "2099-01-01", "2025-11-25", "2026-7-28", "9", "latest", "", "2026-07-28x"];
    let modern: Vec<_> = eras.into_iter().filter(|text| Era::of_revision(text) == Era::Modern).collect();
    assert_eq!(modern, ["2026-07-28", "2026-07-29", "2099-01-01"]);
}
