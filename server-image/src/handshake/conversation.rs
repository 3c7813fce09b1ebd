//! What is said in a handshake: `initialize`, `notifications/initialized`, `tools/list`, the end of the session, and
//! `server/discover` for the modern era. A server may speak either era or both.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use mooring_contract::door_status::Handshake;
use serde_json::{Value, json};

use crate::body::{Body, BodyError};
use crate::era::{Era, LEGACY, MODERN};
use crate::headers::{METHOD, SESSION, VERSION, essence};
use crate::loopback::FromBackend;
use crate::refusal::{INTERNAL_ERROR, Refusal};
use crate::relay::Relay;
use crate::sse::event::Events;
use crate::sse::upstream::{self, Upstream};

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer that is read.
const ANSWER_MAXIMUM: usize = 8 * 1024 * 1024;
/// Longest part of a server's error message that is told.
const MESSAGE_MAXIMUM: usize = 200;
/// Most pages of tools that are counted.
const PAGES: usize = 100;

const SERVER_INFO: &str = "/_meta/io.modelcontextprotocol~1serverInfo"; // a JSON pointer

/// What a server answered.
#[derive(Debug)]
pub struct Heard {
    /// In sum.
    pub handshake: Handshake,
    /// The era that it speaks, where it refused the other one for certain.
    pub only: Option<Era>,
}

/// Why there is no handshake in one era.
#[derive(Default)]
struct Failure {
    /// For people.
    words: String,
    /// HTTP status, where there was an answer.
    status: u16,
    /// JSON-RPC error, where the answer was one.
    code: Option<i64>,
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self { words, ..Self::default() }
    }
}

impl Failure {
    /// Whether the server knows nothing of that era: not slow, busy or broken, and not asking for a credential.
    fn is_refusal(&self, era: Era) -> bool {
        // The codes of the modern era tell of a server that only disagrees about the request.
        let knows = |code: i64| code == INTERNAL_ERROR || (era == Era::Modern && (-32099..=-32020).contains(&code));
        match self.status {
            200 => self.code.is_some_and(|code| !knows(code)),
            400 | 404 | 405 => !self.code.is_some_and(knows),
            _ => false,
        }
    }
}

/// The way to a server.
struct Line<'a> {
    relay: &'a Relay,
    /// Where answers do not come to the requests themselves.
    older: Option<Older>,
    /// Of the last request.
    id: u64,
}

/// An open stream of the older transport.
struct Older {
    target: String,
    events: Events<Body>,
}

impl<'a> Line<'a> {
    fn new(relay: &'a Relay) -> Self {
        Self { relay, older: None, id: 0 }
    }

    async fn older(relay: &'a Relay) -> Result<Self, String> {
        let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        let opening = async {
            let response = relay.own(Method::GET, accept, Bytes::new()).await?;
            upstream::begin(relay, response.map(|body| body.map_err(BodyError::from).boxed_unsync()), None).await
        };
        let opened = tokio::time::timeout(PATIENCE, opening).await;
        let opened = opened.map_err(|_| format!("opened no event stream within {} s", PATIENCE.as_secs()))?;
        let Upstream { target, rest } = opened.map_err(|refusal| wrong(relay, &refusal))?;
        Ok(Self { older: Some(Older { target, events: Events::new(rest) }), ..Self::new(relay) })
    }
}

/// The whole conversation with a server that speaks only the older transport, which the modern era does not have.
pub async fn older_handshake(relay: &Relay) -> Result<Heard, String> {
    let mut line = Line::older(relay).await?;
    let handshake = legacy(&mut line).await.map_err(|failure| failure.words)?;
    Ok(Heard { handshake, only: Some(Era::Legacy) })
}

/// The whole conversation; the error is for people.
pub async fn handshake(relay: &Relay) -> Result<Heard, String> {
    let legacy = legacy(&mut Line::new(relay)).await;
    let modern = modern(&mut Line::new(relay), legacy.is_err()).await;
    match (legacy, modern) {
        (Ok(legacy), Ok(modern)) => {
            let speaks_modern = modern.protocol_versions.iter().any(|version| is_modern(version));
            let versions = legacy.protocol_versions.into_iter().chain(modern.protocol_versions);
            let versions: BTreeSet<String> = versions.collect();
            let protocol_versions = versions.into_iter().rev().collect();
            let only = (!speaks_modern).then_some(Era::Legacy);
            Ok(Heard { handshake: Handshake { protocol_versions, ..legacy }, only })
        }
        (Ok(handshake), Err(failure)) => {
            Ok(Heard { handshake, only: failure.is_refusal(Era::Modern).then_some(Era::Legacy) })
        }
        (Err(failure), Ok(handshake)) => {
            let certain =
                failure.is_refusal(Era::Legacy) && handshake.protocol_versions.iter().all(|version| is_modern(version));
            Ok(Heard { handshake, only: certain.then_some(Era::Modern) })
        }
        (Err(failure), Err(_)) => Err(failure.words),
    }
}

fn is_modern(version: &str) -> bool {
    Era::of_revision(version) == Era::Modern
}

async fn legacy(line: &mut Line<'_>) -> Result<Handshake, Failure> {
    let client = json!({"name": "mooring", "version": env!("CARGO_PKG_VERSION")});
    let [newest, ..] = LEGACY;
    let params = json!({"protocolVersion": newest, "capabilities": {}, "clientInfo": client});
    let (result, headers) = ask(line, HeaderMap::new(), "initialize", params).await?;
    let version = text(&result, "/protocolVersion")
        .ok_or_else(|| "its answer to initialize names no protocol version".to_owned())?;
    let mut follow = HeaderMap::new();
    if let Ok(version) = HeaderValue::try_from(&version) {
        follow.insert(VERSION, version);
    }
    if let Some(session) = headers.get(SESSION) {
        follow.insert(SESSION, session.clone());
    }
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    drop(post(line, follow.clone(), &initialized).await); // a server may answer it as it likes
    let tools = has_tools(&result);
    let tool_count = if tools { count(line, &follow, &json!({})).await } else { None };
    if follow.contains_key(SESSION) {
        let end = line.relay.own(Method::DELETE, follow, Bytes::new());
        drop(tokio::time::timeout(PATIENCE, end).await); // 405 is a fine answer, too
    }
    Ok(Handshake {
        name: text(&result, "/serverInfo/name").unwrap_or_default(),
        version: text(&result, "/serverInfo/version").unwrap_or_default(),
        protocol_versions: vec![version],
        tool_count,
    })
}

async fn modern(line: &mut Line<'_>, count_tools: bool) -> Result<Handshake, Failure> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "mooring", "version": env!("CARGO_PKG_VERSION")},
    });
    let mut headers = HeaderMap::new();
    headers.insert(VERSION, HeaderValue::from_static(MODERN));
    let params = json!({"_meta": meta});
    let (result, _) = ask(line, headers.clone(), "server/discover", params.clone()).await?;
    let versions = result.get("supportedVersions").and_then(Value::as_array);
    let versions = versions.ok_or_else(|| "its answer to server/discover names no protocol versions".to_owned())?;
    let mut versions: Vec<String> = versions.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let info = result.pointer(SERVER_INFO).or_else(|| result.get("serverInfo")).cloned().unwrap_or_default();
    let tools = count_tools && has_tools(&result);
    let tool_count = if tools { count(line, &headers, &params).await } else { None };
    Ok(Handshake {
        name: text(&info, "/name").unwrap_or_default(),
        version: text(&info, "/version").unwrap_or_default(),
        protocol_versions: versions,
        tool_count,
    })
}

/// Counts the tools over all pages; `None` where the list is not told.
async fn count(line: &mut Line<'_>, headers: &HeaderMap, params: &Value) -> Option<u32> {
    let mut tools = 0;
    let mut params = params.clone();
    for _ in 0..PAGES {
        let (result, _) = ask(line, headers.clone(), "tools/list", params.clone()).await.ok()?;
        tools += result.get("tools")?.as_array()?.len();
        let Some(cursor) = result.get("nextCursor").filter(|cursor| cursor.is_string()) else { break };
        params.as_object_mut()?.insert("cursor".into(), cursor.clone());
    }
    u32::try_from(tools).ok()
}

/// One request; its result and the answer's headers, or what is wrong, in words.
async fn ask(
    line: &mut Line<'_>,
    mut headers: HeaderMap,
    method: &str,
    params: Value,
) -> Result<(Value, HeaderMap), Failure> {
    if let Ok(name) = HeaderValue::try_from(method) {
        headers.insert(METHOD, name);
    }
    line.id += 1;
    let id = line.id;
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let asking = async {
        let response = post(line, headers, &message).await?;
        let status = response.status();
        let media_type = essence(response.headers()).to_owned();
        let headers = response.headers().clone();
        let answer = match &mut line.older {
            Some(older) if status.is_success() => find(&mut older.events, id).await,
            _ if media_type.eq_ignore_ascii_case("text/event-stream") => {
                find(&mut Events::new(response.into_body()), id).await
            }
            _ => read(response.into_body()).await,
        };
        let answer = answer.unwrap_or_default();
        let result = answer.get("result").filter(|result| result.is_object() && status.is_success());
        let status = status.as_u16();
        let words = match (result, answer.pointer("/error/code")) {
            (Some(result), _) => return Ok((result.clone(), headers)),
            (None, Some(code)) => {
                let message = text(&answer, "/error/message").unwrap_or_default();
                let message: String = message.chars().take(MESSAGE_MAXIMUM).collect();
                format!("answered {method} with HTTP {status} and error {code}: {message}")
            }
            (None, None) => format!("answered {}to {method}{}", described(status, &media_type), guess(status)),
        };
        Err(Failure { words, status, code: answer.pointer("/error/code").and_then(Value::as_i64) })
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(result) => result,
        Err(_) => Err(format!("did not answer {method} within {} s", PATIENCE.as_secs()).into()),
    }
}

fn described(status: u16, media_type: &str) -> String {
    if media_type.is_empty() { format!("{status} ") } else { format!("{status} {media_type} ") }
}

fn has_tools(result: &Value) -> bool {
    result.pointer("/capabilities/tools").is_some_and(Value::is_object)
}

/// The text at a JSON pointer.
fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer)?.as_str().map(str::to_owned)
}

fn guess(status: u16) -> &'static str {
    match status {
        404 => ": is http.path right?",
        401 | 403 => ": it asks for a credential of its own",
        _ => ": this is not an MCP server",
    }
}

async fn post(line: &mut Line<'_>, mut headers: HeaderMap, message: &Value) -> Result<Response<FromBackend>, String> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let body = Bytes::from(message.to_string());
    let posted = match &mut line.older {
        Some(older) => line.relay.own_at(&older.target, Method::POST, headers, body).await,
        None => line.relay.own(Method::POST, headers, body).await,
    };
    posted.map_err(|refusal| wrong(line.relay, &refusal))
}

/// What is wrong, for people.
fn wrong(relay: &Relay, refusal: &Refusal) -> String {
    match refusal {
        Refusal::BackendAway => format!("nothing answers on port {}", relay.port),
        Refusal::BackendRedirects => "redirects to another place: is http.path right?".to_owned(),
        Refusal::BackendWithoutEndpoint => {
            "opened no event stream with an endpoint: is http.path right, and does it speak HTTP+SSE?".to_owned()
        }
        _ => "closed the connection without an HTTP answer: is http.port right?".to_owned(),
    }
}

/// A JSON answer.
async fn read(mut body: FromBackend) -> Option<Value> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        bytes.extend_from_slice(&data);
        if bytes.len() > ANSWER_MAXIMUM {
            return None;
        }
    }
    serde_json::from_slice(&bytes).ok()
}

/// The answer with this id, among events. A server may keep the stream open after it.
async fn find<B>(events: &mut Events<B>, id: u64) -> Option<Value>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    while let Some(mut event) = events.next().await.ok()? {
        let message = event.message().and_then(|message| serde_json::from_slice::<Value>(&message).ok());
        let answers = |message: &Value| message.get("id") == Some(&id.into()) && message.get("method").is_none();
        if let Some(message) = message.filter(answers) {
            return Some(message);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::full;

    #[tokio::test]
    async fn the_answer_is_found_among_events() {
        let stream = "id: 0\ndata: \n\n: comment\n\nevent: message\r\ndata: {\"id\":7,\"method\":\"n\"}\r\n\r\ndata: {\"id\":7,\ndata: \"result\":{}}\n\n";
        let find_in = async |text: &'static str| find(&mut Events::new(full(text)), 7).await;
        assert_eq!(find_in(stream).await, Some(json!({"id": 7, "result": {}})));
        assert_eq!(find_in(&stream[..stream.len() - 1]).await, None);
        assert_eq!(find_in("").await, None);
    }
}
