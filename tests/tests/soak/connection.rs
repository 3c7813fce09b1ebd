//! One connection of a client that does as it should, over HTTP/1 or HTTP/2, with the session that it has.

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_tests::front_door_process::KEY;
use mooring_tests::mcp::Answer;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// The revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// An open connection. It is closed when this handle is dropped.
pub(crate) struct Connection {
    sender: Sender,
    host: String,
    session: Option<String>,
    /// The revision that the client names, once it has a session.
    pub(crate) revision: &'static str,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    pub(crate) async fn open(host: &str, version: Version) -> Result<Self> {
        let stream = TokioIo::new(TcpStream::connect(host).await?);
        // How it ends is seen by who waits for an answer.
        let (sender, task) = match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                (Sender::Http1(sender), tokio::spawn(async { drop(connection.await) }))
            }
            Version::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                (Sender::Http2(sender), tokio::spawn(async { drop(connection.await) }))
            }
        };
        Ok(Self { sender, host: host.to_owned(), session: None, revision: "2025-11-25", task })
    }

    /// Another connection for the same session.
    pub(crate) async fn beside(&self, version: Version) -> Result<Self> {
        let mut beside = Self::open(&self.host, version).await?;
        (beside.session, beside.revision) = (self.session.clone(), self.revision);
        Ok(beside)
    }

    /// Begins a session.
    pub(crate) async fn initialize(&mut self) -> Result<()> {
        let client = json!({"protocolVersion": self.revision, "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}});
        let answer = self.post(&request(0, "initialize", &client)).await?;
        ensure!(answer.status == 200, "initialize: {} {}", answer.status, answer.text());
        let session = answer.headers.get("mcp-session-id").context("a session")?;
        self.session = Some(session.to_str()?.to_owned());
        let answer = self.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        ensure!(answer.status == 202, "initialized: {}", answer.status);
        Ok(())
    }

    /// Calls the tool, and checks the answer.
    pub(crate) async fn call(&mut self, id: u64, stream: bool, pause: u64) -> Result<()> {
        let answer = self.post(&call(id, stream, pause)).await?;
        ensure!(answer.status == 200, "call: {} {}", answer.status, answer.text());
        answers(&answer.message()?, id)
    }

    /// One exchange with a message.
    pub(crate) async fn post(&mut self, message: &Value) -> Result<Answer> {
        let response = self.send(Method::POST, message.to_string()).await?;
        let (head, body) = response.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body: body.collect().await?.to_bytes() })
    }

    /// One exchange, as soon as its answer has begun.
    pub(crate) async fn send(&mut self, method: Method, body: String) -> Result<Response<Incoming>> {
        let target = match self.sender {
            Sender::Http1(_) => "/mcp".to_owned(),
            Sender::Http2(_) => format!("http://{}/mcp", self.host),
        };
        let accept = if method == Method::GET { "text/event-stream" } else { "application/json, text/event-stream" };
        let mut request = Request::builder().method(method).uri(target);
        request = request.header("accept", accept).header("content-type", "application/json");
        request = request.header("authorization", format!("Bearer {KEY}"));
        if let Sender::Http1(_) = self.sender {
            request = request.header("host", &self.host);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", self.revision);
        }
        let request = request.body(Full::new(body.into()))?;
        Ok(match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        })
    }
}

/// A request.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A request that begins nothing and says all of itself.
pub(crate) fn modern(mut request: Value) -> String {
    request["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "soak", "version": "1"},
    });
    request.to_string()
}

/// A call that is answered with a text of its own: as an event stream, after so many milliseconds.
pub(crate) fn call(id: u64, stream: bool, pause: u64) -> Value {
    let arguments = json!({"text": format!("text {id}"), "stream": stream, "pause": pause});
    request(id, "tools/call", &json!({"name": "echo", "arguments": arguments}))
}

/// Whether a message answers that call.
pub(crate) fn answers(message: &Value, id: u64) -> Result<()> {
    let text = &message["result"]["content"][0]["text"];
    ensure!(message["id"] == id && *text == format!("text {id}"), "call {id} is answered with {message}");
    Ok(())
}

/// Reads an event stream until its first event, then leaves it.
pub(crate) async fn first_event(response: Response<Incoming>) -> Result<()> {
    let status = response.status();
    let mut body = response.into_body();
    let mut text = Vec::new();
    while !text.windows(5).any(|bytes| bytes == b"data:") {
        let frame = body.frame().await.with_context(|| format!("{status}: the stream ended without an event"))??;
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    Ok(())
}
