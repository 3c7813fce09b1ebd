//! The least that speaks MCP: one HTTP exchange for each message, on a connection of its own, with Host and key as the caller says. For
//! polling and for refusals; real clients are in `clients`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server is, and how to ask it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the connection goes: a relay's port, an ingress, a Service.
    pub address: SocketAddr,
    /// `Host` header.
    pub host: String,
    /// Path of the endpoint.
    pub path: String,
    /// Key, sent as Bearer token.
    pub key: Option<String>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
}

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The JSON-RPC message: the body itself, or the last event of an event stream.
    pub fn message(&self) -> Result<Value> {
        let text = self.text();
        let event = text
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .filter(|data| !data.trim().is_empty())
            .next_back();
        serde_json::from_str(event.unwrap_or(&text)).with_context(|| format!("{} with no message: {text}", self.status))
    }
}

impl Target {
    /// A target from the URL that a status shows, reached at `address`.
    pub fn of_url(url: &str, address: SocketAddr, key: Option<String>) -> Result<Self> {
        let uri: http::Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        let host = uri.authority().context("the URL has no host")?.to_string();
        Ok(Self { address, host, path: uri.path().to_owned(), key, headers: Vec::new() })
    }

    /// One exchange.
    pub async fn send(&self, method: &str, body: impl Into<Bytes>) -> Result<Answer> {
        let mut request = Request::builder().method(method).uri(&self.path).header("host", &self.host);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if method == "POST" {
            request = request
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into()))?;
        let exchange = async {
            let stream = tokio::net::TcpStream::connect(self.address).await?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let exchange = async {
                let response = sender.send_request(request).await?;
                let (head, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                anyhow::Ok(Answer { status: head.status, headers: head.headers, body })
            };
            tokio::select! {
                answer = exchange => answer,
                ended = connection => { ended?; bail!("the connection ended before the answer") }
            }
        };
        tokio::time::timeout(PATIENCE, exchange).await.context("no answer in time")?
    }

    /// One request of a legacy client without a session.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = self.send("POST", message.to_string()).await?;
        ensure!(answer.status == StatusCode::OK, "{}: {}", answer.status, answer.text());
        let message = answer.message()?;
        match message.get("result") {
            Some(result) => Ok(result.clone()),
            None => bail!("{method}: {message}"),
        }
    }
}
