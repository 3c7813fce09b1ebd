//! Declared tools: the front door itself is the MCP server. It answers JSON-RPC in both eras, keeps no session (any
//! replica can answer), and turns a `tools/call` into one HTTP request.

pub mod arguments;
pub mod call;
pub mod mirror;
pub mod template;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all, ready};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use mooring_contract::config::Tool;
use mooring_contract::door_status::Handshake;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::body::{Body, empty, full};
use crate::clients::Clients;
use crate::commit::{event, event_stream};
use crate::era::{Era, LEGACY, META_VERSION, MODERN};
use crate::headers::{VERSION, accepts};
use crate::peek::{Call, Message, Params, Reading, Seen};
use crate::refusal::{
    INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Refusal, UNSUPPORTED_VERSION, error, json as json_answer,
};
use crate::rules::Environment;
use call::{CallError, DeclaredTool, ToolResult};

/// How long a client may keep the tool list, in milliseconds. The list changes when its owner edits it.
const LIST_TTL: u32 = 60_000;

/// The tools of one server.
#[derive(Debug)]
pub struct ToolServer {
    name: String,
    tools: HashMap<String, Arc<DeclaredTool>>,
    list: Value,
}

/// What a method came to.
enum Outcome {
    Result(Box<RawValue>),
    Error { code: i64, message: String },
}

/// A request, by its id as it came, and the answer to it.
pub type Request = (Box<RawValue>, BoxFuture<'static, Reply>);

/// The answer to a request, or those to a batch.
pub struct Reply {
    /// JSON.
    pub text: String,
    /// Whether it asks for a method that does not exist.
    pub is_unknown_method: bool,
}

impl Outcome {
    fn error(code: i64, message: impl Into<String>) -> Self {
        Self::Error { code, message: message.into() }
    }
}

impl ToolServer {
    /// Compiles declarations that were checked; the error names the field and what is wrong. No call takes longer than `call_timeout`.
    pub fn new(
        name: &str,
        tools: Vec<Tool>,
        call_timeout: Duration,
        clients: &Clients,
        environment: Environment<'_>,
    ) -> Result<Self, String> {
        let mut list = Vec::with_capacity(tools.len());
        let mut compiled = HashMap::with_capacity(tools.len());
        for (index, tool) in tools.into_iter().enumerate() {
            list.push(description(&tool));
            let name = tool.name.clone();
            let tool = DeclaredTool::new(tool, call_timeout, clients, environment)
                .map_err(|error| format!("source.tools[{index}].{error}"))?;
            compiled.insert(name, Arc::new(tool));
        }
        Ok(Self { name: name.to_owned(), tools: compiled, list: Value::from(list) })
    }

    /// What a handshake with this server answers.
    pub fn handshake(&self) -> Handshake {
        Handshake {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_versions: served(),
            tool_count: u32::try_from(self.tools.len()).ok(),
        }
    }

    /// Answers one POST, whose era is told and whose headers are checked. A call that outlives its client runs on `calls`.
    pub fn answer(
        &self,
        headers: &HeaderMap,
        reading: &Reading<'_>,
        era: Era,
        calls: &TaskTracker,
    ) -> Result<BoxFuture<'static, Response<Body>>, Refusal> {
        let requests = self.requests(Some(headers), reading, era, calls)?;
        if requests.is_empty() {
            return Ok(ready(accepted()).boxed());
        }
        let form = Form::of(headers)?;
        let is_batch = matches!(reading, Reading::Batch(_));
        let answer = async move {
            let replies = join_all(requests.into_iter().map(|(_, reply)| reply)).await;
            let Reply { text, is_unknown_method } = joined(replies, is_batch);
            let missing = era == Era::Modern && is_unknown_method;
            form.answer(if missing { StatusCode::NOT_FOUND } else { StatusCode::OK }, text)
        };
        Ok(answer.boxed())
    }

    /// The requests of one message or batch, whatever it came by; none where nobody waits. Headers say something over
    /// HTTP only.
    pub fn requests(
        &self,
        headers: Option<&HeaderMap>,
        reading: &Reading<'_>,
        era: Era,
        calls: &TaskTracker,
    ) -> Result<Vec<Request>, Refusal> {
        let messages: Vec<&Message<'_>> = match reading {
            Reading::One(message) => vec![message],
            Reading::Batch(elements) => elements.iter().flatten().collect(),
        };
        let mut requests = Vec::new();
        for message in messages {
            demands(era, headers, message)?;
            if let Message::Request(id, call) = message {
                let outcome = self.outcome(era, headers, call, calls)?;
                let (id, of) = ((*id).to_owned(), (*id).to_owned());
                requests.push((id, async move { reply(&of, &outcome.await) }.boxed()));
            }
        }
        Ok(requests)
    }

    fn outcome(
        &self,
        era: Era,
        headers: Option<&HeaderMap>,
        call: &Call<'_>,
        calls: &TaskTracker,
    ) -> Result<BoxFuture<'static, Outcome>, Refusal> {
        let params = &call.params;
        let outcome = match (era, call.method.as_ref()) {
            _ if params.malformed => Outcome::error(INVALID_PARAMS, "params must be an object"),
            (_, "tools/call") => return self.call(era, headers, params, calls),
            (Era::Legacy, "initialize") => {
                let version = negotiate(params.protocol_version.as_ref().and_then(Seen::text));
                let server = self.identity();
                self.result(
                    era,
                    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}),
                )
            }
            (Era::Legacy, "ping") => self.result(era, json!({})),
            (Era::Modern, "server/discover") => {
                let (ttl, scope, versions) = (LIST_TTL, "private", served());
                self.result(
                    era,
                    json!({"supportedVersions": versions, "capabilities": {"tools": {}}, "ttlMs": ttl, "cacheScope": scope}),
                )
            }
            (_, "tools/list") => match (&params.cursor, era) {
                (Some(_), _) => Outcome::error(INVALID_PARAMS, "Unknown cursor: the list has one page"),
                (None, Era::Legacy) => self.result(era, json!({"tools": self.list})),
                (None, Era::Modern) => {
                    self.result(era, json!({"tools": self.list, "ttlMs": LIST_TTL, "cacheScope": "private"}))
                }
            },
            (_, method) => Outcome::error(METHOD_NOT_FOUND, format!("Method not found: {}", shortened(method))),
        };
        Ok(ready(outcome).boxed())
    }

    fn call(
        &self,
        era: Era,
        headers: Option<&HeaderMap>,
        params: &Params<'_>,
        calls: &TaskTracker,
    ) -> Result<BoxFuture<'static, Outcome>, Refusal> {
        let invalid = |reason: String| Ok(ready(Outcome::error(INVALID_PARAMS, reason)).boxed());
        let Some(name) = params.name.as_ref().and_then(Seen::text) else {
            return invalid("params.name must be a string".into());
        };
        let Some(tool) = self.tools.get(name.as_ref()) else {
            return invalid(format!("Unknown tool: {}", shortened(name)));
        };
        if let (Era::Modern, Some(headers)) = (era, headers) {
            tool.check_headers(headers, params.arguments)?;
        }
        let tool = Arc::clone(tool);
        let arguments = params.arguments.map(RawValue::to_owned);
        let meta = self.meta();
        let calling = async move { called(tool.call(arguments.as_deref()).await, era, &meta) };
        Ok(match (era, headers) {
            // Closing the answer is the modern way to cancel; over stdio it is let go where a notification cancels it.
            (Era::Modern, _) | (Era::Legacy, None) => calling.boxed(),
            // A legacy client that loses its connection did not cancel.
            (Era::Legacy, Some(_)) => {
                let running = calls.spawn(calling);
                let broken = |_| Outcome::error(INTERNAL_ERROR, "The call broke off");
                async move { running.await.unwrap_or_else(broken) }.boxed()
            }
        })
    }

    fn identity(&self) -> Value {
        json!({"name": self.name, "version": env!("CARGO_PKG_VERSION")})
    }

    /// By which a modern result names the server.
    fn meta(&self) -> Value {
        json!({"io.modelcontextprotocol/serverInfo": self.identity()})
    }

    fn result(&self, era: Era, mut result: Value) -> Outcome {
        if let (Era::Modern, Some(map)) = (era, result.as_object_mut()) {
            map.insert("resultType".into(), "complete".into());
            map.insert("_meta".into(), self.meta());
        }
        match to_raw_value(&result) {
            Ok(result) => Outcome::Result(result),
            Err(error) => Outcome::error(INTERNAL_ERROR, error.to_string()),
        }
    }
}

fn called(result: Result<ToolResult, CallError>, era: Era, meta: &Value) -> Outcome {
    match result {
        Ok(result) => match to_raw_value(&result.in_era(era, meta)) {
            Ok(result) => Outcome::Result(result),
            Err(error) => Outcome::error(INTERNAL_ERROR, error.to_string()),
        },
        Err(CallError::Arguments(reason)) => Outcome::error(INVALID_PARAMS, reason),
        Err(CallError::Fault(reason)) => Outcome::error(INTERNAL_ERROR, reason),
    }
}

/// Every revision that is served, newest first.
fn served() -> Vec<String> {
    std::iter::once(MODERN).chain(LEGACY).map(str::to_owned).collect()
}

/// The revision that `initialize` is answered with.
pub fn negotiate(asked: Option<&Cow<'_, str>>) -> &'static str {
    let [newest, ..] = LEGACY;
    asked.and_then(|asked| LEGACY.into_iter().find(|known| known == asked)).unwrap_or(newest)
}

/// What each message must have, besides headers that agree with its body.
fn demands(era: Era, headers: Option<&HeaderMap>, message: &Message<'_>) -> Result<(), Refusal> {
    let in_header = headers.and_then(|headers| headers.get(VERSION)).map(HeaderValue::as_bytes);
    let in_header = in_header.map(|value| String::from_utf8_lossy(value.trim_ascii()).into_owned());
    let (requested, serves) = match era {
        // A handshake may name any revision in its header.
        Era::Legacy => (in_header.filter(|_| message.method() != Some("initialize")), LEGACY.as_slice()),
        Era::Modern => {
            let in_body = message.call().and_then(|call| call.params.meta.version.as_ref()?.text());
            (in_body.map(ToString::to_string).or(in_header), [MODERN].as_slice())
        }
    };
    if let Some(requested) = requested.filter(|requested| !serves.contains(&requested.as_str())) {
        return Err(Refusal::VersionUnsupported { requested, supported: served(), code: UNSUPPORTED_VERSION });
    }
    match message {
        Message::Response if era == Era::Modern => {
            Err(Refusal::NotMessage("a client sends requests and notifications only".into()))
        }
        Message::Request(_, call) if era == Era::Modern => {
            let meta = &call.params.meta;
            if meta.version.as_ref().and_then(Seen::text).is_none() {
                return Err(Refusal::MetaMissing(META_VERSION));
            }
            match meta.capabilities {
                Some(Seen::Object) => Ok(()),
                _ => Err(Refusal::MetaMissing("io.modelcontextprotocol/clientCapabilities")),
            }
        }
        _ => Ok(()),
    }
}

fn description(tool: &Tool) -> Value {
    let mut entry = json!({"name": tool.name, "inputSchema": tool.input_schema});
    if let Some(map) = entry.as_object_mut() {
        for (key, text) in [("title", &tool.title), ("description", &tool.description)] {
            if let Some(text) = text {
                map.insert(key.into(), text.as_str().into());
            }
        }
    }
    entry
}

/// How the answer to a request travels.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Events,
}

impl Form {
    fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        if accepts(headers, "application/json") {
            Ok(Self::Json)
        } else if accepts(headers, "text/event-stream") {
            Ok(Self::Events)
        } else {
            Err(Refusal::NotAcceptable)
        }
    }

    fn answer(self, status: StatusCode, text: String) -> Response<Body> {
        match self {
            Self::Events if status == StatusCode::OK => event_stream(full(event(&text))),
            // Only an answer with 200 may be an event stream.
            Self::Events | Self::Json => json_answer(status, text),
        }
    }
}

fn reply(id: &RawValue, outcome: &Outcome) -> Reply {
    #[derive(Serialize)]
    struct Success<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        result: &'a RawValue,
    }
    let text = match outcome {
        // Plain data: cannot fail.
        Outcome::Result(result) => serde_json::to_string(&Success { jsonrpc: "2.0", id, result }).unwrap_or_default(),
        Outcome::Error { code, message } => error(Some(id), *code, message, None),
    };
    Reply { text, is_unknown_method: matches!(outcome, Outcome::Error { code: METHOD_NOT_FOUND, .. }) }
}

/// The answers to the requests of one message or batch, as one.
pub fn joined(replies: Vec<Reply>, is_batch: bool) -> Reply {
    let is_unknown_method = replies.iter().any(|reply| reply.is_unknown_method);
    let text = replies.into_iter().map(|reply| reply.text).collect::<Vec<_>>().join(",");
    Reply { text: if is_batch { format!("[{text}]") } else { text }, is_unknown_method }
}

/// 202: taken, and there is nothing to say.
fn accepted() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Text of a client, repeated in an error.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(100) {
        None => text.into(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
    }
}
