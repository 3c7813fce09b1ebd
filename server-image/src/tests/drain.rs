//! Stopping in order.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::backend::{Backend, endless};
use super::eventually;
use super::front::{Front, http_config, next, text};
use crate::body::empty;
use crate::door::Phase;
use crate::refusal::json;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn while_leaving_it_serves_and_says_so() {
    let backend = Backend::start(|_| async { json(http::StatusCode::OK, "{}".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    front.door.enter(Phase::Leaving);
    let response = front.ask(front.post(PING)).await;
    assert_eq!(response.headers()["connection"], "close");
    assert_eq!(text(response).await.0, 200);
    let ready = http::Request::get("/health/ready").body(empty()).unwrap();
    assert_eq!(text(front.ask(ready).await).await.0, 503);
    front.door.enter(Phase::Serving);
    assert_eq!(front.door.phase(), Phase::Leaving, "there is no way back");
}

/// A server that answers a POST when it is let go, and has an endless stream.
async fn late() -> (Backend, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let backend = Backend::start(move |request| {
        let wait = Arc::clone(&wait);
        async move {
            if request.method() == http::Method::POST {
                wait.notified().await;
                return json(http::StatusCode::OK, r#"{"late":true}"#.into());
            }
            endless("data: 1\n\n")
        }
    })
    .await;
    (backend, go)
}

#[tokio::test]
async fn a_running_call_is_finished_and_a_stream_without_end_is_ended() {
    let (backend, go) = late().await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    let mut stream = front.ask(front.bare("GET", "/weather/mcp")).await;
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut calling = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nx-api-key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{PING}",
        front.key.expose(),
        PING.len()
    );
    calling.write_all(request.as_bytes()).await.unwrap();
    eventually("the call runs", || backend.calls() == 2).await;
    front.door.enter(Phase::Stopping);
    assert_eq!(next(&mut stream).await, None);
    let mut rest = Vec::new();
    assert_eq!(idle.read_to_end(&mut rest).await.unwrap(), 0, "an idle connection is closed");
    let mut refused = false;
    for _ in 0..200 {
        refused = TcpStream::connect(address).await.is_err();
        if refused {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(refused, "nothing new is accepted");
    go.notify_one();
    let mut answer = String::new();
    calling.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#"{"late":true}"#), "{answer}");
}

/// A connection that passes on what is said, and keeps what the server says.
fn tapped(front: &Front, server: TcpStream) -> (DuplexStream, Arc<Mutex<Vec<u8>>>) {
    let (client, relay) = tokio::io::duplex(64 * 1024);
    let (mut from_client, mut to_client) = tokio::io::split(relay);
    let (mut from_server, mut to_server) = server.into_split();
    front.run(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let said = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&said);
    front.run(async move {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
            kept.lock().unwrap().extend_from_slice(&bytes[..length]);
            let _ = to_client.write_all(&bytes[..length]).await;
        }
    });
    (client, said)
}

/// Whether GOAWAY is one of these frames (RFC 9113 sections 4.1 and 6.8).
fn tells_to_go(mut frames: &[u8]) -> bool {
    while let [high, middle, low, kind, ..] = *frames {
        if kind == 7 {
            return true;
        }
        frames = frames.get(9 + u32::from_be_bytes([0, high, middle, low]) as usize..).unwrap_or_default();
    }
    false
}

/// HTTP/2 has GOAWAY for it: no request is sent any more, and those on their way are answered.
#[tokio::test]
async fn while_leaving_it_tells_http_2_and_finishes_what_runs() {
    let (backend, go) = late().await;
    let front = Front::new(&http_config(backend.port));
    let (stream, said) = tapped(&front, TcpStream::connect(front.listen().await).await.unwrap());
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    front.run(async move {
        let _ = connection.await;
    });
    let request = || {
        let mut request = front.post(PING);
        *request.uri_mut() = "http://mcp.example.com/weather/mcp".parse().unwrap();
        request
    };
    let mut call = pin!(requests.send_request(request()));
    assert!(futures::poll!(call.as_mut()).is_pending());
    eventually("the call runs", || backend.calls() == 1).await;
    assert!(!tells_to_go(&said.lock().unwrap()));
    front.door.enter(Phase::Leaving);
    eventually("GOAWAY", || tells_to_go(&said.lock().unwrap())).await;
    assert!(requests.send_request(request()).await.is_err());
    go.notify_one();
    let (parts, body) = call.await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    assert_eq!((parts.status.as_u16(), &*body), (200, br#"{"late":true}"#.as_slice()));
    assert_eq!(backend.calls(), 1);
}

#[tokio::test]
async fn a_stream_that_has_not_begun_does_not_hold_up_the_stop() {
    let backend = Backend::start(|_| std::future::pending()).await;
    let front = Front::new(&http_config(backend.port));
    let door = Arc::clone(&front.door);
    front.run(async move {
        tokio::task::yield_now().await;
        door.enter(Phase::Stopping);
        std::future::pending::<()>().await;
    });
    let (status, answer) = text(front.ask(front.bare("GET", "/weather/mcp")).await).await;
    assert_eq!(status, 503, "{answer}");
}
