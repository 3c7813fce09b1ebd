//! Raw sockets: what two parsers could read in two ways is refused before the backend, with an answer that arrives.

use http::StatusCode;

use super::backend::Backend;
use super::front::{Front, http_config};
use crate::refusal::json;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

async fn pong() -> Backend {
    Backend::start(|_| async { json(StatusCode::OK, "\"pong\"".into()) }).await
}

/// A front door, and what makes requests to it.
struct Wire {
    front: Front,
    backend: Backend,
    address: std::net::SocketAddr,
}

impl Wire {
    async fn new() -> Self {
        let backend = pong().await;
        let front = Front::new(&http_config(backend.port));
        let address = front.listen().await;
        Self { front, backend, address }
    }

    /// The begin of a request that lacks only its framing.
    fn head(&self) -> String {
        let key = self.front.key.expose();
        format!(
            "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n"
        )
    }

    /// A request that is served.
    fn good(&self) -> String {
        format!("{}Content-Length: {}\r\n\r\n{PING}", self.head(), PING.len())
    }

    /// The status of each answer, until the front door closes the connection. Each has a body in the form of all refusals.
    async fn statuses(&self, bytes: &[u8]) -> Vec<u16> {
        let text = self.front.raw(self.address, bytes).await;
        let answers = text.split("HTTP/1.1 ").filter_map(|answer| Some((answer, answer.get(..3)?.parse().ok()?)));
        answers
            .map(|(answer, status): (_, u16)| {
                let refusal = format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{status},"#);
                assert!(status == 200 || answer.contains(&refusal), "{answer}");
                assert!(status == 200 || answer.contains("connection: close\r\n"), "{answer}");
                assert!(answer.contains("x-request-id: "), "{answer}");
                status
            })
            .collect()
    }
}

#[tokio::test]
async fn a_head_that_is_not_framed_in_one_way_is_refused() {
    let wire = Wire::new().await;
    let length = PING.len();
    let framings = [
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: {length}, {length}\r\n"),
        format!("Content-Length: +{length}\r\n"),
        "Content-Length: -1\r\n".into(),
        "Content-Length:\r\n".into(),
        "Content-Length: 4 0\r\n".into(),
        "Content-Length: 0x28\r\n".into(),
        "Content-Length: 18446744073709551656\r\n".into(),
        format!("Content-Length : {length}\r\n"),
        format!("Content-Length\t: {length}\r\n"),
        format!(" Content-Length: {length}\r\n"),
        format!("Content-Length: {length}\n"),
        format!("X: a\nContent-Length: {length}\r\n"),
        format!("X: a\rContent-Length: {length}\r\n"),
        format!("X: a\r\n b\r\nContent-Length: {length}\r\n"),
        format!("X: a\0\r\nContent-Length: {length}\r\n"),
        format!("X\0: a\r\nContent-Length: {length}\r\n"),
        format!("X: a\x7f\r\nContent-Length: {length}\r\n"),
        format!(": a\r\nContent-Length: {length}\r\n"),
        format!("X a\r\nContent-Length: {length}\r\n"),
        format!("X Y: a\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\n\n"),
        "Transfer-Encoding: gzip, chunked\r\n".into(),
        "Transfer-Encoding: chunked, chunked\r\n".into(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".into(),
        "Transfer-Encoding: identity\r\n".into(),
        "Transfer-Encoding: xchunked\r\n".into(),
        "Transfer-Encoding: chunked;a=b\r\n".into(),
        "Transfer-Encoding: \x0bchunked\r\n".into(),
        "Transfer-Encoding: chunked\r\n , identity\r\n".into(),
    ];
    for framing in &framings {
        // What follows would be a request of its own in another reading.
        let bad = format!("{}{framing}\r\n{PING}{}", wire.head(), wire.good());
        assert_eq!(wire.statuses(bad.as_bytes()).await, [400], "{framing:?}");
        assert_eq!(wire.backend.calls(), 0, "{framing:?}");
    }
    // The same behind a request that is served keeps the order.
    for (count, framing) in framings.iter().enumerate() {
        let bytes = format!("{}{}{framing}\r\n{PING}{}", wire.good(), wire.head(), wire.good());
        assert_eq!(wire.statuses(bytes.as_bytes()).await, [200, 400], "{framing:?}");
        assert_eq!(wire.backend.calls(), count + 1, "{framing:?}");
    }
}

#[tokio::test]
async fn a_request_line_that_is_none_is_refused() {
    let wire = Wire::new().await;
    let rest = wire.good().split_once("\r\n").unwrap().1.to_owned();
    let cases: [(&[u8], u16); 22] = [
        (b"POST  /weather/mcp HTTP/1.1", 400),
        (b"POST /weather/mcp  HTTP/1.1", 400),
        (b"POST /weather/mcp HTTP/1.1 ", 400),
        (b" POST /weather/mcp HTTP/1.1", 400),
        (b"POST\t/weather/mcp HTTP/1.1", 400),
        (b"POST /weather/mcp", 400),
        (b"POST /weather/ mcp HTTP/1.1", 400),
        (b"POST /weather/mcp http/1.1", 400),
        (b"POST /weather/mcp HTTP/1.1\r", 400),
        (b"PO:ST /weather/mcp HTTP/1.1", 400),
        (b"POST /weather/mcp\0 HTTP/1.1", 400),
        (b"POST /weather/\xc3\xa9 HTTP/1.1", 400),
        (b"\r\n\r\nPOST /weather/mcp HTTP/1.1", 400),
        // An authority is the target of CONNECT alone.
        (b"POST mcp.example.com HTTP/1.1", 400),
        (b"POST * HTTP/1.1", 400),
        // What the library would refuse in words of its own, or take for something else.
        (b"POST /weather/mcp?\" HTTP/1.1", 400),
        (b"POST /weather/mcp` HTTP/1.1", 400),
        (b"POST http://[::1 HTTP/1.1", 400),
        (b"POST /weather/mcp#x HTTP/1.1", 400),
        (b"POST /weather/mcp HTTP/1.2", 505),
        (b"POST /weather/mcp HTTP/2.0", 505),
        (b"POST /weather/mcp HTTP/0.9", 505),
    ];
    for (count, (line, expected)) in (1..).zip(cases) {
        let bytes = [line, b"\r\n", rest.as_bytes()].concat();
        assert_eq!(wire.statuses(&bytes).await, [expected], "{}", String::from_utf8_lossy(line));
        assert_eq!(wire.front.refused("framing"), count, "{}", String::from_utf8_lossy(line));
    }
    // A client that speaks TLS is not left waiting for the end of its line.
    assert_eq!(wire.statuses(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await, [400]);
    assert_eq!(wire.backend.calls(), 0);
}

#[tokio::test]
async fn a_malformed_chunk_is_refused_and_the_backend_is_not_called() {
    let wire = Wire::new().await;
    let size = format!("{:x}", PING.len());
    let long = "a".repeat(2000);
    let bodies = [
        format!("+{size}\r\n{PING}\r\n0\r\n\r\n"),
        format!("-{size}\r\n{PING}\r\n0\r\n\r\n"),
        format!("0x{size}\r\n{PING}\r\n0\r\n\r\n"),
        format!(" {size}\r\n{PING}\r\n0\r\n\r\n"),
        format!("{size} \r\n{PING}\r\n0\r\n\r\n"),
        format!("{size}\n{PING}\r\n0\r\n\r\n"),
        format!("{size}\r\n{PING}\n0\r\n\r\n"),
        format!("{size}\r\n{PING}0\r\n\r\n"),
        format!("{size}\r\n{PING}\r\n\r\n"),
        format!("{size}\r\n{PING}\r\n0\n\n"),
        format!("{size}\r\n{PING}\r\n0\r\n\n"),
        format!("{size};a\nb\r\n{PING}\r\n0\r\n\r\n"),
        format!("{size};a\rb\r\n{PING}\r\n0\r\n\r\n"),
        format!("{size};{long}\r\n{PING}\r\n0\r\n\r\n"),
        format!("1000000000000000{size}\r\n{PING}\r\n0\r\n\r\n"),
        format!("{size}\r\n{PING}\r\n0\r\nno colon\r\n\r\n"),
        format!("{size}\r\n{PING}\r\n0\r\nA: b\r\n c\r\n\r\n"),
        format!("{size}\r\n{PING}\r\n0\r\nA: b\nC: d\r\n\r\n"),
    ];
    for body in &bodies {
        let bytes = format!("{}Transfer-Encoding: chunked\r\n\r\n{body}{}", wire.head(), wire.good());
        assert_eq!(wire.statuses(bytes.as_bytes()).await, [400], "{body:?}");
        assert_eq!(wire.backend.calls(), 0, "{body:?}");
    }
}

#[tokio::test]
async fn what_is_framed_in_one_way_is_served() {
    let wire = Wire::new().await;
    let (head, length) = (wire.head(), PING.len());
    let (one, two) = PING.split_at(7);
    let pieces = format!("{:X};x=\"y\"\r\n{one}\r\n{:x} \t;z\r\n{two}\r\n", one.len(), two.len());
    let requests = [
        format!("{head}Content-Length: {length}\r\n\r\n{PING}"),
        format!("{head}content-length:\t000{length} \r\n\r\n{PING}"),
        format!("{head}Transfer-Encoding: CHUNKED\r\n\r\n{pieces}0\r\n\r\n"),
        format!(
            "{head}Transfer-Encoding: chunked\r\nTrailer: A\r\n\r\n{pieces}00\r\nA: b\r\nContent-Length: 3\r\n\r\n"
        ),
        format!("\r\n{head}Content-Length: {length}\r\n\r\n{PING}"),
    ];
    // All at once, on one connection, with a last one that closes it.
    let close = wire.good().replacen("Host", "Connection: close\r\nHost", 1);
    let bytes = requests.concat() + &close;
    assert_eq!(wire.statuses(bytes.as_bytes()).await, [200; 6]);
    assert_eq!(wire.backend.calls(), 6);
    for seen in wire.backend.seen() {
        assert_eq!(seen.body(), PING.as_bytes());
        assert_eq!(seen.headers()["content-length"], length.to_string().as_str());
        assert!(!seen.headers().contains_key("transfer-encoding") && !seen.headers().contains_key("trailer"));
    }
}

#[tokio::test]
async fn an_absolute_form_names_the_host() {
    let wire = Wire::new().await;
    let good = wire.good().replacen("Host", "Connection: close\r\nHost", 1);
    for (target, expected) in [
        ("http://mcp.example.com/weather/mcp", 200),
        ("HTTPS://mcp.example.com/weather/mcp", 200), // a proxy may have ended TLS
        ("ftp://mcp.example.com/weather/mcp", 421),
        ("httpx://mcp.example.com/weather/mcp", 421),
        ("http://evil.example.com/weather/mcp", 400),
        ("http://mcp.example.com:81/weather/mcp", 400),
        ("http://user@mcp.example.com/weather/mcp", 400),
    ] {
        let text = wire.front.raw(wire.address, good.replacen("/weather/mcp", target, 1).as_bytes()).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {expected} ")), "{target}: {text}");
    }
    assert_eq!(wire.backend.calls(), 2);
}

#[tokio::test]
async fn the_answer_arrives_though_much_follows() {
    let wire = Wire::new().await;
    let bytes = format!("{}X: a\n\r\n{}", wire.head(), "x".repeat(4 * 1024 * 1024));
    assert_eq!(wire.statuses(bytes.as_bytes()).await, [400]);
    assert_eq!(wire.front.refused("framing"), 1);
}

#[tokio::test]
async fn no_upgrade_passes() {
    let wire = Wire::new().await;
    let upgrade =
        "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nHost";
    let bytes = wire.good().replacen("Host", upgrade, 1);
    assert_eq!(wire.statuses(bytes.as_bytes()).await, [200]);
    let last = wire.backend.last();
    for name in ["upgrade", "http2-settings", "connection"] {
        assert!(!last.headers().contains_key(name), "{name}");
    }
}
