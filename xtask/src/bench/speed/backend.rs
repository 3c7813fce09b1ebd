//! The tiny MCP server behind every proxy: it answers at once, and as cheaply as it can, so that what is measured is the proxy. It reads requests with
//! the framing that proxies send, and no more of HTTP.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::wire::{self, Incoming};

/// Bytes of the text in a large answer.
pub const LARGE: usize = 64 * 1024;
/// Bytes of the text in a huge answer.
pub const HUGE: usize = 10 * 1024 * 1024;

/// Serves until the runtime ends.
pub async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            // A proxy may close its connection at any time.
            let _ = connection(stream).await;
        });
    }
}

/// A listener for [`serve`].
pub async fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn connection(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(8 * 1024);
    loop {
        let Some(request) = wire::read(&mut stream, &mut received).await? else { return Ok(()) };
        if request.head.starts_with("GET ") {
            return stream_without_end(stream).await;
        }
        stream.write_all(&answer(&request)).await?;
        received.drain(..request.length);
    }
}

/// An event stream on which nothing happens.
async fn stream_without_end(mut stream: TcpStream) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\n: \n\n\n\r\n").await?;
    while stream.read(&mut [0; 512]).await? > 0 {}
    Ok(())
}

fn answer(request: &Incoming) -> Vec<u8> {
    if request.head.starts_with("DELETE ") {
        return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec();
    }
    let body = request.body.as_str();
    let Some(id) = id(body) else { return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec() };
    let mut session = "";
    let result = if body.contains("\"initialize\"") {
        session = "mcp-session-id: 0123456789abcdef0123456789abcdef\r\n";
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
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{session}content-length: {}\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

/// The id of a request, as it was written.
fn id(body: &str) -> Option<&str> {
    let (_, rest) = body.split_once("\"id\":")?;
    let end = rest.find([',', '}'])?;
    rest.get(..end).map(str::trim)
}

/// A runtime of its own for one role, on one processor.
pub fn runtime(processor: usize) -> Result<tokio::runtime::Runtime> {
    let pin = move || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(processor);
        // Without it the figures are less steady, not wrong.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().on_thread_start(pin).build().context("no runtime")
}
