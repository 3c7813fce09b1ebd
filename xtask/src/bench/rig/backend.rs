//! The tiny MCP server behind every proxy: it answers at once, and as cheaply as it can, so that what is measured is the proxy. It reads requests with
//! the framing that proxies send, and no more of HTTP. Its sessions are its own: it knows no id that it did not give.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::wire::{self, Incoming};

/// Bytes of the text in a large answer.
pub const LARGE: usize = 64 * 1024;
/// Bytes of the text in a huge answer.
pub const HUGE: usize = 10 * 1024 * 1024;

/// The ids of one server that are in use.
#[derive(Default)]
struct Sessions {
    /// How its ids begin.
    prefix: String,
    last: u64,
    open: HashSet<u64>,
}

impl Sessions {
    /// An id that no other server gives.
    fn begin(&mut self) -> String {
        self.last += 1;
        self.open.insert(self.last);
        format!("{}{:016x}", self.prefix, self.last)
    }

    /// The number of a session that is open.
    fn find(&self, id: &str) -> Option<u64> {
        let number = u64::from_str_radix(id.strip_prefix(&self.prefix)?, 16).ok()?;
        self.open.contains(&number).then_some(number)
    }
}

type Shared = Arc<Mutex<Sessions>>;

/// Starts a server, on the runtime that calls it and until that ends, and returns its port.
pub async fn start() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let sessions = Arc::new(Mutex::new(Sessions { prefix: format!("{port:016x}"), ..Sessions::default() }));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sessions = Arc::clone(&sessions);
            tokio::spawn(async move {
                // A proxy may close its connection at any time.
                let _ = connection(stream, &sessions).await;
            });
        }
    });
    Ok(port)
}

async fn connection(mut stream: TcpStream, sessions: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(8 * 1024);
    loop {
        let Some(request) = wire::read(&mut stream, &mut received).await? else { return Ok(()) };
        match answer(&request, sessions) {
            Some(answer) => stream.write_all(&answer).await?,
            None => return stream_without_end(stream).await,
        }
        received.drain(..request.length);
    }
}

/// An event stream on which nothing happens.
async fn stream_without_end(mut stream: TcpStream) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\n: \n\n\n\r\n").await?;
    while stream.read(&mut [0; 512]).await? > 0 {}
    Ok(())
}

/// `None`: a stream.
fn answer(request: &Incoming, sessions: &Shared) -> Option<Vec<u8>> {
    let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
    // Who names none may be a proxy that asks whether anybody is there.
    if let Some(id) = wire::header(&request.head, "mcp-session-id") {
        let Some(number) = sessions.find(id) else { return Some(empty("404 Not Found")) };
        if request.head.starts_with("DELETE ") {
            sessions.open.remove(&number);
        }
    }
    if request.head.starts_with("GET ") {
        return None;
    }
    let body = request.body.as_str();
    if request.head.starts_with("DELETE ") {
        return Some(empty("200 OK"));
    }
    let Some(id) = id(body) else { return Some(empty("202 Accepted")) };
    let mut session = String::new();
    let result = if body.contains("\"initialize\"") {
        session = format!("mcp-session-id: {}\r\n", sessions.begin());
        r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#
            .into()
    } else if body.contains("\"tools/list\"") {
        r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#.into()
    } else if body.contains("\"tools/call\"") {
        let length = if body.contains("\"large\"") {
            LARGE
        } else if body.contains("\"huge\"") {
            HUGE
        } else {
            16
        };
        format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(length))
    } else {
        "{}".into()
    };
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let length = text.len();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
    Some(format!("{head}\r\n{session}content-length: {length}\r\n\r\n{text}").into_bytes())
}

fn empty(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// The id of a request, as it was written.
fn id(body: &str) -> Option<&str> {
    let (_, rest) = body.split_once("\"id\":")?;
    let end = rest.find([',', '}'])?;
    rest.get(..end).map(str::trim)
}
