//! The management listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode};
use mooring_contract::DoorStatus;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::backend::Backend;
use super::eventually;
use super::front::{Front, collect, http_config, text};
use crate::clock;
use crate::door::Phase;
use crate::handshake;
use crate::management::router;
use crate::refusal::json;

async fn get(front: &Front, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String, String) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(axum::body::Body::empty()).unwrap();
    let response = router(Arc::clone(&front.door)).oneshot(request).await.unwrap();
    let media_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, media_type.unwrap_or_default(), String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn status_needs_the_token() {
    let front = Front::new(&http_config(9));
    for header in ["", "Bearer ", "Bearer wrong", "Basic status-token-of-the-test", "status-token-of-the-test"] {
        assert_eq!(get(&front, "/status", &[("authorization", header)]).await.0, 401, "{header}");
    }
    assert_eq!(get(&front, "/status", &[]).await.0, 401);
    let (status, _, body) = get(&front, "/status", &[("authorization", "Bearer status-token-of-the-test")]).await;
    assert_eq!(status, 200);
    let status: DoorStatus = serde_json::from_str(&body).unwrap();
    assert_eq!(status, front.door.status());
    assert!(!status.ready && status.config_error.is_none() && status.keys_revision.len() == 16);
    // Without a token, nobody reads it.
    front.session.swap(&[("status-token", " \n")]);
    front.reloader().reload();
    assert_eq!(get(&front, "/status", &[("authorization", "Bearer ")]).await.0, 401);
}

#[tokio::test]
async fn metrics_come_in_both_formats_and_name_nobody() {
    let front = Front::new(&http_config(9));
    drop(front.ask(front.post(r#"{"jsonrpc":"2.0","id":1,"method":"secret/method"}"#)).await);
    drop(front.ask(front.bare("GET", "/weather/secret-path")).await);
    let (status, media_type, classic) = get(&front, "/metrics", &[]).await;
    assert_eq!((status.as_u16(), media_type.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    let accept = [("accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.1")];
    let (_, media_type, open) = get(&front, "/metrics", &accept).await;
    assert!(media_type.starts_with("application/openmetrics-text"));
    assert!(open.ends_with("# EOF\n"));
    for text in [&classic, &open] {
        for name in ["weather", "demo", "secret", "mcp.example.com", front.key.id()] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
    let mut lines: Vec<_> = classic.lines().filter(|line| !line.starts_with('#')).collect();
    lines.sort_unstable();
    insta::assert_snapshot!(lines.join("\n"));
}

/// On the port of the management and on the public one alike, under the path of the server, too.
#[tokio::test]
async fn probes_are_answered() {
    let result = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    let backend = Backend::start(move |_| async move { json(StatusCode::OK, result.into()) }).await;
    let front = Front::new(&http_config(backend.port));
    let probe = async |path: &str, expected: (u16, &str)| {
        let (status, media_type, body) = get(&front, path, &[]).await;
        assert_eq!(((status.as_u16(), &*body), &*media_type), (expected, "application/json"), "{path}");
        for path in [path.to_owned(), format!("/weather{path}")] {
            let (status, headers, body) = collect(front.ask(front.bare("GET", &path)).await).await;
            assert_eq!((status.as_u16(), &body[..]), (expected.0, expected.1.as_bytes()), "{path}");
            assert_eq!(
                (&headers["content-type"], &headers["cache-control"]),
                (&HeaderValue::from_static("application/json"), &HeaderValue::from_static("no-store"))
            );
        }
    };
    let not_ready = (503, r#"{"status":"not_ready","checks":{}}"#);
    probe("/health", (200, r#"{"status":"alive"}"#)).await;
    probe("/health/ready", not_ready).await;
    front.run(handshake::keep(Arc::clone(&front.door)));
    front.ready().await;
    probe("/health/ready", (200, r#"{"status":"ready","checks":{}}"#)).await;
    front.door.enter(Phase::Leaving);
    probe("/health/ready", not_ready).await;
    probe("/health", (200, r#"{"status":"alive"}"#)).await;
    assert_eq!(get(&front, "/mcp", &[]).await.0, 404);
    assert_eq!(text(front.ask(front.bare("GET", "/status")).await).await.0, 404);
}

/// Listens on a free port, as the process does.
async fn listen(front: &Front) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    front.run(crate::serve::serve_management(listener, Arc::clone(&front.door)));
    address
}

async fn once(front: &Front, address: SocketAddr, path: &str) -> String {
    front.raw(address, format!("GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes()).await
}

#[tokio::test]
async fn a_head_that_drips_has_five_seconds() {
    let mut config = http_config(9);
    config["limits"]["headerTimeoutMs"] = 60_000.into(); // the public port's
    let front = Front::new(&config);
    let mut stream = TcpStream::connect(listen(&front).await).await.unwrap();
    let (begin, mut answer) = (clock::instant(), vec![0; 1024]);
    stream.write_all(b"GET /health?").await.unwrap();
    let length = loop {
        if let Ok(length) = timeout(Duration::from_millis(100), stream.read(&mut answer)).await {
            break length.unwrap();
        }
        stream.write_all(b"x").await.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20), "it drips for ever");
    };
    let (took, answer) = (begin.elapsed().as_secs_f64(), String::from_utf8_lossy(&answer[..length]));
    assert!(answer.starts_with("HTTP/1.1 408 ") && (4.9..8.0).contains(&took), "{took} {answer}");
}

#[tokio::test]
async fn connections_beyond_256_get_probes_answered_and_nothing_else() {
    // Both ends of more connections than many shells allow files.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let mut config = http_config(9);
    config["limits"]["connections"] = 1.into(); // the public port's
    let front = Front::new(&config);
    let address = listen(&front).await;
    let metrics = || front.door.metrics.text(false).unwrap().1;
    let open = |number: usize| metrics().contains(&format!("connections{{listener=\"management\"}} {number}\n"));
    let mut sockets = Vec::new();
    for _ in 0..255 {
        sockets.push(TcpStream::connect(address).await.unwrap());
    }
    eventually("255 are open", || open(255)).await;
    assert!(once(&front, address, "/metrics").await.starts_with("HTTP/1.1 200 "), "the last of 256");
    eventually("it is closed", || open(255)).await;
    sockets.push(TcpStream::connect(address).await.unwrap());
    eventually("256 are open", || open(256)).await;
    for path in ["/metrics", "/status", "/"] {
        let answer = once(&front, address, path).await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("no connection left"), "{path}: {answer}");
        assert!(answer.contains("retry-after: 1\r\n") && answer.contains("connection: close\r\n"), "{answer}");
        eventually("it is closed", || open(256)).await;
    }
    assert!(once(&front, address, "/health").await.starts_with("HTTP/1.1 200 "));
    assert!(once(&front, address, "/health/ready").await.contains("\"status\""));
    // Far beyond, none is kept.
    let shed = || metrics().contains("connections_cut_total{listener=\"management\",reason=\"shed\"} ");
    while !shed() {
        assert!(sockets.len() < 2000, "none is shed");
        sockets.push(TcpStream::connect(address).await.unwrap());
    }
    drop(sockets);
    eventually("all are closed", || open(0)).await;
    assert!(once(&front, address, "/metrics").await.starts_with("HTTP/1.1 200 "));
}
