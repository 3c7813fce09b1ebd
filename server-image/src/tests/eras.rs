//! The eras at a backend: what passes, what is refused before the backend is asked, and in whose words.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::backend::Backend;
use super::eventually;
use super::front::{Front, collect, http_config, text};
use crate::body::{Body, full};
use crate::handshake;
use crate::refusal::json as json_answer;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

type Headers<'a> = &'a [(&'a str, &'a str)];

fn with(mut request: Request<Body>, headers: Headers) -> Request<Body> {
    for (name, value) in headers {
        request.headers_mut().append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
    }
    request
}

async fn pleased() -> Backend {
    Backend::start(|_| async {
        let mut response = json_answer(StatusCode::OK, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into());
        response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s-1"));
        response
    })
    .await
}

#[tokio::test]
async fn a_modern_request_passes_as_it_came_and_without_a_session() {
    let backend = pleased().await;
    let front = Front::new(&http_config(backend.port));
    let body = format!(
        r#" {{"id":1, "method":"t\u006fols/call","params":{{"name":"S\u00e3o","arguments":{{"n":12345678901234567890123}},{META},"x":1e2}},"y":[]}} "#
    );
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?U8Ojbw==?="),
        ("mcp-param-region", "=?base64?not what the body says"),
        ("mcp-param-Other", "é"),
        ("mcp-session-id", "not visible \t ASCII"),
        ("last-event-id", "7"),
    ];
    let (status, answered, _) = collect(front.ask(with(front.post(&body), &headers)).await).await;
    assert_eq!(status, 200);
    assert!(!answered.contains_key("mcp-session-id"), "a modern answer has no session");
    let seen = backend.last();
    assert_eq!(seen.body(), body.as_bytes());
    for (name, value) in &headers[..5] {
        assert_eq!(seen.headers()[*name], HeaderValue::try_from(*value).unwrap(), "{name}");
    }
    for gone in ["mcp-session-id", "last-event-id"] {
        assert!(!seen.headers().contains_key(gone), "{gone}");
    }
}

#[tokio::test]
async fn a_legacy_request_passes_with_whatever_headers_it_has() {
    let backend = pleased().await;
    let front = Front::new(&http_config(backend.port));
    let cases: &[Headers] = &[
        &[],
        &[("mcp-protocol-version", "2025-11-25"), ("mcp-session-id", "s-1")],
        &[("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/call"), ("mcp-name", "t")],
        &[("mcp-method", "something/else"), ("mcp-name", "other")],
        &[("mcp-protocol-version", "1999-01-01"), ("mcp-session-id", "!~")],
    ];
    for (number, headers) in (1..).zip(cases) {
        let body =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}"#;
        let (status, answered, _) = collect(front.ask(with(front.post(body), headers)).await).await;
        assert_eq!((status.as_u16(), &answered["mcp-session-id"]), (200, &HeaderValue::from_static("s-1")));
        let seen = backend.last();
        for (name, value) in *headers {
            assert_eq!(seen.headers()[*name], *value, "{name}");
        }
        assert_eq!((backend.calls(), seen.body().as_ref()), (number, body.as_bytes()));
    }
}

#[tokio::test]
async fn what_is_refused_is_told_with_its_id_and_never_reaches_the_backend() {
    let backend = pleased().await;
    let front = Front::new(&http_config(backend.port));
    let call = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{{"name":"a",{META}}}}}"#);
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let notification = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{{{META}}}}}"#);
    let cases: Vec<(Headers, &str)> = vec![
        (&[], &call),
        (&[VERSION], &call),
        (&[VERSION, ("mcp-method", "tools/call")], &call),
        (&[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "b")], &call),
        (&[VERSION, ("mcp-method", "tools/list"), ("mcp-name", "a")], &call),
        (&[("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/call"), ("mcp-name", "a")], &call),
        (&[VERSION, ("mcp-method", "tools/list")], list),
        (&[VERSION, ("mcp-method", "x")], &notification),
        (&[VERSION, VERSION, ("mcp-method", "tools/call"), ("mcp-name", "a")], &call),
        (&[VERSION, ("mcp-method", "tools/call"), ("mcp-method", "x"), ("mcp-name", "a")], &call),
        (&[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "a"), ("mcp-name", "b")], &call),
        (&[("mcp-method", "a"), ("mcp-method", "a")], list),
        (&[("mcp-session-id", "a"), ("mcp-session-id", "a")], list),
        (&[("mcp-session-id", "a"), ("mcp-session-id", "b")], list),
        (&[("mcp-session-id", "a, b")], list),
        (&[("mcp-session-id", "")], list),
        (&[("mcp-session-id", "é")], list),
    ];
    let mut table = String::new();
    for (headers, body) in cases {
        let (status, answer) = text(front.ask(with(front.post(body), headers)).await).await;
        writeln!(table, "{body:.60} {headers:?}\n  {status} {answer}").unwrap();
        assert_eq!((status, backend.calls()), (400, 0), "{headers:?} {body}: {answer}");
    }
    insta::assert_snapshot!(table);
    for (method, headers) in [
        ("GET", [("mcp-session-id", "a"), ("mcp-session-id", "b")]),
        ("DELETE", [("mcp-session-id", "a"), ("mcp-session-id", "a")]),
        ("GET", [("mcp-session-id", "a"), ("mcp-session-id", "é")]),
        ("GET", [("last-event-id", "1"), ("last-event-id", "2")]),
    ] {
        let (status, answer) = text(front.ask(with(front.bare(method, "/weather/mcp"), &headers)).await).await;
        assert_eq!((status, backend.calls()), (400, 0), "{method} {headers:?}: {answer}");
    }
    for method in ["GET", "DELETE"] {
        let headers = [("mcp-session-id", "a b")];
        let (status, answer) = text(front.ask(with(front.bare(method, "/weather/mcp"), &headers)).await).await;
        assert_eq!((status, backend.calls()), (400, 0), "{method}: {answer}");
    }
}

#[tokio::test]
async fn a_batch_is_judged_message_by_message() {
    let backend = pleased().await;
    let front = Front::new(&http_config(backend.port));
    let ping = |id: usize| format!(r#"{{"id":{id},"method":"ping"}}"#);
    let of = |messages: &[&str]| format!("[{}]", messages.join(","));
    let many = |number: usize| format!("[{}]", (0..number).map(ping).collect::<Vec<_>>().join(","));
    let old: Headers = &[("mcp-protocol-version", "2025-03-26")];
    let one = ping(1);
    let modern = format!(r#"{{"id":"m","method":"tools/list","params":{{{META}}}}}"#);
    let modern_notification = format!(r#"{{"method":"n","params":{{{META}}}}}"#);
    let named = |params: &str| format!(r#"{{"id":"c","method":"tools/call","params":{params}}}"#);
    let passing = [
        (&[][..], of(&[&one])),
        (old, of(&[&one, r#"{"method":"n"}"#, r#"{"id":9,"result":{}}"#])),
        (old, many(100)),
        (old, format!(" {} ", of(&[&named(r#"{"name":"t","arguments":{"n":12345678901234567890123}}"#)]))),
    ];
    for (number, (headers, body)) in (1..).zip(passing) {
        assert_eq!(text(front.ask(with(front.post(&body), headers)).await).await.0, 200, "{body:.60}");
        assert_eq!((backend.calls(), backend.last().body().as_ref()), (number, body.as_bytes()));
    }
    let passed = backend.calls();
    let refused: Vec<(Headers, String)> = vec![
        (old, "[]".into()),
        (old, many(101)),
        (&[("mcp-protocol-version", "2025-11-25")], of(&[&one])),
        (&[("mcp-protocol-version", "2024-11-05")], of(&[&one])),
        (&[("mcp-protocol-version", "2026-07-28"), ("mcp-method", "ping")], of(&[&one, &ping(2)])),
        (old, of(&[&one, r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}"#])),
        (old, of(&[r#"{"method":"initialize"}"#])),
        (old, of(&[&one, r#"{"id":2,"method":"a","method":"b"}"#, &ping(3)])),
        (old, of(&[&one, &named(r#"{"name":"t","Name":"u"}"#)])),
        (old, of(&["[]"])),
        (old, of(&["7", r#"{"method":"n"}"#])),
        (&[], of(&[&one, &modern])),
        (&[], of(&[&one, &modern_notification])),
        (&[("mcp-session-id", "a b")], of(&[&one])),
    ];
    let counted = |front: &Front, number: usize| {
        let told = front.door.metrics.text(false).unwrap().1;
        assert!(told.contains(&format!("mooring_server_messages_total {number}\n")), "{told}");
    };
    counted(&front, 1 + 3 + 100 + 1); // each element, whatever it is
    let mut table = String::new();
    for (headers, body) in refused {
        let (status, answer) = text(front.ask(with(front.post(&body), headers)).await).await;
        writeln!(table, "{body:.100} {headers:?}\n  {status} {answer}").unwrap();
        assert_eq!((status, backend.calls()), (400, passed), "{headers:?} {body:.60}: {answer}");
    }
    insta::assert_snapshot!(table);
    counted(&front, 105); // and nothing of what was refused
    // A failure of the backend is told to each that waits, too.
    let front = Front::new(&http_config(1));
    let (status, answer) = text(front.ask(with(front.post(&of(&[&one, &ping(2)])), old)).await).await;
    let answer: Vec<Value> = serde_json::from_str(&answer).unwrap();
    let ids: Vec<_> = answer.iter().map(|error| (&error["id"], &error["error"]["code"])).collect();
    assert_eq!((status, ids), (503, vec![(&json!(1), &json!(503)), (&json!(2), &json!(503))]));
}

/// Which eras a backend speaks.
#[derive(Clone, Copy)]
struct Speaks {
    legacy: bool,
    modern: bool,
    /// What it says to the era that it does not speak.
    otherwise: (u16, &'static str),
}

async fn backend(speaks: Speaks) -> Backend {
    Backend::start(move |request: Request<Bytes>| async move {
        let message: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let is_modern = request.headers().get("mcp-protocol-version").is_some_and(|version| version == "2026-07-28");
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" if speaks.legacy => json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
            "server/discover" if speaks.modern => json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}),
            _ if is_modern && speaks.modern || !is_modern && speaks.legacy => json!({}),
            _ => {
                let (status, text) = speaks.otherwise;
                let mut response = Response::new(full(text));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                return response;
            }
        };
        json_answer(StatusCode::OK, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
    })
    .await
}

const DISCOVER: &str = "server/discover";

fn modern_post(front: &Front, method: &str) -> Request<Body> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{{META}}}}}"#);
    with(front.post(&body), &[("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)])
}

/// `server/discover` and `initialize`, before the handshake and after it: status, answer, and whether it was relayed.
async fn both_eras(speaks: Speaks) -> String {
    let backend = backend(speaks).await;
    let front = Front::new(&http_config(backend.port));
    let initialize = r#"{"jsonrpc":"2.0","id":"q","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let list = r#"{"jsonrpc":"2.0","id":"q","method":"tools/list"}"#;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut table = String::new();
    for known in [false, true] {
        if known {
            front.run(handshake::keep(Arc::clone(&front.door)));
            front.ready().await;
        }
        let requests = [
            (DISCOVER, modern_post(&front, DISCOVER)),
            ("initialize", front.post(initialize)),
            ("legacy tools/list", with(front.post(list), &[("mcp-protocol-version", "2025-11-25")])),
            ("legacy notification", front.post(notification)),
            ("GET", front.bare("GET", "/weather/mcp")),
        ];
        for (name, request) in requests {
            let before = backend.calls();
            let (status, answer) = text(front.ask(request).await).await;
            let relayed = if backend.calls() > before { "relayed" } else { "refused" };
            let known = if known { "handshake done" } else { "handshake open" };
            writeln!(table, "{known}, {name}: {relayed} {status} {answer}").unwrap();
        }
    }
    table
}

#[tokio::test]
async fn a_backend_that_speaks_one_era_is_served_truthfully() {
    // As the TypeScript SDK 1.x answers whoever has no session.
    let no_session = (400, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}"#);
    let not_found = (404, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such method"}}"#);
    let cases = [
        ("legacy only", Speaks { legacy: true, modern: false, otherwise: no_session }),
        ("modern only", Speaks { legacy: false, modern: true, otherwise: not_found }),
        ("both", Speaks { legacy: true, modern: true, otherwise: not_found }),
        // Nothing is certain of a backend that was busy when it was asked.
        ("legacy, else busy", Speaks { legacy: true, modern: false, otherwise: (503, "busy") }),
        ("modern, else busy", Speaks { legacy: false, modern: true, otherwise: (429, "busy") }),
        (
            "legacy, else broken",
            Speaks { legacy: true, modern: false, otherwise: (400, r#"{"error":{"code":-32603}}"#) },
        ),
        // It knows the era, and only asks for another revision of it.
        (
            "legacy, else newer",
            Speaks { legacy: true, modern: false, otherwise: (400, r#"{"error":{"code":-32022}}"#) },
        ),
    ];
    let mut table = String::new();
    for (name, speaks) in cases {
        writeln!(table, "{name}\n{}", Box::pin(both_eras(speaks)).await).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn nothing_is_certain_of_a_backend_that_is_away() {
    let speaks = Speaks { legacy: true, modern: false, otherwise: (404, "") };
    let backend = backend(speaks).await;
    let front = Front::new(&http_config(backend.port));
    front.run(handshake::keep(Arc::clone(&front.door)));
    front.ready().await;
    assert_eq!(text(front.ask(modern_post(&front, "ping")).await).await.0, 400);
    drop(backend);
    eventually("the backend is missed", || !front.door.is_ready()).await;
    assert_eq!(text(front.ask(modern_post(&front, "ping")).await).await.0, 503);
}
