//! Raw sockets: framing and sizes.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::backend::Backend;
use super::eventually;
use super::front::{Front, http_config};
use crate::refusal;

const PING: &str = r#"{"jsonrpc":"2.0","id":"é","method":"ping"}"#;

async fn echo() -> Backend {
    Backend::start(|request| async move {
        refusal::json(StatusCode::OK, String::from_utf8(request.body().to_vec()).unwrap())
    })
    .await
}

fn head(front: &Front, host: &str, rest: &str) -> String {
    let key = front.key.expose();
    format!(
        "POST /weather/mcp HTTP/1.1\r\n{host}Authorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Connection: close\r\n{rest}\r\n"
    )
}

fn chunked(pieces: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A proxy in Go closes the connection under an answer that begins before the request is sent, and its client gets half.
#[tokio::test]
async fn a_refusal_waits_for_what_is_on_its_way() {
    let front = Front::new(&http_config(1));
    let mut stream = TcpStream::connect(front.listen().await).await.unwrap();
    let head = "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nContent-Type: application/json\r\nContent-Length: 2\r\n";
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let mut bytes = [0; 4096];
    let early = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut bytes)).await;
    assert!(early.is_err(), "{early:?}");
    stream.write_all(b"{}").await.unwrap();
    let length = stream.read(&mut bytes).await.unwrap();
    let answer = String::from_utf8_lossy(&bytes[..length]);
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.ends_with("}}"), "{answer}");
    assert!(answer.contains("content-length: "), "{answer}");

    // Whoever asks first is told at once.
    stream.write_all(format!("{head}Expect: 100-continue\r\n\r\n").as_bytes()).await.unwrap();
    let length = stream.read(&mut bytes).await.unwrap();
    let answer = String::from_utf8_lossy(&bytes[..length]);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[tokio::test]
async fn a_body_may_come_in_any_pieces() {
    let backend = echo().await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    let mut request = head(&front, "Host: mcp.example.com\r\n", "Transfer-Encoding: chunked\r\n").into_bytes();
    let bytes: Vec<&[u8]> = PING.as_bytes().chunks(1).collect(); // splits the letter é, too
    request.extend(chunked(&bytes));
    // Byte by byte on the wire.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in &request {
        stream.write_all(&[*byte]).await.unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(PING), "{answer}");
    assert_eq!(backend.last().body(), PING.as_bytes());
    assert_eq!(backend.last().headers()["content-length"], PING.len().to_string().as_str());
}

/// Letters of several bytes across the edges of reads and chunks.
#[tokio::test]
async fn letters_may_be_split_anywhere() {
    let backend = Backend::start(|_| async { refusal::json(StatusCode::OK, "1".into()) }).await;
    let mut config = http_config(backend.port);
    config["limits"]["bodyBytes"] = 1_000_000.into();
    let front = Front::new(&config);
    let address = front.listen().await;
    for shift in 0..4 {
        let text = format!("{}{}", "a".repeat(shift), "é€😀".repeat(9000));
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"text":"{text}"}}}}"#);
        for size in [1021, 8192, 65536] {
            let mut request = head(&front, "Host: mcp.example.com\r\n", "Transfer-Encoding: chunked\r\n").into_bytes();
            request.extend(chunked(&body.as_bytes().chunks(size).collect::<Vec<_>>()));
            assert!(front.raw(address, &request).await.starts_with("HTTP/1.1 200"));
            assert!(backend.last().body() == body.as_bytes());
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_the_answer_arrives() {
    let backend = echo().await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    let large = vec![b' '; 1024 * 1024];
    let length = format!("Content-Length: {}\r\n", large.len());
    let mut declared = head(&front, "Host: mcp.example.com\r\n", &length).into_bytes();
    declared.extend_from_slice(&large);
    let mut streamed = head(&front, "Host: mcp.example.com\r\n", "Transfer-Encoding: chunked\r\n").into_bytes();
    streamed.extend(chunked(&large.chunks(1000).collect::<Vec<_>>()));
    for request in [declared, streamed] {
        let answer = front.raw(address, &request).await;
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("\"code\":413"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    // A declared size is refused before any of it is sent.
    let request = head(&front, "Host: mcp.example.com\r\n", "Content-Length: 1073741824\r\n");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 413");
    assert_eq!(front.refused("too_large"), 3);
    assert_eq!(backend.calls(), 0);
    // The limit itself passes.
    let fitting = format!("{}{PING}", " ".repeat(4096 - PING.len()));
    let request = head(&front, "Host: mcp.example.com\r\n", "Content-Length: 4096\r\n") + &fitting;
    assert!(front.raw(address, request.as_bytes()).await.starts_with("HTTP/1.1 200"));
}

/// What is refused is thrown away as it comes, and not for ever.
#[tokio::test]
async fn a_body_without_end_is_refused_and_its_sender_cut_off() {
    let backend = echo().await;
    let front = Front::new(&http_config(backend.port));
    let (mut answers, mut requests) = TcpStream::connect(front.listen().await).await.unwrap().into_split();
    let sending = async {
        let begin = head(&front, "Host: mcp.example.com\r\n", "Transfer-Encoding: chunked\r\n");
        requests.write_all(begin.as_bytes()).await.unwrap();
        let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, " ".repeat(64 * 1024));
        let mut chunks = 0;
        while requests.write_all(chunk.as_bytes()).await.is_ok() {
            chunks += 1;
        }
        chunks
    };
    let reading = async {
        let mut begin = [0; 12];
        answers.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 413");
    };
    let (chunks, ()) =
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(sending, reading) }).await.unwrap();
    assert!(chunks > 0, "far beyond the limit of 4096 bytes");
    assert_eq!((front.refused("too_large"), backend.calls()), (1, 0));
}

#[tokio::test]
async fn a_refusal_arrives_before_a_large_body_is_sent() {
    let backend = echo().await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    let body = "x".repeat(3 * 1024 * 1024);
    let request = format!(
        "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(front.raw(address, request.as_bytes()).await.starts_with("HTTP/1.1 401"));
}

/// Its sender goes, politely or not; nobody else is concerned.
#[tokio::test]
async fn a_body_that_breaks_off_reaches_nobody_and_the_next_request_is_served() {
    let backend = echo().await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    let held = || {
        let told = front.door.metrics.text(false).unwrap().1;
        told.lines().find_map(|line| line.strip_prefix("mooring_server_body_bytes ")?.parse::<u32>().ok())
    };
    let declared = head(&front, "Host: mcp.example.com\r\n", "Content-Length: 100\r\n") + &PING[..10];
    let streamed = head(&front, "Host: mcp.example.com\r\n", "Transfer-Encoding: chunked\r\n") + "64\r\n" + &PING[..10];
    let cases = [(&declared, false), (&declared, true), (&streamed, false), (&streamed, true)];
    for (count, (request, reset)) in (1..).zip(cases) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        eventually("its body is waited for", || held() == Some(10)).await;
        if reset {
            stream.set_zero_linger().unwrap();
        } else {
            stream.shutdown().await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("broke off"), "{answer}");
        }
        drop(stream);
        eventually("counted", || front.refused("body_broken") == count).await;
        assert_eq!((backend.calls(), held()), (0, Some(0)));
    }
    let length = format!("Content-Length: {}\r\n", PING.len());
    let request = head(&front, "Host: mcp.example.com\r\n", &length) + PING;
    assert!(front.raw(address, request.as_bytes()).await.starts_with("HTTP/1.1 200"));
    assert_eq!(backend.calls(), 1);
}

#[tokio::test]
async fn wrong_utf8_and_garbage_are_refused_and_the_next_request_is_served() {
    let backend = echo().await;
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    for body in [&b"{\"id\":1,\"method\":\"\xc3\"}"[..], b"\x00", b"{\"id\":1,\"method\":\"\x00\"}"] {
        let length = format!("Content-Length: {}\r\n", body.len());
        let mut request = head(&front, "Host: mcp.example.com\r\n", &length).into_bytes();
        request.extend_from_slice(body);
        assert!(front.raw(address, &request).await.starts_with("HTTP/1.1 400"));
    }
    // Whatever else it is: its sender is told, and the connection closed.
    let garbage: [(&[u8], u16); 11] = [
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/1.1 x\r\n\r\n", 400),
        (b"get / http/1.1\r\n\r\n", 400),
        (b"\xff\xff\xff\xff\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400), // the begin of TLS
        (b"POST / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\x00\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 505), // nearly HTTP/2
    ];
    for (bytes, status) in garbage {
        let (answer, sent) = (front.raw(address, bytes).await, String::from_utf8_lossy(bytes));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{sent:?}: {answer}");
        assert!(answer.contains("connection: close\r\n") && answer.ends_with("}}"), "{sent:?}: {answer}");
    }
    let length = format!("Content-Length: {}\r\n", PING.len());
    let request = head(&front, "Host: mcp.example.com\r\n", &length) + PING;
    assert!(front.raw(address, request.as_bytes()).await.starts_with("HTTP/1.1 200"));
    assert_eq!(backend.calls(), 1);
}

#[tokio::test]
async fn a_connection_that_never_asks_is_closed() {
    let mut config = http_config(9);
    let front = Front::new(&config);
    let address = front.listen().await;
    // A change holds for connections that are opened then.
    config["limits"] = json!({"headerTimeoutMs": 1000, "idleTimeoutMs": 5000});
    front.config.swap(&[("config.json", &config.to_string())]);
    front.reloader().reload();
    // Nothing, the begin of what may become HTTP/2, and half a head.
    let heads = [&b""[..], b"PRI", b"GET / HTTP/1.1\r\nHost: x"];
    let answers = futures::future::join_all(heads.map(|bytes| front.raw(address, bytes)));
    let answers = tokio::time::timeout(Duration::from_secs(30), answers).await.expect("closed in their time");
    for (bytes, answer) in heads.iter().zip(answers) {
        assert_eq!(answer.starts_with("HTTP/1.1 408"), !bytes.is_empty(), "{answer}");
        assert!(!bytes.is_empty() || answer.is_empty(), "{answer}");
    }
    assert_eq!(front.refused("head_slow"), 2);
    let idle = "connections_cut_total{listener=\"public\",reason=\"idle\"} 1";
    let (_, text) = front.door.metrics.text(false).unwrap();
    assert!(text.contains(idle), "{text}");
}
