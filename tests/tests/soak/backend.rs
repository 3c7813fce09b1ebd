//! The MCP server behind the front door, of both eras: it mints sessions, and answers as its caller asks, in JSON or as an event stream,
//! at once or after a pause, with as many bytes as it asks for.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::connection::MODERN;

type Body = UnsyncBoxBody<Bytes, Infallible>;

const SESSION: &str = "mcp-session-id";
/// Bytes of a piece of a huge answer, and how many are a MiB.
const PIECE: usize = 16 * 1024;
const PIECES: u64 = 64;

/// A running server. It ends when this handle is dropped.
pub(crate) struct Backend {
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let sessions = Sessions::default();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let sessions = sessions.clone();
                let service = service_fn(move |request| {
                    let sessions = sessions.clone();
                    async move { Ok::<_, Infallible>(sessions.answer(request).await) }
                });
                connections
                    .spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, task })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Those that were begun and not ended, and how many were begun.
#[derive(Clone, Default)]
struct Sessions(Arc<Mutex<(HashSet<String>, u64)>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, (HashSet<String>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> String {
        let mut sessions = self.lock();
        sessions.1 += 1;
        let session = format!("session-{}", sessions.1);
        sessions.0.insert(session.clone());
        session
    }

    async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let named = named(&head.headers);
        if named.as_ref().is_some_and(|session| !self.lock().0.contains(session)) {
            return status(StatusCode::NOT_FOUND);
        }
        match (head.method, named) {
            (Method::DELETE, Some(session)) => {
                self.lock().0.remove(&session);
                status(StatusCode::NO_CONTENT)
            }
            (Method::GET, Some(_)) => events(
                stream::iter([json!({"jsonrpc": "2.0", "method": "notifications/hello"})]).chain(stream::pending()),
            ),
            (Method::POST, _) => {
                let Ok(body) = body.collect().await else { return status(StatusCode::BAD_REQUEST) };
                let Ok(message) = serde_json::from_slice(&body.to_bytes()) else {
                    return status(StatusCode::BAD_REQUEST);
                };
                self.post(&message).await
            }
            _ => status(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(&self, message: &Value) -> Response<Body> {
        if let Some(batch) = message.as_array() {
            return json_answer(&batch.iter().filter_map(result).collect::<Vec<_>>().into());
        }
        let Some(answer) = result(message) else { return status(StatusCode::ACCEPTED) };
        if message["method"] == "initialize" {
            let mut response = json_answer(&answer);
            if let Ok(session) = self.begin().parse() {
                response.headers_mut().insert(SESSION, session);
            }
            return response;
        }
        if message["method"] == "subscriptions/listen" {
            let begun = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}});
            return events(stream::iter([begun]).chain(stream::pending()));
        }
        let arguments = &message["params"]["arguments"];
        if let Some(mebibytes) = arguments["mebibytes"].as_u64() {
            return huge(&answer, mebibytes);
        }
        let pause = Duration::from_millis(arguments["pause"].as_u64().unwrap_or_default());
        if arguments["stream"] == true {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p", "progress": 1}});
            let later = stream::once(async move {
                tokio::time::sleep(pause).await;
                answer
            });
            return events(stream::iter([progress]).chain(later));
        }
        tokio::time::sleep(pause).await;
        json_answer(&answer)
    }
}

fn named(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(SESSION)?.to_str().ok()?.to_owned())
}

/// The answer to a request; a call is answered with its text.
fn result(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }),
        "server/discover" => json!({
            "resultType": "complete",
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }),
        "ping" => json!({}),
        "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}),
        _ => return Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown method"}})),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(stream::empty()).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn json_answer(value: &Value) -> Response<Body> {
    answered("application/json", stream::iter([value.to_string()]))
}

fn events(values: impl Stream<Item = Value> + Send + 'static) -> Response<Body> {
    answered("text/event-stream", values.map(|value| format!("data: {value}\n\n")))
}

/// An answer with so much white space behind it, made as they are taken.
fn huge(answer: &Value, mebibytes: u64) -> Response<Body> {
    let spaces = (0..mebibytes * PIECES).map(|_| " ".repeat(PIECE));
    answered("application/json", stream::iter([answer.to_string()]).chain(stream::iter(spaces)))
}

fn answered(kind: &'static str, pieces: impl Stream<Item = String> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(pieces.map(|piece| Ok(Frame::data(Bytes::from(piece))))).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
