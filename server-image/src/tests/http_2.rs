//! HTTP/2 frame by frame: heads that unfold, and that never end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::backend::Backend;
use super::eventually;
use super::front::{Front, http_config};
use crate::refusal;

/// How a client begins: with a line of its own, and a SETTINGS frame that changes nothing.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u8 = 11;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The frames in what was received: kind, stream and payload of each.
pub fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut frames = Vec::new();
    while bytes.len() >= 9 {
        let (prefix, rest) = bytes.split_at(9);
        let length = u32::from_be_bytes([0, prefix[0], prefix[1], prefix[2]]) as usize;
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        let stream = u32::from_be_bytes([prefix[5], prefix[6], prefix[7], prefix[8]]);
        frames.push((prefix[3], stream, payload));
        bytes = rest;
    }
    frames
}

/// A head in HPACK: the method, `http`, a path, an authority; all but the first and the second not indexed.
pub fn head(method: &str, path: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let method = if method == "POST" { 0x83 } else { 0x82 };
    [vec![method, 0x86], literal(0x04, path), literal(0x01, "mcp.example.com")].concat()
}

/// A client that reads whatever comes.
struct Client {
    writing: OwnedWriteHalf,
    reading: JoinHandle<()>,
    read: Arc<Mutex<Vec<u8>>>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let (mut reading, mut writing) = TcpStream::connect(address).await.unwrap().into_split();
        writing.write_all(PREFACE).await.unwrap();
        let read = Arc::<Mutex<Vec<u8>>>::default();
        let so_far = Arc::clone(&read);
        let reading = TaskTracker::new().spawn(async move {
            let mut bytes = [0; 4096];
            // Closed or reset: either way it ends.
            while let Ok(length @ 1..) = reading.read(&mut bytes).await {
                so_far.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self { writing, reading, read }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.writing.write_all(bytes).await.unwrap();
    }

    /// Sends the same until that is not possible any more.
    async fn flood(&mut self, bytes: &[u8]) {
        while self.writing.write_all(bytes).await.is_ok() {}
    }

    /// Waits until an answer begins on a stream.
    async fn answered(&self, stream: u32) {
        let begun = || frames(&self.read.lock().unwrap()).iter().any(|frame| (frame.0, frame.1) == (HEADERS, stream));
        eventually(&format!("an answer on stream {stream}"), begun).await;
    }

    /// The error code with which the server ends the connection.
    async fn farewell(self) -> Option<u8> {
        let Self { writing, reading, read } = self;
        reading.await.unwrap();
        drop(writing);
        let read = read.lock().unwrap();
        frames(&read).iter().find(|(kind, ..)| *kind == GOAWAY).map(|(.., payload)| payload[7])
    }
}

fn cut(front: &Front, reason: &str) -> usize {
    let sample = format!("mooring_server_connections_cut_total{{listener=\"public\",reason=\"{reason}\"}} ");
    let (_, text) = front.door.metrics.text(false).unwrap();
    text.lines().find_map(|line| line.strip_prefix(&sample)).map_or(0, |count| count.parse().unwrap())
}

async fn is_served(front: &Front, address: SocketAddr) {
    let answer = front.raw(address, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// A few bytes on the wire that stand for many (RFC 7541 section 7.3): a field is told once, and named with a byte then.
#[tokio::test]
async fn heads_that_unfold_are_refused_and_those_that_unfold_far_end_the_connection() {
    /// With name and overhead 1033 bytes.
    const VALUE: usize = 1000;
    let backend = Backend::start(|_| async { refusal::json(StatusCode::OK, "1".into()) }).await;
    let mut config = http_config(backend.port);
    config["limits"] = json!({"headerBytes": 4096});
    let front = Front::new(&config);
    let address = front.listen().await;
    let mut client = Client::connect(address).await;
    let told = [&[0x40, 1, b'a', 0x7f, 0xe9, 0x06][..], &[b'x'; VALUE]].concat();
    let first = [head("GET", "/health"), told].concat();
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &first)).await;
    let unfolding = |fields: usize| [head("POST", "/weather/mcp"), vec![0xbe; fields]].concat();
    // As many as may be open, each with a body that never comes.
    let heads: Vec<u8> =
        (1..=255).flat_map(|number| frame(HEADERS, END_HEADERS, 2 * number + 1, &unfolding(7))).collect();
    client.send(&heads).await;
    eventually("refused", || front.refused("head_too_large") == 255).await;
    assert_eq!(backend.calls(), 0);
    // From here on it is the library that refuses, first one request and then the connection.
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 601, &unfolding(20))).await;
    client.answered(601).await;
    assert_eq!(cut(&front, "enhance_your_calm"), 0);
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 603, &unfolding(60))).await;
    assert_eq!(client.farewell().await, Some(ENHANCE_YOUR_CALM));
    assert_eq!((front.refused("head_too_large"), cut(&front, "enhance_your_calm")), (255, 1));
    assert_eq!(backend.calls(), 0);
    is_served(&front, address).await;
}

/// CVE-2024-27316: a head that goes on and on, in frames of any size. More of them than a head needs end the connection.
#[tokio::test]
async fn a_head_without_end_ends_the_connection_and_nothing_else() {
    let front = Front::new(&http_config(1));
    let address = front.listen().await;
    let field = b"\x10\x01a\x01b"; // never indexed
    let large = field.repeat(3000);
    let floods: [(&[u8], usize); 3] = [(b"", 1), (field, 2), (&large, 3)];
    for (fragment, ended) in floods {
        let mut client = Client::connect(address).await;
        client.send(&frame(HEADERS, END_STREAM, 1, &head("GET", "/health"))).await;
        client.flood(&frame(CONTINUATION, 0, 1, fragment)).await;
        assert_eq!(client.farewell().await, Some(ENHANCE_YOUR_CALM), "{} bytes", fragment.len());
        assert_eq!(cut(&front, "enhance_your_calm"), ended);
        is_served(&front, address).await;
    }
}

/// The library sends no 100 (Continue) in HTTP/2: who waits for it is refused without a body, and served once that comes.
#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body_of_who_waits_for_a_word() {
    let backend = Backend::start(|_| async { refusal::json(StatusCode::OK, "1".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::connect(front.listen().await).await;
    let with = |fields: &[(&str, &str)]| {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let fields = fields.iter().map(|(name, value)| [vec![0x10], text(name), text(value)].concat());
        [head("POST", "/weather/mcp"), fields.collect::<Vec<_>>().concat()].concat()
    };
    let expect = ("expect", "100-continue");
    let unexpecting = frame(HEADERS, END_HEADERS, 1, &with(&[]));
    client.send(&[unexpecting, frame(HEADERS, END_HEADERS, 3, &with(&[expect]))].concat()).await;
    client.answered(1).await;
    let read = client.read.lock().unwrap().clone();
    let answers = frames(&read).into_iter().filter(|(kind, ..)| *kind == HEADERS).map(|(_, stream, _)| stream);
    assert_eq!(answers.collect::<Vec<_>>(), [3, 1], "the other waited for its body a moment");
    assert_eq!((front.refused("unauthorized"), backend.calls()), (2, 0));
    let fields = [expect, ("content-type", "application/json"), ("x-api-key", front.key.expose())];
    client.send(&frame(HEADERS, END_HEADERS, 5, &with(&fields))).await;
    client.send(&frame(DATA, END_STREAM, 5, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await;
    client.answered(5).await;
    assert_eq!(backend.calls(), 1);
}
