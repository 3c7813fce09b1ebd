//! The limits of the wire over sockets: to the byte, and for whoever comes last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::backend::Backend;
use super::front::{Front, http_config, key, record};
use super::{eventually, http_2};
use crate::body::{Body, BodyError, full};
use crate::refusal;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn limited(port: u16, limits: &Value) -> Value {
    let mut config = http_config(port);
    config["limits"] = limits.clone();
    config
}

async fn pong() -> Backend {
    Backend::start(|_| async { refusal::json(StatusCode::OK, "\"pong\"".into()) }).await
}

fn status(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// Asks on a connection of its own, which is closed then.
async fn once(front: &Front, address: SocketAddr, target: &str) -> String {
    let key = front.key.expose();
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: mcp.example.com\r\nConnection: close\r\nX-Api-Key: {key}\r\n\r\n");
    front.raw(address, head.as_bytes()).await
}

#[tokio::test]
async fn a_head_may_be_as_large_as_the_limits_and_no_larger() {
    let limits = json!({"headerBytes": 2048, "headerCount": 20, "uriBytes": 300});
    let front = Front::new(&limited(1, &limits));
    let address = front.listen().await;
    let head = |target: usize, headers: usize, bytes: usize| {
        let mut text = format!("GET /health?{} HTTP/1.1\r\nConnection: close\r\n", "a".repeat(target - 8));
        text += &"A: b\r\n".repeat(headers - 2);
        let rest = bytes - text.len() - "P: \r\n\r\n".len();
        text + &format!("P: {}\r\n\r\n", "x".repeat(rest))
    };
    for (text, expected) in [
        (head(300, 20, 2048), 200),
        (head(301, 20, 2048), 414),
        (head(300, 21, 2048), 431),
        (head(300, 20, 2049), 431),
        (format!("GET /health?{}", "a".repeat(2100)), 414),
    ] {
        let answer = front.raw(address, text.as_bytes()).await;
        assert_eq!(status(&answer), Some(expected), "{answer}");
        assert!(expected == 200 || answer.contains(&format!("\"code\":{expected}")), "{answer}");
    }
    assert_eq!((front.refused("uri_too_long"), front.refused("head_too_large")), (2, 2));
    // A change holds at once, on a connection that is open already.
    let mut open = TcpStream::connect(address).await.unwrap();
    open.write_all(b"GET /health HTTP/1.1\r\n\r\n").await.unwrap();
    let mut bytes = [0; 1024];
    assert!(open.read(&mut bytes).await.unwrap() > 0);
    let wider = limited(1, &json!({"headerBytes": 4096, "headerCount": 40, "uriBytes": 1000}));
    front.config.swap(&[("config.json", &wider.to_string())]);
    front.reloader().reload();
    open.write_all(head(1000, 40, 4096).as_bytes()).await.unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).await.unwrap();
    assert_eq!(status(&answer), Some(200), "{answer}");
}

#[tokio::test]
async fn the_largest_head_and_many_headers_pass() {
    let front = Front::new(&limited(1, &json!({"headerBytes": 65536, "headerCount": 256, "uriBytes": 32768})));
    let address = front.listen().await;
    let mut text = format!("GET /health?{} HTTP/1.1\r\nConnection: close\r\n", "a".repeat(32_000));
    text += &"A: b\r\n".repeat(254);
    let text = format!("{text}P: {}\r\n\r\n", "x".repeat(65536 - text.len() - 7));
    assert_eq!(text.len(), 65536);
    let answer = front.raw(address, text.as_bytes()).await;
    assert_eq!(status(&answer), Some(200), "{answer}");
}

/// With `headers` of them, and of this size as HTTP/2 counts it: 32 bytes and name and value for each field.
fn head_in_http_2(target: usize, headers: usize, bytes: usize) -> Request<Empty<Bytes>> {
    let uri = format!("http://mcp.example.com/health?{}", "a".repeat(target - 8));
    let mut request = Request::get(uri).version(Version::HTTP_2).body(Empty::new()).unwrap();
    for _ in 1..headers {
        request.headers_mut().append("a", "b".parse().unwrap());
    }
    let field = |name: &str, value: usize| name.len() + value + 32;
    let pseudo = field(":method", 3) + field(":scheme", 4) + field(":authority", 15) + field(":path", target);
    let rest = bytes - pseudo - (headers - 1) * field("a", 1) - field("p", 0);
    request.headers_mut().append("p", "x".repeat(rest).parse().unwrap());
    request
}

#[tokio::test]
async fn http_2_is_held_to_the_same_limits() {
    let front = Front::new(&limited(1, &json!({"headerBytes": 4096, "headerCount": 20, "uriBytes": 300})));
    let stream = TcpStream::connect(front.listen().await).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    front.run(async move {
        let _ = connection.await;
    });
    let mut ask = async |target: usize, headers: usize, bytes: usize| {
        let response = sender.send_request(head_in_http_2(target, headers, bytes)).await.unwrap();
        let status = response.status().as_u16();
        (status, String::from_utf8(response.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    for (target, headers, bytes, expected) in [
        (300, 20, 4096, 200),
        (301, 20, 2000, 414),
        (300, 21, 2000, 431),
        (300, 20, 4097, 431),
        (8, 1, 12_287, 431),
        (2000, 1, 12_287, 414),
    ] {
        let (status, body) = ask(target, headers, bytes).await;
        assert_eq!(status, expected, "{target} {headers} {bytes}");
        assert!(expected == 200 || body.contains(&format!("\"code\":{expected}")), "{body}");
    }
    assert_eq!((front.refused("uri_too_long"), front.refused("head_too_large")), (2, 3));
    // The library itself refuses what is 8 KiB beyond the limit, and what comes next is served.
    assert_eq!(ask(8, 1, 12_288).await, (431, String::new()));
    assert_eq!(front.refused("head_too_large"), 3);
    // A change holds at once.
    let wider = limited(1, &json!({"headerBytes": 6000, "headerCount": 20, "uriBytes": 300}));
    front.config.swap(&[("config.json", &wider.to_string())]);
    front.reloader().reload();
    assert_eq!((ask(8, 1, 6000).await.0, ask(8, 1, 6001).await.0), (200, 431));
}

/// CVE-2023-44487: streams that are begun and reset at once.
#[tokio::test]
async fn rapid_resets_end_the_connection_and_nothing_else() {
    let backend = pong().await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(http_2::PREFACE).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    front.run(async move {
        for stream in (1_u32..40_000).step_by(2) {
            let begun = http_2::frame(http_2::HEADERS, http_2::END_HEADERS, stream, &http_2::head("POST", "/"));
            let reset = http_2::frame(http_2::RST_STREAM, 0, stream, &[0, 0, 0, 8]); // CANCEL
            if writing.write_all(&[begun, reset].concat()).await.is_err() {
                return;
            }
        }
    });
    let mut answer = Vec::new();
    let _ = reading.read_to_end(&mut answer).await; // closed or reset: either way it ends
    let metric = || front.door.metrics.text(false).unwrap().1;
    let cut = "connections_cut_total{listener=\"public\",reason=\"enhance_your_calm\"} 1";
    eventually("counted", || metric().contains(cut)).await;
    assert_eq!(status(&once(&front, address, "/health").await), Some(200));
    assert_eq!(backend.calls(), 0);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_and_health_is_answered_on_them() {
    let backend = pong().await;
    let front = Front::new(&limited(backend.port, &json!({"connections": 2})));
    let address = front.listen().await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        open.push(stream);
    }
    let answer = once(&front, address, "/weather/mcp").await;
    assert_eq!(status(&answer), Some(503), "{answer}");
    for part in ["retry-after: 1\r\n", "connection: close\r\n", "no connection left"] {
        assert!(answer.contains(part), "{answer}");
    }
    assert_eq!(status(&once(&front, address, "/health").await), Some(200));
    assert_eq!((backend.calls(), front.refused("connections")), (0, 1));
    // Those that were there first are served on.
    open[0].write_all(b"GET /health HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(open[0].read(&mut [0; 1024]).await.unwrap() > 0);
    drop(open);
    let metric = || front.door.metrics.text(false).unwrap().1;
    eventually("closed", || metric().contains("connections{listener=\"public\"} 0")).await;
    assert_eq!(status(&once(&front, address, "/weather/mcp").await), Some(200));
}

/// There is no end to those who come: some are told, the others are closed at once.
#[tokio::test]
async fn connections_far_beyond_the_limit_are_closed_without_a_word() {
    let front = Front::new(&limited(1, &json!({"connections": 2})));
    let address = front.listen().await;
    let management = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let management_address = management.local_addr().unwrap();
    front.run(crate::serve::serve_management(management, Arc::clone(&front.door)));
    let shed = || {
        let text = front.door.metrics.text(false).unwrap().1;
        text.contains("connections_cut_total{listener=\"public\",reason=\"shed\"} ")
    };
    let mut sockets = Vec::new();
    while !shed() {
        assert!(sockets.len() < 5000, "none is shed");
        sockets.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(sockets.len() > 2 + 256, "{} are too few to shed one", sockets.len());
    let mut word = [0; 64];
    eventually("closed", || sockets.iter().any(|socket| matches!(socket.try_read(&mut word), Ok(0)))).await;
    assert_eq!(status(&once(&front, management_address, "/health").await), Some(200));
    drop(sockets);
    let metric = || front.door.metrics.text(false).unwrap().1;
    eventually("gone", || metric().contains("connections{listener=\"public\"} 0")).await;
    assert_eq!(status(&once(&front, address, "/health").await), Some(200));
}

#[tokio::test]
async fn requests_beyond_the_limit_are_shed_and_those_that_run_go_on() {
    static GATE: Semaphore = Semaphore::const_new(0);
    let backend = Backend::start(|_| async {
        let _passed = GATE.acquire().await.unwrap();
        refusal::json(StatusCode::OK, "\"pong\"".into())
    })
    .await;
    let front = Arc::new(Front::new(&limited(backend.port, &json!({"requests": 1}))));
    let first = {
        let front = Arc::clone(&front);
        TaskTracker::new().spawn(async move { super::front::text(front.ask(front.post(PING)).await).await })
    };
    eventually("the first call", || backend.calls() == 1).await;
    let (status, headers, body) = super::front::collect(front.ask(front.post(PING)).await).await;
    assert_eq!((status.as_u16(), headers["retry-after"].to_str().unwrap()), (503, "1"));
    assert!(String::from_utf8_lossy(&body).contains("as many requests as it may"), "{body:?}");
    assert_eq!(front.refused("requests"), 1);
    assert_eq!(super::front::text(front.ask(front.bare("GET", "/health")).await).await.0, 200);
    GATE.add_permits(1);
    assert_eq!(first.await.unwrap(), (200, "\"pong\"".into()));
    assert_eq!(super::front::text(front.ask(front.post(PING)).await).await.0, 200);
    assert_eq!(backend.calls(), 2);
}

/// A request whose body comes as it is sent.
fn upload(front: &Front) -> (mpsc::UnboundedSender<Bytes>, Request<Body>) {
    let (sender, pieces) = mpsc::unbounded_channel::<Bytes>();
    let frames = futures::stream::unfold(pieces, |mut pieces| async {
        Some((Ok::<_, BodyError>(http_body::Frame::data(pieces.recv().await?)), pieces))
    });
    (sender, front.post("").map(|_| StreamBody::new(frames).boxed_unsync()))
}

#[tokio::test]
async fn bodies_beyond_what_all_may_have_are_shed_and_the_others_are_read_on() {
    static GATE: Semaphore = Semaphore::const_new(0);
    let backend = Backend::start(|_| async {
        let _passed = GATE.acquire().await.unwrap();
        refusal::json(StatusCode::OK, "\"pong\"".into())
    })
    .await;
    let total = |bytes: u32| limited(backend.port, &json!({"bodyBytes": 4096, "bodyBytesTotal": bytes}));
    let front = Arc::new(Front::new(&total(8192)));
    let held = |bytes: usize| front.door.metrics.text(false).unwrap().1.contains(&format!("_body_bytes {bytes}\n"));
    let tasks = TaskTracker::new();
    let begin = |bytes: usize| {
        let (sender, request) = upload(&front);
        sender.send(format!("{PING:bytes$}").into()).unwrap();
        let front = Arc::clone(&front);
        (sender, tasks.spawn(async move { super::front::collect(front.ask(request).await).await }))
    };
    let shed = async |answer: JoinHandle<(StatusCode, HeaderMap, Bytes)>| {
        let (status, headers, body) = answer.await.unwrap();
        assert_eq!((status.as_u16(), headers["retry-after"].to_str().unwrap()), (503, "1"));
        assert!(String::from_utf8_lossy(&body).contains("as many bytes of request bodies as it may"), "{body:?}");
    };
    let (first, second) = (begin(4000), begin(4000));
    eventually("two are held", || held(8000)).await;
    for (sender, answer) in [begin(193), begin(4000)] {
        drop(sender);
        shed(answer).await;
    }
    assert_eq!((front.refused("body_bytes"), backend.calls(), held(8000)), (2, 0, true));
    assert_eq!(super::front::text(front.ask(front.bare("GET", "/health")).await).await.0, 200);
    // Those that were there first are read on, to the last byte that there is room for, and held until they are answered.
    let [first, second] = [first, second].map(|(sender, answer)| {
        sender.send(Bytes::from(vec![b' '; 96])).unwrap();
        answer
    });
    eventually("both are passed on", || backend.calls() == 2 && held(8192)).await;
    shed(begin(PING.len()).1).await;
    // A change holds at once.
    front.config.swap(&[("config.json", &total(12_000).to_string())]);
    front.reloader().reload();
    let third = begin(3800);
    eventually("a third is held", || held(11_992)).await;
    shed(begin(PING.len()).1).await;
    // Whoever leaves gives back what it had.
    third.1.abort();
    eventually("gone", || held(8192)).await;
    GATE.add_permits(1);
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().0, 200);
    }
    assert!(held(0));
    // One that may be alone has room, whatever all may have.
    front.config.swap(&[("config.json", &total(1).to_string())]);
    front.reloader().reload();
    let (sender, last) = begin(4096);
    drop(sender);
    assert_eq!(last.await.unwrap().0, 200);
    assert_eq!((front.refused("body_bytes"), backend.calls(), held(0)), (4, 3, true));
}

#[tokio::test]
async fn a_caller_may_hold_so_many_streams_and_no_more() {
    let backend = Backend::start(|_| async {
        let silence = StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, BodyError>>());
        let mut response = Response::new(silence.boxed_unsync());
        response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        response
    })
    .await;
    let front = Front::new(&limited(backend.port, &json!({"streamsPerPrincipal": 2})));
    let (new, other) = (key(2), key(3));
    let record_of_other = record(&other, None).replace("\"s\"", "\"another\"");
    let records = [&front.key, &new].map(|key| (key.id(), record(key, None)));
    let [(old_id, old), (new_id, new_record)] = &records;
    front.keys.swap(&[(old_id, old), (new_id, new_record), (other.id(), &record_of_other)]);
    front.reloader().reload();
    let listen = r#"{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen"}"#;
    let first = front.ask(front.bare("GET", "/weather/mcp")).await;
    let second = front.ask(front.post(listen)).await;
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let (status, headers, _) = super::front::collect(front.ask(front.bare("GET", "/weather/mcp")).await).await;
    assert_eq!((status.as_u16(), headers["retry-after"].to_str().unwrap()), (429, "1"));
    let (status, text) = super::front::text(front.ask(front.post(listen)).await).await;
    assert!(status == 429 && text.contains("\"id\":7"), "{text}");
    assert_eq!((backend.calls(), front.refused("streams")), (2, 2));
    // The new key of a rotation is the same caller. Others are not concerned, and room comes back.
    for (key, expected) in [(new, 429), (other, 200)] {
        let mut request = front.bare("GET", "/weather/mcp");
        request.headers_mut().insert("x-api-key", key.expose().parse().unwrap());
        assert_eq!(front.ask(request).await.status(), expected);
    }
    drop(first);
    assert_eq!(front.ask(front.bare("GET", "/weather/mcp")).await.status(), 200);
}

#[tokio::test]
async fn five_thousand_idle_sockets_do_not_stop_health() {
    let front = Front::new(&limited(1, &json!({"connections": 4900})));
    let address = front.listen().await;
    let mut sockets = Vec::new();
    for _ in 0..5000 {
        sockets.push(TcpStream::connect(address).await.unwrap());
    }
    let metric = || front.door.metrics.text(false).unwrap().1;
    eventually("open", || metric().contains("connections{listener=\"public\"} 5000")).await;
    let answer = once(&front, address, "/health").await;
    assert_eq!(status(&answer), Some(200), "{answer}");
}

#[tokio::test]
async fn whoever_does_not_read_delays_nobody() {
    let backend = Backend::start(|request| async move {
        let size = if request.body().len() > PING.len() { 64 * 1024 * 1024 } else { 4 };
        refusal::json(StatusCode::OK, "x".repeat(size))
    })
    .await;
    let front = Front::new(&limited(backend.port, &json!({"writeTimeoutMs": 1000})));
    let address = front.listen().await;
    let large = format!("{PING}  ");
    let request = |body: &str, more: &str| {
        let (key, length) = (front.key.expose(), body.len());
        format!(
            "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\n{more}X-Api-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let mut silent = TcpStream::connect(address).await.unwrap();
    silent.write_all(request(&large, "").as_bytes()).await.unwrap();
    eventually("the large answer", || backend.calls() == 1).await;
    for _ in 0..20 {
        let answer = front.raw(address, request(PING, "Connection: close\r\n").as_bytes()).await;
        assert_eq!(status(&answer), Some(200));
    }
    let metric = || front.door.metrics.text(false).unwrap().1;
    eventually("cut", || metric().contains("connections_cut_total{listener=\"public\",reason=\"slow_reader\"} 1"))
        .await;
    eventually("let go", || backend.open() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_has_its_time() {
    let backend = pong().await;
    let front = Front::new(&limited(backend.port, &json!({"bodyTimeoutMs": 30_000})));
    let drops = futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, BodyError>(http_body::Frame::data(Bytes::from_static(b" "))), ()))
    });
    let mut request = front.post("");
    *request.body_mut() = StreamBody::new(drops).boxed_unsync();
    let begin = crate::clock::instant();
    let (status, text) = super::front::text(front.ask(request).await).await;
    assert!(status == 408 && text.contains("the request body did not arrive in time"), "{status} {text}");
    let took = (crate::clock::instant() - begin).as_secs();
    assert!((30..=32).contains(&took), "{took}");
    assert_eq!((backend.calls(), front.refused("body_slow")), (0, 1));
}

/// A body of which a byte comes now and then.
fn drips() -> Body {
    let bytes = futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Ok::<_, BodyError>(http_body::Frame::data(Bytes::from_static(b" "))), ()))
    });
    StreamBody::new(bytes).boxed_unsync()
}

#[tokio::test]
async fn a_body_that_drips_is_told_and_its_connection_of_http_1_closed() {
    let backend = pong().await;
    let front = Front::new(&limited(backend.port, &json!({"bodyTimeoutMs": 1000})));
    let address = front.listen().await;
    for (count, framing) in (1..).zip(["Content-Length: 1000000", "Transfer-Encoding: chunked"]) {
        let (mut answers, mut requests) = TcpStream::connect(address).await.unwrap().into_split();
        let head = format!(
            "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nX-Api-Key: {}\r\n\
             Content-Type: application/json\r\n{framing}\r\n\r\n",
            front.key.expose()
        );
        requests.write_all(head.as_bytes()).await.unwrap();
        let piece = if framing.starts_with('T') { "1\r\n \r\n" } else { " " };
        let mut drops = drips();
        let dripping = async {
            while drops.frame().await.is_some() && requests.write_all(piece.as_bytes()).await.is_ok() {}
            std::future::pending::<()>().await;
        };
        let mut answer = String::new();
        tokio::select! {
            read = tokio::time::timeout(Duration::from_secs(10), answers.read_to_string(&mut answer)) => {
                read.expect("closed within 10 s").unwrap();
            }
            () = dripping => {}
        }
        assert_eq!(status(&answer), Some(408), "{answer}");
        assert!(answer.contains("connection: close\r\n") && answer.ends_with("}}"), "{answer}");
        assert_eq!((backend.calls(), front.refused("body_slow")), (0, count));
    }
}

#[tokio::test]
async fn a_body_that_drips_is_told_on_its_stream_and_the_others_of_http_2_go_on() {
    let backend = pong().await;
    let front = Front::new(&limited(backend.port, &json!({"bodyTimeoutMs": 1000})));
    let stream = TcpStream::connect(front.listen().await).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    front.run(async move {
        let _ = connection.await;
    });
    let request = |body: Body| {
        let mut request = front.post("").map(|_| body);
        request.headers_mut().remove("host");
        *request.uri_mut() = "http://mcp.example.com/weather/mcp".parse().unwrap();
        request
    };
    for count in 1..=3 {
        let response = tokio::time::timeout(Duration::from_secs(10), sender.send_request(request(drips())));
        let response = response.await.expect("an answer within 10 s").unwrap();
        assert_eq!(response.status(), 408);
        assert!(response.collect().await.unwrap().to_bytes().ends_with(b"}}"));
        assert_eq!((backend.calls(), front.refused("body_slow")), (count - 1, count as u64));
        let response = sender.send_request(request(full(PING))).await.unwrap();
        assert_eq!((response.status().as_u16(), backend.calls()), (200, count));
    }
}
