//! The least that speaks MCP: one HTTP exchange for each message, on a connection of its own, with Host and key as the caller says. For
//! polling and for refusals; real clients are in `clients`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

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

/// An answer other than the one that a method of [`Target`] is for. It stands in the chain of its error.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Status.
    pub status: StatusCode,
    /// Body.
    pub text: String,
}

impl Refused {
    /// The status that an error is about, if it is about one.
    pub fn status(error: &anyhow::Error) -> Option<StatusCode> {
        error.downcast_ref::<Self>().map(|refused| refused.status)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.text)
    }
}

impl std::error::Error for Refused {}

/// An answer that is read as it comes. Dropping it closes the connection.
pub struct Streaming {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    body: Incoming,
    unread: String,
    connection: JoinHandle<()>,
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Streaming {
    /// The message of the next event of an event stream, or `None` where the stream has ended, however it did. Comments are passed over.
    pub async fn event(&mut self) -> Result<Option<Value>> {
        let Some(data) = self.text().await? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&data).with_context(|| format!("an event with {data}"))?))
    }

    /// The data of the next event that carries some, whatever they are.
    pub async fn text(&mut self) -> Result<Option<String>> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let data: Vec<_> = event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
                let data = data.join("\n");
                self.unread = String::from(rest);
                if !data.is_empty() {
                    return Ok(Some(data));
                }
            }
            let Some(Ok(frame)) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.into_data() {
                self.unread += &String::from_utf8_lossy(&data).replace('\r', "");
            }
        }
    }

    async fn whole(mut self) -> Result<Answer> {
        let body = (&mut self.body).collect().await?.to_bytes();
        Ok(Answer { status: self.status, headers: std::mem::take(&mut self.headers), body })
    }
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The same, where the status is this one.
    pub fn expect(self, status: StatusCode) -> Result<Self, Refused> {
        if self.status == status { Ok(self) } else { Err(Refused { status: self.status, text: self.text() }) }
    }

    /// The JSON-RPC message: the body itself, or the last event of an event stream.
    pub fn message(&self) -> Result<Value> {
        let text = self.text();
        let event = text.lines().filter_map(|line| line.strip_prefix("data:")).rfind(|data| !data.trim().is_empty());
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

    /// The same with another key.
    #[must_use]
    pub fn with_key(&self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self.clone() }
    }

    /// The same under another name.
    #[must_use]
    pub fn with_host(&self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self.clone() }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with_header(&self, name: &str, value: &str) -> Self {
        let mut target = self.clone();
        target.headers.push((name.to_owned(), value.to_owned()));
        target
    }

    /// One exchange.
    pub async fn send(&self, method: &str, body: impl Into<Bytes>) -> Result<Answer> {
        let exchange = async { self.open(method, body).await?.whole().await };
        tokio::time::timeout(PATIENCE, exchange).await.context("no answer in time")?
    }

    /// One exchange, as soon as the answer has begun. A GET asks for an event stream.
    pub async fn open(&self, method: &str, body: impl Into<Bytes>) -> Result<Streaming> {
        let mut request = Request::builder().method(method).uri(&self.path).header("host", &self.host);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        match method {
            "POST" => {
                request = request
                    .header("content-type", "application/json")
                    .header("accept", "application/json, text/event-stream");
            }
            "GET" => request = request.header("accept", "text/event-stream"),
            _ => {}
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into()))?;
        let begin = async {
            let stream = tokio::net::TcpStream::connect(self.address).await?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            // How it ends is seen where the answer is read.
            let connection = tokio::spawn(async move { drop(connection.await) });
            let response = sender.send_request(request).await.inspect_err(|_| connection.abort())?;
            let (head, body) = response.into_parts();
            anyhow::Ok(Streaming {
                status: head.status,
                headers: head.headers,
                body,
                unread: String::new(),
                connection,
            })
        };
        tokio::time::timeout(PATIENCE, begin).await.context("no answer in time")?
    }

    /// Begins a session of a legacy client, and returns the way into it.
    pub async fn begin_session(&self) -> Result<Self> {
        let within = self.initialize().await?;
        within.initialized().await?;
        Ok(within)
    }

    /// The first request of a session of a legacy client. Returns the way into it.
    pub async fn initialize(&self) -> Result<Self> {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialization()});
        let begun = self.send("POST", message.to_string()).await?.expect(StatusCode::OK).context("initialize")?;
        let id = begun.headers.get("mcp-session-id").context("initialize began no session")?.to_str()?;
        Ok(self.with_header("mcp-session-id", id).with_header("mcp-protocol-version", "2025-11-25"))
    }

    /// What follows [`Target::initialize`] within the session.
    pub async fn initialized(&self) -> Result<()> {
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let answer = self.send("POST", initialized.to_string()).await?;
        answer.expect(StatusCode::ACCEPTED).context("initialized")?;
        Ok(())
    }

    /// One request of a legacy client without a session.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value> {
        // A session may see an id once only, and servers mix up answers where it sees one twice.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let message = self.send("POST", message.to_string()).await?.expect(StatusCode::OK)?.message()?;
        match message.get("result") {
            Some(result) => Ok(result.clone()),
            None => bail!("{method}: {message}"),
        }
    }

    /// Calls a tool and returns the texts of its answer; that the tool failed is an error.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<String> {
        let result = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await?;
        text_of(&result).with_context(|| format!("{tool} failed"))
    }

    /// The names of the tools.
    pub async fn tools(&self) -> Result<Vec<String>> {
        let result = self.request("tools/list", json!({})).await?;
        let tools = result["tools"].as_array().with_context(|| format!("no tools in {result}"))?;
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect())
    }
}

/// The `params` of a legacy client's `initialize`.
pub fn initialization() -> Value {
    let client = json!({"name": "mooring-tests", "version": "1.0.0"});
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
}

/// The texts of a tool's result; that the tool failed is an error.
pub fn text_of(result: &Value) -> Result<String> {
    let parts = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    ensure!(result["isError"] != true, "{}", text.join(" "));
    Ok(text.join(" "))
}
