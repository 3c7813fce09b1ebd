//! Fields of the source `tools`.

use serde_json::{Value, json};

use super::case::Pods::{Roll, Stay};
use super::case::{Case, DOOR, Seen, case, is, leak};
use crate::world::patched;

/// Over a base with source `tools`.
pub(super) fn cases() -> Vec<Case> {
    let tool = |patch: Value| json!({"tools": [patched(&json!({"name": "a", "http": {"url": "http://a/"}}), &patch)]});
    let first = |pointer: &str| leak("/source/tools/0", pointer);
    let schema = json!({"type": "object", "properties": {"x": {"type": "string", "x-free": [1, {"y": null}]}}});
    let required = patched(&schema, &json!({"required": ["x"]}));
    vec![
        case("tools.name", tool(json!({"name": "b"})), Seen::Config(first("/name"), json!("b")), Stay),
        case("tools.title", tool(json!({"title": "T"})), Seen::Config(first("/title"), json!("T")), Stay),
        case(
            "tools.description",
            tool(json!({"description": "D"})),
            Seen::Config(first("/description"), json!("D")),
            Stay,
        ),
        case(
            "tools.inputSchema",
            tool(json!({"inputSchema": schema})),
            Seen::Config(first("/inputSchema"), schema.clone()),
            Stay,
        ),
        case(
            "tools.http.method",
            tool(json!({"http": {"method": "PUT"}})),
            Seen::Config(first("/http/method"), json!("PUT")),
            Stay,
        ),
        case(
            "tools.http.url",
            tool(json!({"inputSchema": required, "http": {"url": "https://b/{x}"}})),
            Seen::Config(first("/http/url"), json!("https://b/{x}")),
            Stay,
        ),
        case(
            "tools.http.timeout",
            tool(json!({"http": {"timeout": "5s"}})),
            Seen::Config(first("/http/timeoutMs"), json!(5000)),
            Stay,
        ),
        case(
            "tools.http.headers",
            tool(json!({"http": {"headers": [{"name": "X-A", "value": "b"}]}})),
            Seen::Config(first("/http/headers/0"), json!({"name": "X-A", "value": "b"})),
            Stay,
        ),
        case(
            "tools.overrides.stdio",
            tool(json!({"overrides": {"stdio": {"description": "D", "inputSchema": schema}}})),
            Seen::Config(first("/overrides/stdio"), json!({"description": "D", "inputSchema": schema})),
            Stay,
        ),
        case(
            "tools.overrides.http",
            tool(json!({"overrides": {"http": {"http": {"url": "http://b/"}}}})),
            Seen::Config(first("/overrides/http/http/url"), json!("http://b/")),
            Stay,
        ),
        case(
            "tools.overrides.http with a secret",
            tool(
                json!({"overrides": {"http": {"http": {"url": "http://b/", "headers": [{"name": "X-A", "secret": {"name": "shared", "key": "k"}}]}}}}),
            ),
            is(DOOR, "/env/0/valueFrom/secretKeyRef", json!({"name": "shared", "key": "k"})),
            Roll,
        ),
        case(
            "tools.http.headers.secret",
            tool(json!({"http": {"headers": [{"name": "X-A", "secret": {"name": "shared", "key": "k"}}]}})),
            is(DOOR, "/env/0/valueFrom/secretKeyRef", json!({"name": "shared", "key": "k"})),
            Roll,
        ),
    ]
}
