//! Stopping in order.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use std::sync::Arc;

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

#[tokio::test]
async fn a_running_call_is_finished_and_a_stream_without_end_is_ended() {
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
