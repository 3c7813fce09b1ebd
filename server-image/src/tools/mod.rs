//! Declared tools: the front door itself is the MCP server. It answers JSON-RPC in both eras, keeps no session (any
//! replica can answer), and turns a `tools/call` into one HTTP request.

pub mod arguments;
pub mod call;
pub mod era;
pub mod template;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use mooring_contract::config::Tool;
use mooring_contract::door_status::Handshake;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::body::{Body, empty, full};
use crate::clients::Clients;
use crate::commit::{event, event_stream};
use crate::headers::accepts;
use crate::peek::Message;
use crate::refusal::{Refusal, json as json_answer};
use crate::rules::Environment;
use call::DeclaredTool;
use era::{Era, MODERN, Params};

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
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
    Error { code: i64, message: String, data: Option<Value> },
}

impl Outcome {
    fn error(code: i64, message: impl Into<String>) -> Self {
        Self::Error { code, message: message.into(), data: None }
    }
}

impl ToolServer {
    /// Compiles the declarations; the error names the tool and what is wrong.
    pub fn new(name: &str, tools: Vec<Tool>, clients: &Clients, environment: Environment<'_>) -> Result<Self, String> {
        let mut list = Vec::with_capacity(tools.len());
        let mut compiled = HashMap::with_capacity(tools.len());
        for tool in tools {
            list.push(description(&tool));
            let name = tool.name.clone();
            let tool =
                DeclaredTool::new(tool, clients, environment).map_err(|error| format!("tool {name}: {error}"))?;
            if compiled.insert(name.clone(), Arc::new(tool)).is_some() {
                return Err(format!("tool {name} is declared twice"));
            }
        }
        Ok(Self { name: name.to_owned(), tools: compiled, list: Value::from(list) })
    }

    /// What a handshake with this server answers.
    pub fn handshake(&self) -> Handshake {
        Handshake {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_versions: era::all_versions().map(str::to_owned).collect(),
            tool_count: u32::try_from(self.tools.len()).ok(),
        }
    }

    /// Answers one POST. A call that outlives its client runs on `calls`.
    pub async fn answer(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        message: Message,
        calls: &TaskTracker,
    ) -> Result<Response<Body>, Refusal> {
        let (id, method) = match message {
            Message::Batch => return Err(Refusal::NotMessage("one message at a time: batches are not taken".into())),
            Message::Response => return Ok(accepted()),
            Message::Notification(method) => {
                let modern = headers.get(era::VERSION_HEADER).is_some_and(|version| version == MODERN);
                let known = modern || era::legacy_version(headers, &method).is_ok();
                return if known { Ok(accepted()) } else { Ok(unsupported(None, headers)) };
            }
            Message::Request(id, method) => (id, method),
        };
        let form = Form::of(headers)?;
        let params = match Params::read(body) {
            Ok(params) => params,
            Err(reason) => return Ok(reply(&id, &Outcome::error(INVALID_PARAMS, reason), StatusCode::OK, form)),
        };
        match Era::of(headers, &method, &params) {
            Err(problem) => {
                let outcome = Outcome::Error { code: problem.code, message: problem.message, data: problem.data };
                Ok(reply(&id, &outcome, StatusCode::BAD_REQUEST, form))
            }
            Ok(era) => {
                let outcome = self.dispatch(era, &method, &params, calls).await;
                let unknown = matches!(outcome, Outcome::Error { code: METHOD_NOT_FOUND, .. });
                let status = if era == Era::Modern && unknown { StatusCode::NOT_FOUND } else { StatusCode::OK };
                Ok(reply(&id, &outcome, status, form))
            }
        }
    }

    async fn dispatch(&self, era: Era, method: &str, params: &Params<'_>, calls: &TaskTracker) -> Outcome {
        match (era, method) {
            (Era::Legacy, "initialize") => {
                let version = era::negotiate(params.protocol_version());
                let server = self.identity();
                self.result(
                    era,
                    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}),
                )
            }
            (Era::Legacy, "ping") => self.result(era, json!({})),
            (Era::Modern, "server/discover") => {
                let (ttl, scope) = (LIST_TTL, "private");
                let versions: Vec<_> = era::all_versions().collect();
                self.result(
                    era,
                    json!({"supportedVersions": versions, "capabilities": {"tools": {}}, "ttlMs": ttl, "cacheScope": scope}),
                )
            }
            (_, "tools/list") => match (params.cursor(), era) {
                (Some(_), _) => Outcome::error(INVALID_PARAMS, "Unknown cursor: the list has one page"),
                (None, Era::Legacy) => self.result(era, json!({"tools": self.list})),
                (None, Era::Modern) => {
                    self.result(era, json!({"tools": self.list, "ttlMs": LIST_TTL, "cacheScope": "private"}))
                }
            },
            (_, "tools/call") => self.call(era, params, calls).await,
            (_, method) => Outcome::error(METHOD_NOT_FOUND, format!("Method not found: {}", shortened(method))),
        }
    }

    async fn call(&self, era: Era, params: &Params<'_>, calls: &TaskTracker) -> Outcome {
        let Some(name) = params.name() else {
            return Outcome::error(INVALID_PARAMS, "params.name must be a string");
        };
        let Some(tool) = self.tools.get(name.as_ref()) else {
            return Outcome::error(INVALID_PARAMS, format!("Unknown tool: {}", shortened(&name)));
        };
        let tool = Arc::clone(tool);
        let arguments = params.arguments().map(RawValue::to_owned);
        let calling = async move { tool.call(arguments.as_deref()).await };
        let result = match era {
            // Closing the answer is the modern way to cancel.
            Era::Modern => calling.await,
            // A legacy client that loses its connection did not cancel.
            Era::Legacy => match calls.spawn(calling).await {
                Ok(result) => result,
                Err(_) => return Outcome::error(INTERNAL_ERROR, "The call broke off"),
            },
        };
        match result {
            Ok(result) => match to_raw_value(&result.in_era(era)) {
                Ok(result) => Outcome::Result(result),
                Err(error) => Outcome::error(INTERNAL_ERROR, error.to_string()),
            },
            Err(call::CallError::Arguments(reason)) => Outcome::error(INVALID_PARAMS, reason),
            Err(call::CallError::Fault(reason)) => Outcome::error(INTERNAL_ERROR, reason),
        }
    }

    fn identity(&self) -> Value {
        json!({"name": self.name, "version": env!("CARGO_PKG_VERSION")})
    }

    fn result(&self, era: Era, mut result: Value) -> Outcome {
        if let (Era::Modern, Some(map)) = (era, result.as_object_mut()) {
            map.insert("resultType".into(), "complete".into());
            map.insert("_meta".into(), json!({"io.modelcontextprotocol/serverInfo": self.identity()}));
        }
        match to_raw_value(&result) {
            Ok(result) => Outcome::Result(result),
            Err(error) => Outcome::error(INTERNAL_ERROR, error.to_string()),
        }
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
}

#[derive(Serialize)]
struct Reply<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ReplyError<'a>>,
}

#[derive(Serialize)]
struct ReplyError<'a> {
    code: i64,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Value>,
}

fn text(id: Option<&RawValue>, outcome: &Outcome) -> String {
    let (result, error) = match outcome {
        Outcome::Result(result) => (Some(result.as_ref()), None),
        Outcome::Error { code, message, data } => {
            (None, Some(ReplyError { code: *code, message, data: data.as_ref() }))
        }
    };
    serde_json::to_string(&Reply { jsonrpc: "2.0", id, result, error }).unwrap_or_default() // plain data: cannot fail
}

fn reply(id: &RawValue, outcome: &Outcome, status: StatusCode, form: Form) -> Response<Body> {
    let text = text(Some(id), outcome);
    match form {
        Form::Events if status == StatusCode::OK => event_stream(full(event(&text))),
        // Only an answer with 200 may be an event stream.
        Form::Events | Form::Json => json_answer(status, text),
    }
}

fn unsupported(id: Option<&RawValue>, headers: &HeaderMap) -> Response<Body> {
    let problem = era::Problem::unsupported(&era::header(headers, era::VERSION_HEADER).unwrap_or_default());
    let outcome = Outcome::Error { code: problem.code, message: problem.message, data: problem.data };
    json_answer(StatusCode::BAD_REQUEST, text(id, &outcome))
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
