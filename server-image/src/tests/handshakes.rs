//! The front door's own handshake, with servers of every kind.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use mooring_contract::door_status::Handshake;
use serde_json::{Value, json};

use super::backend::Backend;
use super::eventually;
use super::front::{Front, http_config};
use crate::body::{Body, empty, full};
use crate::commit::{event, event_stream};
use crate::handshake;
use crate::refusal::json as json_answer;

fn result(request: &Request<Bytes>, result: &Value) -> String {
    let message: Value = serde_json::from_slice(request.body()).unwrap();
    json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string()
}

fn method(request: &Request<Bytes>) -> String {
    let message: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    message["method"].as_str().unwrap_or_default().to_owned()
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

/// As the TypeScript SDK answers: sessions, event streams, pages.
fn legacy(request: &Request<Bytes>) -> Response<Body> {
    if request.method() == http::Method::DELETE {
        return status(if request.headers().contains_key("mcp-session-id") {
            StatusCode::OK
        } else {
            StatusCode::BAD_REQUEST
        });
    }
    match method(request).as_str() {
        "initialize" => {
            let info = json!({"name": "legacy", "version": "1.2"});
            let answer = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info});
            let text = format!("id: 0\ndata: \n\n{}", String::from_utf8_lossy(&event(&result(request, &answer))));
            let mut response = event_stream(full(text));
            response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s-1"));
            response
        }
        _ if request.headers().get("mcp-session-id").is_none() => status(StatusCode::BAD_REQUEST),
        "notifications/initialized" => status(StatusCode::ACCEPTED),
        "tools/list" => {
            let message: Value = serde_json::from_slice(request.body()).unwrap();
            let page = match message["params"]["cursor"].as_str() {
                None => json!({"tools": [{}, {}], "nextCursor": "2"}),
                Some(_) => json!({"tools": [{}]}),
            };
            event_stream(full(event(&result(request, &page))))
        }
        _ => status(StatusCode::BAD_REQUEST),
    }
}

fn modern(request: &Request<Bytes>) -> Response<Body> {
    let message: Value = serde_json::from_slice(request.body()).unwrap();
    let told = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        && request.headers()["mcp-protocol-version"] == "2026-07-28";
    let info = json!({"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "3"}});
    match (told, method(request).as_str()) {
        (true, "server/discover") => {
            let answer = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": info});
            json_answer(StatusCode::OK, result(request, &answer))
        }
        (true, "tools/list") => json_answer(StatusCode::OK, result(request, &json!({"tools": [{}]}))),
        _ => status(StatusCode::NOT_FOUND),
    }
}

async fn shake<F: Fn(&Request<Bytes>) -> Response<Body> + Send + Sync + 'static>(answer: F) -> (Front, Backend) {
    let answer = Arc::new(answer);
    let backend = Backend::start(move |request| {
        let answer = Arc::clone(&answer);
        async move { answer(&request) }
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    front.run(handshake::keep(Arc::clone(&front.door)));
    (front, backend)
}

fn told(name: &str, version: &str, versions: &[&str], tools: u32) -> Handshake {
    let protocol_versions = versions.iter().map(|version| (*version).to_owned()).collect();
    Handshake { name: name.into(), version: version.into(), protocol_versions, tool_count: Some(tools) }
}

#[tokio::test]
async fn both_eras_are_understood() {
    let (front, backend) = shake(legacy).await;
    front.ready().await;
    assert_eq!(front.door.status().handshake.unwrap(), told("legacy", "1.2", &["2025-11-25"], 3));
    let ended = |request: &Request<Bytes>| {
        request.method() == http::Method::DELETE && request.headers()["mcp-session-id"] == "s-1"
    };
    assert_eq!(backend.seen().iter().filter(|request| ended(request)).count(), 1);

    let (front, _backend) = shake(modern).await;
    front.ready().await;
    assert_eq!(front.door.status().handshake.unwrap(), told("modern", "3", &["2026-07-28"], 1));

    let both = |request: &Request<Bytes>| {
        if request.headers().get("mcp-protocol-version").is_some_and(|version| version == "2026-07-28") {
            return modern(request);
        }
        legacy(request)
    };
    let (front, _backend) = shake(both).await;
    front.ready().await;
    assert_eq!(front.door.status().handshake.unwrap(), told("legacy", "1.2", &["2026-07-28", "2025-11-25"], 3));
}

type Answer = Box<dyn Fn(&Request<Bytes>) -> Response<Body> + Send + Sync>;

#[tokio::test]
async fn what_is_no_mcp_server_is_told_in_words() {
    let page = |_: &Request<Bytes>| {
        let mut response = Response::new(full("<html>"));
        response.headers_mut().insert("content-type", HeaderValue::from_static("text/html; charset=utf-8"));
        response
    };
    let error = |request: &Request<Bytes>| {
        let message: Value = serde_json::from_slice(request.body()).unwrap();
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "what?"}});
        json_answer(StatusCode::OK, answer.to_string())
    };
    let cases: Vec<(Answer, &str)> = vec![
        (Box::new(page), "answered 200 text/html to initialize: this is not an MCP server"),
        (Box::new(|_| status(StatusCode::NOT_FOUND)), "answered 404 to initialize: is http.path right?"),
        (
            Box::new(|_| status(StatusCode::UNAUTHORIZED)),
            "answered 401 to initialize: it asks for a credential of its own",
        ),
        (Box::new(error), "answered initialize with HTTP 200 and error -32601: what?"),
        (
            Box::new(|_| json_answer(StatusCode::OK, "{}".into())),
            "answered 200 application/json to initialize: this is not an MCP server",
        ),
    ];
    for (answer, expected) in cases {
        let (front, _backend) = shake(answer).await;
        eventually(expected, || front.door.status().handshake_error.is_some()).await;
        let status = front.door.status();
        assert_eq!(status.handshake_error.as_deref(), Some(expected));
        assert!(!status.ready && status.handshake.is_none());
    }
}

#[tokio::test]
async fn readiness_follows_the_backend() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let front = Front::new(&http_config(port));
    front.run(handshake::keep(Arc::clone(&front.door)));
    let error = || front.door.status().handshake_error.unwrap_or_default();
    eventually("nothing listens", || error().contains("nothing listens")).await;
    assert!(!front.door.is_ready());
    let backend = Backend::start_at(port, |request| async move { legacy(&request) }).await;
    front.ready().await;
    assert_eq!(error(), "");
    drop(backend);
    eventually("the backend is missed", || !front.door.is_ready()).await;
    assert!(front.door.status().handshake.is_some(), "what it was is still known");
    let _backend = Backend::start_at(port, |request| async move { legacy(&request) }).await;
    front.ready().await;
}

#[tokio::test]
async fn a_new_target_is_shaken_hands_with_and_other_changes_leave_it_alone() {
    let (front, first) = shake(legacy).await;
    front.watch();
    front.ready().await;
    let calls = first.calls();
    let mut config = http_config(first.port);
    config["limits"]["bodyBytes"] = 1024.into();
    let revision = front.door.status().config_revision;
    front.config.swap(&[("config.json", &config.to_string())]);
    eventually("the change", || front.door.status().config_revision != revision).await;
    let second = Backend::start(|request| async move { modern(&request) }).await;
    front.config.swap(&[("config.json", &http_config(second.port).to_string())]);
    let name = || front.door.status().handshake.map(|handshake| handshake.name);
    eventually("the other server", || name().as_deref() == Some("modern")).await;
    assert_eq!(first.calls(), calls);
}
