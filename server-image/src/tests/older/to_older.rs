//! Streamable HTTP clients before a server of the older transport: the front door keeps a session for each.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::super::backend::{Backend, endless};
use super::super::eventually;
use super::super::front::{Front, key, record, text};
use super::{INITIALIZE, INITIALIZED, Older, initialize, sse_config, status, with_session};
use crate::handshake;
use crate::sse::event::Events;

#[tokio::test]
async fn a_streamable_client_reaches_an_older_server() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let post = |message: &str| with_session(front.post(message), &session);
    let (status, answer) = text(front.ask(post(r#"{"jsonrpc":"2.0","id":"t","method":"tools/list"}"#)).await).await;
    assert_eq!(status, 200);
    assert!(answer.contains("\"id\":\"t\"") && answer.contains("\"b\""), "{answer}");

    // Progress belongs to the request that brought its token, all else to the client's own stream, as soon as there is
    // one; a request that takes JSON alone is told nothing but its answer.
    older.say(0, r#"{"jsonrpc":"2.0","method":"notifications/early"}"#);
    let mut plain = post(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    plain.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
    assert!(text(front.ask(plain).await).await.1.contains("\"ping\""));
    let hold = r#"{"jsonrpc":"2.0","id":9,"method":"hold","params":{"_meta":{"progressToken":"p"}}}"#;
    let asking = front.ask(post(hold));
    let talking = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        let mut own =
            Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &session)).await.into_body());
        let mut next = async || {
            let event = tokio::time::timeout(Duration::from_secs(10), own.next()).await.expect("an event within 10 s");
            String::from_utf8(event.unwrap().unwrap().data.unwrap()).unwrap()
        };
        assert_eq!(next().await, r#"{"jsonrpc":"2.0","method":"notifications/early"}"#);
        older.say(0, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        older.say(
            0,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
        );
        older.say(
            0,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"q","progress":1}}"#,
        );
        assert_eq!(next().await, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        assert!(next().await.contains("\"q\""));
        // Ids are the client's: a second request with one that waits is refused.
        assert_eq!(text(front.ask(post(hold)).await).await.0, 400);
        older.say(0, r#"{"jsonrpc":"2.0","id":9,"result":{"big":12345678901234567890123}}"#);
        own
    };
    let (response, _own) = tokio::join!(asking, talking);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (status, answer) = text(response).await;
    assert_eq!(status, 200);
    assert_eq!(
        answer,
        "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"p\",\"progress\":1}}\n\n\
         event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"big\":12345678901234567890123}}\n\n"
    );
    for request in backend.seen() {
        assert!(!request.headers().contains_key("mcp-session-id"), "the session is the front door's own");
        assert!(!request.headers().contains_key("authorization"));
    }
    assert_eq!(text(front.ask(with_session(front.bare("DELETE", "/weather/mcp"), &session)).await).await.0, 204);
    assert_eq!(text(front.ask(post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await).await.0, 404);
    eventually("the server's stream is closed", || backend.open() == 0 && front.door.sse.sessions() == 0).await;
}

#[tokio::test]
async fn what_does_not_belong_to_a_session_is_refused() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let other = key(2);
    front.keys.swap(&[
        (front.key.id(), &record(&front.key, None)),
        (other.id(), &record(&other, None).replace("\"subject\":\"s\"", "\"subject\":\"t\"")),
    ]);
    front.reloader().reload();
    let session = initialize(&front).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let calls = backend.calls();
    assert_eq!(text(front.ask(front.post(ping)).await).await.0, 400, "no session");
    assert_eq!(text(front.ask(with_session(front.post(ping), &HeaderValue::from_static("wrong"))).await).await.0, 404);
    for message in [ping, INITIALIZED, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#] {
        let mut request = with_session(front.post(message), &session);
        request
            .headers_mut()
            .insert("authorization", HeaderValue::try_from(format!("Bearer {}", other.expose())).unwrap());
        assert_eq!(text(front.ask(request).await).await.0, 404, "another's session: {message}");
    }
    for method in ["GET", "DELETE"] {
        let mut request = with_session(front.bare(method, "/weather/mcp"), &session);
        request.headers_mut().insert("x-api-key", HeaderValue::try_from(other.expose()).unwrap());
        assert_eq!(text(front.ask(request).await).await.0, 404, "another's session: {method}");
        assert_eq!(text(front.ask(front.bare(method, "/weather/mcp")).await).await.0, 400, "no session: {method}");
    }
    let batch = format!("[{ping}]");
    assert_eq!(text(front.ask(with_session(front.post(&batch), &session)).await).await.0, 400);
    assert_eq!(backend.calls(), calls, "none of them reached the server");
    assert_eq!(text(front.ask(with_session(front.post(ping), &session)).await).await.0, 200);
}

#[tokio::test]
async fn a_session_ends_with_the_servers_stream() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let mut own = Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &session)).await.into_body());
    let hold = r#"{"jsonrpc":"2.0","id":9,"method":"hold"}"#;
    let hanging_up = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        older.hang_up(0);
    };
    let (response, ()) = tokio::join!(front.ask(with_session(front.post(hold), &session)), hanging_up);
    let (status, answer) = text(response).await;
    assert_eq!(status, 502, "{answer}");
    assert!(answer.contains("\"id\":9"), "{answer}");
    assert_eq!(own.next().await.unwrap(), None);
    assert_eq!(text(front.ask(with_session(front.post(hold), &session)).await).await.0, 404);
    eventually("nothing is left", || backend.open() == 0).await;
}

#[tokio::test]
async fn an_idle_session_ends_and_one_with_a_stream_does_not() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let (idle, listening) = (initialize(&front).await, initialize(&front).await);
    let mut own = Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &listening)).await.into_body());
    tokio::time::pause();
    let silent = tokio::time::timeout(Duration::from_secs(40 * 60), own.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    tokio::time::resume();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(text(front.ask(with_session(front.post(ping), &idle)).await).await.0, 404);
    assert_eq!(text(front.ask(with_session(front.post(ping), &listening)).await).await.0, 200);
}

#[tokio::test]
async fn a_client_that_leaves_during_the_handshake_leaves_no_session() {
    let backend = Backend::start(|request| async move {
        if request.method() == Method::POST {
            return status(StatusCode::ACCEPTED); // and never an answer
        }
        endless("event: endpoint\ndata: message\n\n")
    })
    .await;
    let front = Front::new(&sse_config(backend.port));
    {
        let asking = front.ask(front.post(INITIALIZE));
        let waiting = eventually("it waits for the answer", || backend.calls() == 2);
        tokio::select! {
            _ = asking => panic!("there is no answer"),
            () = waiting => {}
        }
    }
    assert_eq!(backend.last().uri().path(), "/backend/message", "relative to the stream's own path");
    eventually("nothing is left", || backend.open() == 0 && front.door.sse.sessions() == 0).await;
}

#[tokio::test]
async fn the_handshake_speaks_the_older_transport_too() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    front.run(handshake::keep(Arc::clone(&front.door)));
    front.ready().await;
    let told = front.door.status().handshake.unwrap();
    assert_eq!((told.name.as_str(), told.version.as_str(), told.tool_count), ("older", "1", Some(2)));
    assert_eq!(told.protocol_versions, ["2024-11-05"]);
    assert_eq!((older.heard("initialize"), older.heard("notifications/initialized")), (1, 1));
    eventually("its stream is closed", || backend.open() == 0).await;
    // A modern request is refused in its own words, and its client falls back.
    let modern = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let mut request = front.post(modern);
    request.headers_mut().insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
    request.headers_mut().insert("mcp-method", HeaderValue::from_static("server/discover"));
    let (status, answer) = text(front.ask(request).await).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32600)));
    assert_eq!(answer["error"]["data"]["supported"], json!(["2024-11-05"]));
}
