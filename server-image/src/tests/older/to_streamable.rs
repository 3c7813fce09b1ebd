//! Clients of the older transport before a Streamable HTTP server: the front door plays the newer client for them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::super::backend::{Backend, endless, feed};
use super::super::front::{Front, http_config};
use super::super::{Log, eventually};
use super::{Client, INITIALIZE, INITIALIZED, streamable};
use crate::body::full;
use crate::commit::event_stream;
use crate::door::Phase;
use crate::refusal::json as json_answer;

#[tokio::test]
async fn an_older_client_reaches_a_streamable_server() {
    let (sender, own) = feed();
    let backend = streamable(Arc::new(Mutex::new(Some(own)))).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    assert_eq!(backend.calls(), 0, "the server learns of the client with its first message");
    client.ask(INITIALIZE).await;
    assert_eq!(client.post(INITIALIZED).await, 202);
    eventually("the server's own stream is read", || backend.calls() == 3).await;
    sender.send(Bytes::from_static(b"event: message\ndata: {\"method\":\"notifications/x\"}\n\n")).unwrap();
    assert_eq!(client.next().await.unwrap(), r#"{"method":"notifications/x"}"#);

    // An answer of several events is copied as it comes.
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#).await, 202);
    assert!(client.next().await.unwrap().contains("12345678901234567890123"));
    assert_eq!(client.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}"#);
    assert_eq!(client.next().await.unwrap(), "{\n\"jsonrpc\":\"2.0\", \"id\":1e0,\"result\":{}}");
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await, 202);

    // What fails becomes an error for the request that failed.
    let mut failures = Vec::new();
    for method in ["html", "cut"] {
        assert_eq!(client.post(&format!(r#"{{"jsonrpc":"2.0","id":"f","method":"{method}"}}"#)).await, 202);
        loop {
            let said: Value = serde_json::from_str(&client.next().await.unwrap()).unwrap();
            if said["id"] == "f" {
                failures.push(said["error"]["message"].as_str().unwrap().to_owned());
                break;
            }
        }
    }
    assert_eq!(
        failures,
        ["The MCP server answered HTTP 502 Bad Gateway", "The MCP server ended its answer without a message"]
    );
    for request in backend.seen().iter().skip(1) {
        assert_eq!(request.headers()["mcp-session-id"], "x-1", "{:?}", request.method());
        assert_eq!(request.headers()["mcp-protocol-version"], "2024-11-05");
        assert_eq!((request.uri().path(), request.uri().query()), ("/backend/mcp", None));
        assert!(!request.headers().contains_key("authorization") && !request.headers().contains_key("x-api-key"));
    }
    // A call that still runs is given up with the client, and the session is ended.
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":2,"method":"hold"}"#).await, 202);
    eventually("the call runs", || backend.open() == 2).await;
    drop(client);
    eventually("all is over", || backend.open() == 0).await;
    eventually("the session is ended", || backend.last().method() == Method::DELETE).await;
    assert_eq!(backend.last().headers()["mcp-session-id"], "x-1");
}

#[tokio::test]
async fn a_session_that_the_server_forgot_ends_the_stream() {
    let backend = streamable(Arc::default()).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    client.ask(INITIALIZE).await;
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":5,"method":"gone"}"#).await;
    assert_eq!(answer["id"], 5);
    assert_eq!(answer["error"]["message"], "The MCP server answered HTTP 404 Not Found: Session not found");
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn a_server_that_is_away_is_told_for_each_request() {
    let front = Front::new(&http_config(9));
    let mut client = Client::open(&front).await;
    let answer = client.ask(INITIALIZE).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(0), &json!(503)));
    assert_eq!(client.post(INITIALIZED).await, 503);
}

/// A server may end a stream early and wait to be asked for the rest.
#[tokio::test]
async fn a_stream_that_ends_early_is_resumed() {
    let backend = Backend::start(|request| async move {
        if request.method() == Method::GET {
            assert_eq!(request.headers()["last-event-id"], "e-1");
            return event_stream(full("id: e-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"));
        }
        event_stream(full("id: e-1\nretry: 5\ndata: \n\n"))
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#).await;
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
}

/// Each call is answered on the client's stream, and has no status by which it could be told.
#[tokio::test]
async fn a_call_that_is_too_slow_is_counted_and_logged_once() {
    for (place, code) in [("head", 504), ("stream", -32603), ("resumed stream", -32603)] {
        let backend = Backend::start(move |request| async move {
            match (place, request.method()) {
                ("head", _) => std::future::pending().await,
                ("resumed stream", &Method::POST) => event_stream(full("id: e-1\nretry: 5\ndata: \n\n")),
                _ => endless(": nothing\n\n"),
            }
        })
        .await;
        let mut config = http_config(backend.port);
        config["limits"]["callTimeoutMs"] = 1000.into();
        let (log, front) = (Log::new(), Front::new(&config));
        let mut client = Client::open(&front).await;
        let answer = client.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#).await;
        assert_eq!(answer["error"]["code"], code, "{place}: {answer}");
        assert_eq!(front.backend_errors(), ["{reason=\"backend_slow\"} 1"], "{place}");
        let lines = log.lines("a request failed after its answer had begun");
        assert_eq!((lines.len(), &lines[0]["refusal"]), (1, &"backend_slow".into()), "{place}: {lines:?}");
    }
}

#[tokio::test]
async fn a_stop_waits_for_calls_and_then_ends_the_stream() {
    let go = Arc::new(tokio::sync::Notify::new());
    let wait = Arc::clone(&go);
    let backend = Backend::start(move |_| {
        let wait = Arc::clone(&wait);
        async move {
            wait.notified().await;
            json_answer(StatusCode::OK, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#.into())
        }
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let (mut idle, mut calling) = (Client::open(&front).await, Client::open(&front).await);
    assert_eq!(calling.post(INITIALIZE).await, 202);
    eventually("the call runs", || backend.open() == 1).await;
    front.door.enter(Phase::Stopping);
    assert_eq!(idle.next().await, None);
    go.notify_one();
    assert!(calling.next().await.unwrap().contains("result"));
    assert_eq!(calling.next().await, None);
}

/// It is read once, and then sent as if by a newer client.
#[tokio::test]
async fn the_body_of_an_older_client_is_counted_once() {
    let (_sender, own) = feed();
    let backend = streamable(Arc::new(Mutex::new(Some(own)))).await;
    let mut config = http_config(backend.port);
    config["limits"]["bodyBytesTotal"] = 4096.into();
    let front = Front::new(&config);
    let mut client = Client::open(&front).await;
    let said = client.ask(&format!("{INITIALIZE:4096}")).await;
    assert!(said["result"].is_object(), "{said}");
    assert_eq!(backend.last().body().len(), 4096);
}
