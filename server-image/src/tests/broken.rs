//! Answers that break off: what came of them before reaches their clients, directly and through another pod.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::front::{Front, http_config};
use super::sessions::fleet::{CALL, Fleet, answer};

const NOTED: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n";
const ANSWERED: &str = "data: {\"jsonrpc\":\"2.0\",\"id\":\"c\",\"result\":{}}\n\n";

/// More is not looked at each time that something comes.
const FEW: usize = 4096;

/// A server that begins sessions, and answers all else with a head and these pieces. Each but the first waits until it is
/// told to go on; behind the last it closes at once.
pub struct Breaking {
    pub port: u16,
    goes_on: Arc<Notify>,
}

impl Breaking {
    pub async fn start(head: &'static str, pieces: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let breaking = Self { port: listener.local_addr().unwrap().port(), goes_on: Arc::default() };
        let goes_on = Arc::clone(&breaking.goes_on);
        tokio_util::task::TaskTracker::new().spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 8192];
                let length = stream.read(&mut request).await.unwrap();
                if String::from_utf8_lossy(&request[..length]).contains("\"initialize\"") {
                    let begun = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
                                 Mcp-Session-Id: 0b6f4d5e-8f0e-4f43-9e58-000000000000\r\nConnection: close\r\n\r\n{}";
                    stream.write_all(begun.as_bytes()).await.unwrap();
                    continue;
                }
                let mut said = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
                for (number, piece) in pieces.iter().enumerate() {
                    if number > 0 {
                        goes_on.notified().await;
                    }
                    said += piece;
                    stream.write_all(said.as_bytes()).await.unwrap();
                    said.clear();
                }
            }
        });
        breaking
    }
}

/// Two pods before it.
async fn pods(breaking: &Breaking) -> Fleet {
    let nobody = super::backend::Backend::start(|_| std::future::pending()).await;
    let port = breaking.port;
    Fleet::of(&[&nobody, &nobody], |config| config["source"]["http"]["port"] = port.into()).await
}

/// A request for a session, as a client sends it.
fn request(front: &Front, method: &str, session: &str) -> Request<Full<Bytes>> {
    let (accept, body) = match method {
        "POST" => ("application/json, text/event-stream", CALL),
        _ => ("text/event-stream", ""),
    };
    let request = Request::builder().method(method).uri("http://mcp.example.com/weather/mcp");
    let request = request.header("x-api-key", front.key.expose()).header("accept", accept);
    let request = request.header("content-type", "application/json").header("mcp-session-id", session);
    request.body(Full::from(body)).unwrap()
}

/// What a client reads until nothing more comes, and whether that was the end.
async fn over_http_1(address: SocketAddr, request: Request<Full<Bytes>>, breaking: &Breaking) -> (String, bool) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let fields = head.headers.iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
    let text = [
        format!("{} {} HTTP/1.1\r\nhost: mcp.example.com\r\n", head.method, head.uri.path()),
        fields.collect(),
        format!("content-length: {}\r\n\r\n{}", body.len(), std::str::from_utf8(&body).unwrap()),
    ]
    .concat();
    stream.write_all(text.as_bytes()).await.unwrap();
    let (mut read, mut bytes) = (String::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut bytes).await {
        read += std::str::from_utf8(&bytes[..length]).unwrap();
        if read.len() < FEW && read.contains(NOTED) {
            breaking.goes_on.notify_one();
        }
    }
    let whole = read.ends_with("\r\n0\r\n\r\n");
    let (head, mut rest) = read.split_once("\r\n\r\n").unwrap_or((&read, ""));
    let mut said = format!("{head}\r\n\r\n");
    while let Some((length, more)) = rest.split_once("\r\n").filter(|_| head.contains("chunked")) {
        let piece = more.get(..usize::from_str_radix(length, 16).unwrap()).unwrap_or(more);
        said += piece;
        rest = more.get(piece.len() + 2..).unwrap_or_default();
    }
    (said + rest, whole)
}

async fn over_http_2(address: SocketAddr, request: Request<Full<Bytes>>, breaking: &Breaking) -> (String, bool) {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let connection = tokio_util::task::TaskTracker::new().spawn(connection);
    let answer = sender.send_request(request).await;
    let mut read = String::new();
    let Ok(mut answer) = answer else { return (format!("{answer:?}"), false) };
    let whole = loop {
        match answer.frame().await {
            None => break true,
            Some(Err(_)) => break false,
            Some(Ok(frame)) => read += std::str::from_utf8(frame.data_ref().unwrap()).unwrap(),
        }
        if read.len() < FEW && read.contains(NOTED) {
            breaking.goes_on.notify_one();
        }
    };
    connection.abort();
    (format!("HTTP/2 {}\r\n{read}", answer.status().as_u16()), whole)
}

/// Asks for it in every way.
async fn everywhere(breaking: &Breaking, methods: &[&str], judge: impl Fn(&str, &str)) {
    let fleet = pods(breaking).await;
    let session = fleet.initialize(0).await;
    for (number, way) in [(0, "directly"), (1, "through another pod")] {
        let front = &fleet.pods[number];
        let address = front.listen().await;
        for method in methods {
            let request = || request(front, method, session.to_str().unwrap());
            let (said, whole) = over_http_1(address, request(), breaking).await;
            let how = format!("{method} over HTTP/1 {way}");
            assert!(!whole, "{how}: it looks as if that were all: {said}");
            judge(&said, &how);
            let (said, whole) = over_http_2(address, request(), breaking).await;
            let how = format!("{method} over HTTP/2 {way}");
            assert!(!whole, "{how}: it looks as if that were all: {said}");
            judge(&said, &how);
        }
    }
}

const EVENTS: &str = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked";
/// Chunks with an event each; the last chunk, which ends an answer, comes behind neither.
const NOTED_CHUNK: &str = "34\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n\r\n";
const ANSWERED_CHUNK: &str = "2e\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"c\",\"result\":{}}\n\n\r\n";

#[tokio::test]
async fn what_came_with_the_break_of_a_stream_reaches_the_client() {
    // More than the sockets hold.
    let long = format!("{:x}\r\n: {}\n\n\r\n{ANSWERED_CHUNK}", (8 << 20) + 4, "x".repeat(8 << 20)).leak();
    for pieces in [vec![ANSWERED_CHUNK], vec![NOTED_CHUNK, ANSWERED_CHUNK], vec![&*long]] {
        let breaking = Breaking::start(EVENTS, pieces.leak()).await;
        everywhere(&breaking, &["POST", "GET"], |said, how| {
            let begin = said.get(..200).unwrap_or(said);
            assert!(said.contains(" 200") && said.contains(ANSWERED), "{how}: {} bytes: {begin}", said.len());
        })
        .await;
    }
}

/// It is the server that is told to be at fault, not the pod.
#[tokio::test]
async fn a_stream_that_breaks_off_before_it_says_anything_has_begun() {
    let breaking = Breaking::start(EVENTS, &[""]).await;
    everywhere(&breaking, &["GET"], |said, how| assert!(said.contains(" 200"), "{how}: {said:?}")).await;
}

const SHORT: &str = "Content-Type: application/json\r\nContent-Length: 100";

/// Nothing of it has left yet, so its client is told what has happened, with the id that it waits for.
#[tokio::test]
async fn an_object_that_breaks_off_is_a_failure_of_the_server() {
    let breaking = Breaking::start(SHORT, &["{\"jsonrpc\":\"2.0\",\"id\":\"c\",\"res"]).await;
    let fleet = pods(&breaking).await;
    let session = fleet.initialize(0).await;
    for number in [0, 1] {
        let front = &fleet.pods[number];
        let (status, said) = answer(front, "POST", Some(&session)).await;
        assert_eq!(status, 502, "{number}: {said}");
        assert!(said.contains("\"id\":\"c\"") && said.contains("the MCP server"), "{number}: {said}");
        let errors = fleet.pods.iter().map(Front::backend_errors).collect::<Vec<_>>();
        assert_eq!(errors, [vec![format!("{{reason=\"backend_broken\"}} {}", 2 * number + 1)], vec![]], "{number}");
        assert_eq!(answer(front, "DELETE", Some(&session)).await.0, 502, "{number}");
    }
}

/// A long one has left in part. It is counted all the same.
#[tokio::test]
async fn an_object_that_breaks_off_late_breaks_off_and_is_counted() {
    let long = format!("{{\"x\":\"{}", "x".repeat(100_000)).leak();
    let breaking =
        Breaking::start("Content-Type: application/json\r\nContent-Length: 200000", vec![&*long].leak()).await;
    everywhere(&breaking, &["POST"], |said, how| assert!(said.ends_with(&*long), "{how}: {} bytes", said.len())).await;
    let front = Front::new(&http_config(breaking.port));
    assert!(front.ask(front.post(CALL)).await.into_body().collect().await.is_err());
    assert_eq!(front.backend_errors(), ["{reason=\"backend_broken\"} 1"]);
}
