//! What ends with the client and what does not; and streams that are taken up again.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::backend::{Backend, endless};
use super::eventually;
use super::front::{Front, http_config, text};
use crate::body::{Body, full};
use crate::commit::event_stream;
use crate::refusal::json as json_answer;

#[tokio::test]
async fn when_the_client_goes_the_backend_learns_it_at_once_in_both_eras() {
    let backend = Backend::start(|request: Request<Bytes>| async move {
        if request.method() == http::Method::GET || request.uri().query() == Some("stream") {
            return endless("data: 1\n\n");
        }
        std::future::pending().await
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    let key = front.key.expose();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let message = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "t"}});
    let legacy = message("tools/call");
    let with_meta = |method: &str| {
        let mut message = message(method);
        message["params"]["_meta"] = meta.clone();
        message
    };
    let (call, listen) = (with_meta("tools/call"), with_meta("subscriptions/listen"));
    let version = "MCP-Protocol-Version: 2026-07-28\r\n";
    let called = format!("{version}Mcp-Method: tools/call\r\nMcp-Name: t\r\n");
    let listened = format!("{version}Mcp-Method: subscriptions/listen\r\n");
    let post = |query: &str, headers: &str, message: &Value| {
        let body = message.to_string();
        format!(
            "POST /weather/mcp{query} HTTP/1.1\r\nHost: mcp.example.com\r\nx-api-key: {key}\r\n\
             Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let get = format!("GET /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nx-api-key: {key}\r\n\r\n");
    let cases = [
        (post("", "", &legacy), false),
        (post("?stream", "", &legacy), true),
        (get, true),
        (post("", &called, &call), false),
        (post("?stream", &called, &call), true),
        (post("?stream", &listened, &listen), true),
    ];
    for (number, (request, answers)) in (1..).zip(cases) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        eventually("the backend is asked", || backend.calls() == number && backend.open() == 1).await;
        if answers {
            let mut piece = [0; 1024];
            assert!(stream.read(&mut piece).await.unwrap() > 0);
        }
        drop(stream);
        eventually("the backend's exchange is over", || backend.open() == 0).await;
    }
}

#[tokio::test]
async fn each_connection_is_watched_for_the_loss_of_its_client() {
    let front = Front::new(&http_config(1));
    let address = front.listen().await;
    let client = TcpStream::connect(address).await.unwrap();
    let ends = [address.port(), client.local_addr().unwrap().port()].map(|port| format!(":{port:04X}"));
    // The front door's end as the kernel tells of it, in hexadecimal digits: which of its timers runs, where 2 is the one that
    // probes a silent client, and in how many hundredths of a second it will.
    eventually("the kernel waits to probe it", || {
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let mut sockets = sockets.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let ours = sockets.find(|fields| fields[1].ends_with(&ends[0]) && fields[2].ends_with(&ends[1]));
        let timer =
            ours.and_then(|fields| fields[5].strip_prefix("02:").map(|due| u64::from_str_radix(due, 16).unwrap()));
        timer.is_some_and(|due| due <= 25 * 100)
    })
    .await;
}

/// A server with one session, whose stream breaks off after an event and is resumed by GET, as 2025-11-25 has it.
async fn resumable() -> Backend {
    Backend::start(|request: Request<Bytes>| async move {
        let headers = request.headers();
        let mut bare = Response::new(full(""));
        if headers.get("mcp-session-id").is_none_or(|session| session != "s-1") {
            *bare.status_mut() = StatusCode::NOT_FOUND;
            return bare;
        }
        match (request.method().as_str(), headers.get("last-event-id").map(HeaderValue::as_bytes)) {
            ("POST", _) => event_stream(full("id: 1/a\ndata: \n\nretry: 10\n\n")),
            ("GET", Some(b"1/a")) => event_stream(full("id: 2/a\ndata: {\"id\":1,\"result\":{}}\n\n")),
            ("GET", Some(_)) => {
                *bare.status_mut() = StatusCode::BAD_REQUEST;
                bare
            }
            ("GET", None) => endless("data: 1\n\n"),
            _ => {
                *bare.status_mut() = StatusCode::NO_CONTENT;
                bare
            }
        }
    })
    .await
}

#[tokio::test]
async fn streams_are_resumed_and_sessions_ended_by_the_backend_alone() {
    let backend = resumable().await;
    let front = Front::new(&http_config(backend.port));
    let session = |mut request: Request<Body>, last: &'static str| {
        request.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s-1"));
        request.headers_mut().insert("mcp-protocol-version", HeaderValue::from_static("2025-11-25"));
        if !last.is_empty() {
            request.headers_mut().insert("last-event-id", HeaderValue::from_static(last));
        }
        request
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let get = |last| session(front.bare("GET", "/weather/mcp"), last);
    let begun = text(front.ask(session(front.post(call), "")).await).await;
    assert_eq!(begun, (200, "id: 1/a\ndata: \n\nretry: 10\n\n".into()));
    let resumed = text(front.ask(get("1/a")).await).await;
    assert_eq!(resumed, (200, "id: 2/a\ndata: {\"id\":1,\"result\":{}}\n\n".into()));
    assert_eq!(backend.last().headers()["last-event-id"], "1/a");
    assert_eq!(text(front.ask(get("another")).await).await.0, 400, "the backend's own answer");
    let mut open = front.ask(get("")).await;
    assert_eq!(super::front::next(&mut open).await.as_deref(), Some("data: 1\n\n"));
    let ended = text(front.ask(session(front.bare("DELETE", "/weather/mcp"), "")).await).await;
    assert_eq!((ended, backend.last().method().as_str()), ((204, String::new()), "DELETE"));
    assert_eq!(
        text(front.ask(front.bare("GET", "/weather/mcp")).await).await.0,
        404,
        "no session, and no demand of ours"
    );
    let more = tokio::time::timeout(Duration::from_millis(100), super::front::next(&mut open)).await;
    assert!(more.is_err(), "the stream is the backend's to end: {more:?}");
}

/// Our own refusals and failures: the same status and code whichever era asks, with the id once it is known.
#[tokio::test]
async fn our_own_errors_mean_the_same_in_both_eras() {
    let redirecting = Backend::start(|_| async {
        let mut response = json_answer(StatusCode::TEMPORARY_REDIRECT, String::new());
        response.headers_mut().insert("location", HeaderValue::from_static("http://evil.example.com/"));
        response
    })
    .await;
    let silent = Backend::start(|_| std::future::pending()).await;
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let modern = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"server/discover","params":{{{meta}}}}}"#);
    let legacy = r#"{"jsonrpc":"2.0","id":"q","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let large = "x".repeat(5000);
    // A port, a header that is replaced, what comes after the message, and what is answered.
    let cases: &[(u16, &'static str, &'static str, &str, u16, bool)] = &[
        (1, "authorization", "Bearer wrong", "", 401, false),
        (1, "origin", "https://evil.example.com", "", 403, false),
        (1, "content-type", "text/plain", "", 415, false),
        (1, "host", "evil.example.com", "", 421, false),
        (1, "x-none", "1", &large, 413, false),
        (redirecting.port, "x-none", "1", "", 502, true),
        (1, "x-none", "1", "", 503, true),
        (silent.port, "x-none", "1", "", 504, true),
    ];
    for (port, name, value, rest, status, known) in cases {
        let mut config = http_config(*port);
        config["limits"]["callTimeoutMs"] = 1000.into();
        let front = Front::new(&config);
        let mut answers = Vec::new();
        for (message, is_modern) in [(modern.as_str(), true), (legacy, false)] {
            let mut request = front.post(&format!("{message}{rest}"));
            if is_modern {
                request.headers_mut().insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
                request.headers_mut().insert("mcp-method", HeaderValue::from_static("server/discover"));
            }
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
            let (answered, answer) = text(front.ask(request).await).await;
            assert_eq!(answered, *status, "{name} {value}: {answer}");
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((&answer["error"]["code"], answer["id"] == "q"), (&json!(status), *known), "{answer}");
            answers.push(answer);
        }
        assert_eq!(answers[0], answers[1]);
    }
}
