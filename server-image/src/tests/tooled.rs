//! Declared tools through the whole pipeline, with an API of our own behind them.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::backend::Backend;
use super::eventually;
use super::front::{Front, collect, http_config, text};
use crate::body::full;
use crate::refusal::json as json_answer;
use crate::tools::call::ANSWER_MAXIMUM;

/// An API that answers by path and tells what it was asked.
async fn api() -> Backend {
    Backend::start(|request| async move {
        let path = request.uri().path().to_owned();
        let plain = |status: u16, text: &str| {
            let mut response = Response::new(full(text.to_owned()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        };
        let to = |location: &str| {
            let mut response = plain(302, "");
            response.headers_mut().insert("location", HeaderValue::try_from(location).unwrap());
            response
        };
        match path.as_str() {
            "/text" => plain(200, "sunny\n"),
            "/list" => json_answer(StatusCode::OK, "[1, 2]".into()),
            "/big-number" => json_answer(StatusCode::OK, "{\n \"n\": 12345678901234567890123\n}".into()),
            "/missing" => plain(404, "no such city"),
            "/broken" => plain(500, ""),
            "/nothing" => plain(204, ""),
            "/binary" => Response::new(full(vec![0xff_u8, 0xfe])),
            "/large" => plain(200, &"x".repeat(ANSWER_MAXIMUM + 1)),
            "/largest" => plain(200, &"x".repeat(ANSWER_MAXIMUM)),
            "/moved" => to("/text"),
            "/away" => to("http://example.com/"),
            "/circle" => to("/circle"),
            "/slow" => std::future::pending().await,
            _ => {
                let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
                let body = String::from_utf8(request.body().to_vec()).unwrap();
                let told = json!({
                    "method": request.method().as_str(), "target": request.uri().to_string(), "body": body,
                    "token": header("x-token"), "type": header("content-type"), "authorization": header("authorization"),
                });
                json_answer(StatusCode::OK, told.to_string())
            }
        }
    })
    .await
}

fn tool(name: &str, method: &str, url: &str, port: u16) -> Value {
    json!({
        "name": name,
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        "http": {"method": method, "url": format!("http://127.0.0.1:{port}{url}"), "timeoutMs": 30_000},
    })
}

fn front(tools: &[Value]) -> Front {
    let mut config = http_config(1);
    config["source"] = json!({"tools": tools});
    let front = Front::new(&config);
    assert_eq!(front.door.status().config_error, None);
    front
}

fn forecast(port: u16) -> Value {
    let mut tool = tool("forecast", "GET", "/v1/forecast?city={city}&days={days}", port);
    tool["title"] = "Weather forecast".into();
    tool["description"] = "Forecast for a city".into();
    tool["inputSchema"]["required"] = json!(["city"]);
    tool
}

fn call(name: &str, arguments: &Value) -> String {
    let params = json!({"name": name, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

/// What legacy clients are answered, exactly.
#[tokio::test]
async fn the_answers_to_legacy_clients() {
    let front = front(&[forecast(1)]);
    let request = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    let initialize = |version: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}"}}}}"#)
    };
    let with_id = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let both = "application/json, text/event-stream";
    // Accept, version header, body.
    let posts: Vec<(&str, &str, String)> = vec![
        (both, "", initialize("2025-11-25")),
        (both, "", initialize("2025-06-18")),
        (both, "", initialize("2025-03-26")),
        (both, "", initialize("2024-11-05")),
        (both, "", initialize("2026-07-28")),
        (both, "", initialize("1999-01-01")),
        (both, "1999-01-01", initialize("2025-11-25")),
        (both, "", request("initialize")),
        (both, "2025-11-25", request("ping")),
        (both, "1999-01-01", request("ping")),
        ("application/json", "", request("ping")),
        ("text/event-stream", "", request("ping")),
        ("*/*", "", request("ping")),
        ("", "", request("ping")),
        ("text/html", "", request("ping")),
        (both, "", request("tools/list")),
        (both, "", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}"#.into()),
        (both, "", request("resources/list")),
        (both, "", request("server/discover")),
        (both, "", request("tools/call")),
        (both, "", r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#.into()),
        (
            both,
            "",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"forecast","arguments":[]}}"#.into(),
        ),
        (both, "", call("nothing", &json!({}))),
        (both, "", call("forecast", &json!({}))),
        (both, "", call("forecast", &json!({"city": 7}))),
        (both, "", call("forecast", &json!({"city": "Oslo"}))),
        (both, "", with_id("\"a\\u0062\"")),
        (both, "", with_id("1.0")),
        (both, "", with_id("12345678901234567890123")),
        (both, "", with_id("-1e2")),
        (both, "", with_id("null")),
        (both, "", with_id("true")),
        (both, "", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into()),
        (both, "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into()),
        (both, "1999-01-01", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into()),
        (both, "", "[]".into()),
        (both, "", format!("[{},{}]", request("ping"), with_id("\"b\""))),
        (both, "2025-03-26", format!("[{},{},{}]", request("x"), call("forecast", &json!({})), request("tools/call"))),
        ("text/event-stream", "2025-03-26", format!("[{}]", request("ping"))),
        ("text/html", "2025-03-26", format!("[{}]", request("ping"))),
        (
            both,
            "2025-03-26",
            r#"[{"method":"notifications/x"},{"id":1,"result":{}},{"id":null,"method":"ping"}]"#.into(),
        ),
        (both, "2025-03-26", format!("[{},{}]", request("ping"), initialize("2025-03-26"))),
        (both, "2025-11-25", format!("[{}]", request("ping"))),
        (both, "", "7".into()),
        (both, "", "{".into()),
    ];
    let mut table = String::new();
    for (accept, version, body) in posts {
        let mut post = front.post(&body);
        for (name, value) in [("accept", accept), ("mcp-protocol-version", version)] {
            match value {
                "" => drop(post.headers_mut().remove(name)),
                value => drop(post.headers_mut().insert(name, HeaderValue::try_from(value).unwrap())),
            }
        }
        let (status, headers, answer) = collect(front.ask(post).await).await;
        let media_type = headers.get("content-type").map_or("", |value| value.to_str().unwrap());
        assert!(!headers.contains_key("mcp-session-id"));
        let answer = String::from_utf8_lossy(&answer).replace('\n', "⏎");
        writeln!(table, "{body}  accept: {accept}  version: {version}\n  {} {media_type} {answer}", status.as_u16())
            .unwrap();
    }
    for method in ["GET", "DELETE", "PUT"] {
        let (status, headers, answer) = collect(front.ask(front.bare(method, "/weather/mcp")).await).await;
        writeln!(table, "{method}\n  {} {:?} {}", status.as_u16(), headers["allow"], String::from_utf8_lossy(&answer))
            .unwrap();
    }
    insta::assert_snapshot!(table);
}

/// Headers, and the message.
type Case<'a> = (&'a [(&'a str, &'a str)], Value);

#[tokio::test]
async fn the_answers_to_modern_clients() {
    let api = api().await;
    let front = front(&[forecast(api.port)]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let message = |method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = meta.clone();
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    };
    let mut without_capabilities = message("tools/list", json!({}));
    without_capabilities["params"]["_meta"]
        .as_object_mut()
        .unwrap()
        .remove("io.modelcontextprotocol/clientCapabilities");
    let mut future = message("tools/list", json!({}));
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    let oslo = json!({"name": "forecast", "arguments": {"city": "Oslo"}});
    let notification = |version: &str| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": version});
        json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": meta}})
    };
    let cases: Vec<Case> = vec![
        (&[VERSION, ("mcp-method", "server/discover")], message("server/discover", json!({}))),
        (&[VERSION, ("mcp-method", "tools/list")], message("tools/list", json!({}))),
        (&[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "forecast")], message("tools/call", oslo.clone())),
        (
            &[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "=?base64?Zm9yZWNhc3Q=?=")],
            message("tools/call", oslo.clone()),
        ),
        (&[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "other")], message("tools/call", oslo.clone())),
        (&[VERSION, ("mcp-method", "tools/call")], message("tools/call", oslo)),
        (&[VERSION, ("mcp-method", "ping")], message("ping", json!({}))),
        (&[VERSION, ("mcp-method", "initialize")], message("initialize", json!({}))),
        (&[VERSION], message("tools/list", json!({}))),
        (&[VERSION, ("mcp-method", "tools/call")], message("tools/list", json!({}))),
        (&[("mcp-method", "tools/list")], message("tools/list", json!({}))),
        (&[("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/list")], message("tools/list", json!({}))),
        (&[VERSION, ("mcp-method", "tools/list")], json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})),
        (&[VERSION, ("mcp-method", "tools/list")], without_capabilities),
        (&[("mcp-protocol-version", "2099-01-01"), ("mcp-method", "tools/list")], future),
        (&[VERSION], json!({"jsonrpc": "2.0", "method": "notifications/cancelled"})),
        (&[VERSION], notification("2026-07-28")),
        (&[VERSION], notification("2099-01-01")),
        (&[("mcp-protocol-version", "2099-01-01")], notification("2099-01-01")),
        (&[VERSION], json!({"jsonrpc": "2.0", "id": 1, "result": {}})),
        (&[VERSION], json!([message("tools/list", json!({}))])),
        (&[VERSION, ("accept", "text/html"), ("mcp-method", "tools/list")], message("tools/list", json!({}))),
        (&[VERSION, ("accept", "text/event-stream"), ("mcp-method", "tools/list")], message("tools/list", json!({}))),
        (&[VERSION, ("accept", "text/event-stream"), ("mcp-method", "ping")], message("ping", json!({}))),
        (&[VERSION, ("mcp-method", "tools/list")], message("tools/list", json!({"cursor": "x"}))),
        (
            &[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "nothing")],
            message("tools/call", json!({"name": "nothing"})),
        ),
        (&[VERSION, ("mcp-method", "tools/call")], message("tools/call", json!({"name": 7}))),
        (
            &[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "forecast")],
            message("tools/call", json!({"name": "forecast"})),
        ),
        // Nothing here ever changes while a client listens, and no capability promises it.
        (
            &[VERSION, ("mcp-method", "subscriptions/listen")],
            message("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})),
        ),
        (
            &[VERSION, ("mcp-method", "resources/read"), ("mcp-name", "u")],
            message("resources/read", json!({"uri": "u"})),
        ),
    ];
    let mut table = String::new();
    for (headers, message) in cases {
        let mut post = front.post(&message.to_string());
        for (name, value) in headers {
            post.headers_mut().insert(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        let (status, answered, answer) = collect(front.ask(post).await).await;
        assert!(!answered.contains_key("mcp-session-id"));
        let method = message["method"].as_str().unwrap_or("no single method");
        let answer = String::from_utf8_lossy(&answer).replace('\n', "⏎");
        writeln!(table, "{method} {headers:?}\n  {} {answer}", status.as_u16()).unwrap();
    }
    for method in ["GET", "DELETE"] {
        let mut request = front.bare(method, "/weather/mcp");
        request.headers_mut().insert(VERSION.0, HeaderValue::from_static(VERSION.1));
        let (status, headers, _) = collect(front.ask(request).await).await;
        writeln!(table, "{method}\n  {} {:?}", status.as_u16(), headers["allow"]).unwrap();
    }
    insta::assert_snapshot!(table.replace(&api.port.to_string(), "PORT"));
    assert_eq!(api.calls(), 2, "what is refused calls no API");
}

#[tokio::test]
async fn what_an_api_answers_is_told() {
    let api = api().await;
    let port = api.port;
    let mut header = tool("header", "GET", "/echo", port);
    header["http"]["headers"] = json!([{"name": "X-Token", "value": "t-1"}]);
    let mut unset = tool("unset", "GET", "/echo", port);
    unset["http"]["headers"] = json!([{"name": "X-Token", "env": "MOORING_TEST_NOT_SET"}]);
    let mut set = tool("set", "GET", "/echo", port);
    set["http"]["headers"] = json!([{"name": "X-Token", "env": "API_TOKEN"}]);
    let paths = [
        "text",
        "list",
        "big-number",
        "missing",
        "broken",
        "nothing",
        "binary",
        "large",
        "moved",
        "away",
        "circle",
        "slow",
    ];
    let mut tools: Vec<_> = paths.iter().map(|path| tool(path, "GET", &format!("/{path}"), port)).collect();
    tools.last_mut().unwrap()["http"]["timeoutMs"] = 300.into();
    tools.extend([header, unset, set, forecast(port)]);
    let of_a_city = |name: &str, method: &str, url: &str| {
        let mut tool = tool(name, method, url, port);
        tool["inputSchema"]["required"] = json!(["city"]);
        tool
    };
    tools.push(of_a_city("get", "GET", "/users/{city}?days={days}"));
    tools.push(of_a_city("delete", "DELETE", "/users/{city}"));
    tools.push(of_a_city("post", "POST", "/users/{city}?days={days}"));
    tools.push(tool("put", "PUT", "/users", port));
    tools.push(tool("unreachable", "GET", "/", 1));
    let front = front(&tools);
    let mut cases: Vec<(String, Value)> = paths.iter().map(|path| ((*path).to_owned(), json!({}))).collect();
    for (name, arguments) in [
        ("header", json!({})),
        ("set", json!({})),
        ("unset", json!({})),
        ("forecast", json!({"city": "São Paulo&x=1"})),
        ("get", json!({"city": "a/b", "days": 2, "other": 1})),
        ("get", json!({"city": "..", "days": 2})),
        ("get", json!({"days": 2})),
        ("delete", json!({"city": "x"})),
        ("post", json!({"city": "x", "days": 1, "other": {"a": [1]}})),
        ("put", json!({"city": "x"})),
        ("unreachable", json!({})),
    ] {
        cases.push((name.to_owned(), arguments));
    }
    let mut table = String::new();
    for (name, arguments) in cases {
        let (status, answer) = text(front.ask(front.post(&call(&name, &arguments))).await).await;
        writeln!(table, "{name} {arguments}\n  {status} {answer:.500}").unwrap();
    }
    insta::assert_snapshot!(table.replace(&port.to_string(), "PORT"));
    let asked = api.calls();
    let raw = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"put","arguments":{"n":12345678901234567890123,"x":1e2}}}"#;
    drop(front.ask(front.post(raw)).await);
    assert_eq!(api.calls(), asked + 1);
    assert_eq!(api.last().body(), r#"{"n":12345678901234567890123,"x":1e2}"#);
}

#[tokio::test]
async fn the_largest_answer_passes() {
    let api = api().await;
    let front = front(&[tool("largest", "GET", "/largest", api.port)]);
    let (status, answer) = text(front.ask(front.post(&call("largest", &json!({})))).await).await;
    assert_eq!(status, 200);
    assert!(answer.len() > ANSWER_MAXIMUM && answer.contains("\"isError\":false"));
}

/// A wrong declaration would be served to somebody as something else than was meant: it is refused, also where the operator
/// wrote it.
#[tokio::test]
async fn a_wrong_declaration_is_told_and_never_served() {
    let names = "a tool's name is 1 to 128 letters, digits and _ . -";
    let object = "a tool's arguments are an object: set type: object";
    let port = "the port must be a number from 1 to 65535";
    let cases = [
        ("name", json!(""), "name", names),
        ("name", json!("my tool!"), "name", names),
        ("name", json!("x".repeat(129)), "name", names),
        ("title", json!("x".repeat(257)), "title", "it has at most 256 characters"),
        ("http/method", json!("get"), "http.method", "it is one of GET, POST, PUT, PATCH, DELETE, in capitals"),
        ("http/timeoutMs", json!(0), "http.timeoutMs", "0 is not from 1 to 86400000"),
        ("http/url", json!("http://{city}/"), "http.url", "the host must be written down"),
        ("http/url", json!("http://127.0.0.1:99999/x"), "http.url", port),
        ("http/url", json!("http://127.0.0.1:105437"), "http.url", port),
        ("http/url", json!("http://127.0.0.1:abc/"), "http.url", port),
        ("http/url", json!("http://127.0.0.1:/"), "http.url", port),
        ("http/url", json!("http://a/?q={ciyt}"), "http.url", "{ciyt} names no property of inputSchema"),
        ("http/url", json!("http://a/{days}"), "http.url", "{days} stands in the path, so it must be in required"),
        ("inputSchema", json!({}), "inputSchema", object),
        ("inputSchema/type", json!("array"), "inputSchema", object),
        (
            "inputSchema/properties/city/type",
            json!("text"),
            "inputSchema.properties.city.type",
            "\"text\" is not valid",
        ),
        ("inputSchema/properties/city/x-mcp-header", json!("two words"), "inputSchema", "the x-mcp-header of city"),
        (
            "http/headers",
            json!([{"name": "a b", "value": "x"}]),
            "http.headers",
            "the name of header 1 is no header name",
        ),
        ("http/headers", json!([{"name": "Host", "value": "x"}]), "http.headers", "the header Host is set by"),
        ("http/headers", json!([{"name": "a", "value": "x\ny"}]), "http.headers", "the value of the header a must"),
        (
            "http/headers",
            json!([{"name": "a", "value": "x"}, {"name": "A", "env": "B"}]),
            "http.headers",
            "the header A is there twice",
        ),
        ("overrides/stdio/http/url", json!("http://a/{x}"), "overrides.stdio.http.url", "{x} names no property"),
        ("overrides/http/inputSchema", json!({"type": "string"}), "overrides.http.inputSchema", object),
    ];
    for (place, value, field, reason) in cases {
        let mut declared = forecast(1);
        set(&mut declared, place, value);
        let mut other = forecast(1);
        other["name"] = "other".into();
        let error = refused("source", json!({"tools": [other, declared]}));
        assert!(error.starts_with(&format!("source.tools[1].{field}: {reason}")), "{error}");
    }
}

/// Sets what lies at a place, objects on the way included.
fn set(value: &mut Value, place: &str, to: Value) {
    *place.split('/').fold(value, |value, name| &mut value[name]) = to;
}

/// Why a configuration is refused with this value.
fn refused(place: &str, value: Value) -> String {
    let mut config = http_config(1);
    set(&mut config, place, value);
    Front::unchecked(&config).door.status().config_error.unwrap_or_else(|| panic!("{config} is served"))
}

#[tokio::test]
async fn a_wrong_configuration_is_told_and_never_served() {
    let path = "it begins with / and does not end with one";
    let backend_path = "it begins with / and has at most 256 characters";
    let tool = forecast(1);
    let cases = [
        ("server/name", json!(""), "server.name: write a name"),
        ("server/name", json!(" "), "server.name: write a name"),
        ("path", json!(""), &format!("path: {path}")),
        ("path", json!("weather"), &format!("path: {path}")),
        ("path", json!("/a b"), &format!("path: {path}")),
        ("path", json!("/a?b"), &format!("path: {path}")),
        ("path", json!("/a/"), &format!("path: {path}")),
        ("path", json!("/a/../b"), &format!("path: {path}")),
        ("source/http/port", json!(0), "source.http.port: the port must be a number from 1 to 65535"),
        ("source/http/path", json!("mcp"), &format!("source.http.path: {backend_path}")),
        ("source/http/path", json!("/mcp?a"), &format!("source.http.path: {backend_path}")),
        ("source", json!({"tools": []}), "source.tools: declare at least one tool"),
        ("source", json!({"tools": vec![tool.clone(); 129]}), "source.tools: a server has at most 128 tools"),
        ("source", json!({"tools": [tool, tool]}), "source.tools[1]: another tool has the same name"),
        ("security/cors", json!({"maxAgeSeconds": 86_401}), "security.cors.maxAgeSeconds: it must be at most 86400"),
        ("limits/headerCount", json!(u64::MAX), "limits.headerCount: 18446744073709551615 is not from 16 to 256"),
        ("limits/headerCount", json!(0), "limits.headerCount: 0 is not from 16 to 256"),
        ("limits/headerBytes", json!(0), "limits.headerBytes: 0 is not from 1024 to 65536"),
        ("limits/uriBytes", json!(0), "limits.uriBytes: 0 is not from 256 to 32768"),
        ("limits/callTimeoutMs", json!(0), "limits.callTimeoutMs: 0 is not from 1000 to 86400000"),
        ("limits/bodyBytesTotal", json!(1), "limits.bodyBytesTotal: 1 is not from 1024 to 68719476736"),
    ];
    for (place, value, said) in cases {
        let error = refused(place, value);
        assert!(error.starts_with(said), "{error}");
    }
    let mut config = http_config(1);
    config["source"]["http"]["transport"] = "sse".into();
    config["sessions"] = json!({"mode": "Stateless"});
    let error = Front::unchecked(&config).door.status().config_error.unwrap();
    assert!(error.starts_with("sessions.mode: Stateless does not go with transport sse"), "{error}");
}

#[tokio::test]
async fn a_modern_call_repeats_its_arguments_in_headers() {
    let api = api().await;
    let mut mirrored = forecast(api.port);
    mirrored["inputSchema"]["properties"]["city"]["x-mcp-header"] = "City".into();
    mirrored["inputSchema"]["properties"]["days"]["x-mcp-header"] = "Days".into();
    let front = front(&[mirrored]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "forecast", "arguments": {"city": "São Paulo", "days": 3}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let legacy = call("forecast", &json!({"city": "São Paulo", "days": 3}));
    let city = ("mcp-param-city", "=?base64?U8OjbyBQYXVsbw==?=");
    let name: &[(&str, &str)] = &[VERSION, ("mcp-method", "tools/call"), ("mcp-name", "forecast")];
    for (headers, body, expected) in [
        (&[city, ("mcp-param-days", "3.0")][..], &body, (200, 1)),
        (&[city], &body, (400, 1)),
        (&[city, ("mcp-param-days", "4")], &body, (400, 1)),
        (&[("mcp-param-city", "Oslo"), ("mcp-param-days", "3")], &body, (400, 1)),
        (&[("mcp-param-city", "Oslo")], &legacy, (200, 2)),
    ] {
        let mut post = front.post(body);
        for (name, value) in name.iter().filter(|_| *body != legacy).chain(headers) {
            post.headers_mut().insert(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        let (status, answer) = text(front.ask(post).await).await;
        assert_eq!((status, api.calls()), expected, "{headers:?}: {answer}");
        assert_eq!(status == 400, answer.contains("-32020"), "{answer}");
    }
}

#[tokio::test]
async fn a_legacy_call_outlives_its_client_and_a_modern_one_does_not() {
    let api = Backend::start(|_| std::future::pending()).await;
    let mut slow = tool("slow", "GET", "/", api.port);
    slow["http"]["timeoutMs"] = 60_000.into();
    let mut config = http_config(1);
    config["source"] = json!({"tools": [slow]});
    config["limits"]["callTimeoutMs"] = 2000.into();
    let front = Front::new(&config);
    let modern = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let mut message: Value = serde_json::from_str(&call("slow", &json!({}))).unwrap();
    let legacy = front.post(&message.to_string());
    message["params"]["_meta"] = modern;
    let mut modern = front.post(&message.to_string());
    for (name, value) in [VERSION, ("mcp-method", "tools/call"), ("mcp-name", "slow")] {
        modern.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    for (request, left_over) in [(modern, 0), (legacy, 1)] {
        let before = api.calls();
        {
            let mut asking = std::pin::pin!(front.ask(request));
            eventually("the API is asked", || {
                let poll = std::future::Future::poll(
                    asking.as_mut(),
                    &mut std::task::Context::from_waker(std::task::Waker::noop()),
                );
                assert!(poll.is_pending());
                api.calls() == before + 1
            })
            .await;
        }
        eventually("the client has gone", || api.open() == left_over).await;
        assert_eq!(front.door.calls.len(), left_over);
    }
    eventually("the call timeout is over", || api.open() == 0 && front.door.calls.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_kept_alive() {
    let api = Backend::start(|_| async {
        tokio::time::sleep(std::time::Duration::from_secs(40)).await;
        json_answer(StatusCode::OK, "{\n}".into())
    })
    .await;
    let mut slow = tool("slow", "GET", "/", api.port);
    slow["http"]["timeoutMs"] = 60_000.into();
    let mut config = http_config(1);
    config["source"] = json!({"tools": [slow]});
    config["limits"]["callTimeoutMs"] = 100_000.into();
    let front = Front::new(&config);
    let (status, answer) = text(front.ask(front.post(&call("slow", &json!({})))).await).await;
    assert_eq!(status, 200);
    insta::assert_snapshot!(answer);
    // A client that takes JSON alone waits.
    let mut request = front.post(&call("slow", &json!({})));
    request.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
    let (_, headers, _) = collect(front.ask(request).await).await;
    assert_eq!(headers["content-type"], "application/json");
}
