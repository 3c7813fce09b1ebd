//! The older HTTP+SSE transport: clients on `/sse`, backends that speak nothing else, and both.

mod both;
mod to_older;
mod to_streamable;
mod tools;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::backend::{Backend, feed};
use super::front::{Front, collect, http_config, text};
use crate::body::{Body, empty, full};
use crate::commit::event_stream;
use crate::refusal::json as json_answer;
use crate::sse::event::{Event, Events, encode};

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

fn method(message: &Value) -> &str {
    message["method"].as_str().unwrap_or_default()
}

/// The result that every server here has for a method.
fn result(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match method(message) {
        "" => return None,
        "initialize" => {
            json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "older", "version": "1"}})
        }
        "tools/list" => json!({"tools": [{"name": "a"}, {"name": "b"}]}),
        method => json!({"asked": method}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// A server that speaks the older transport alone, as the SDKs' servers do. It answers all requests but `hold`.
#[derive(Clone, Default)]
pub struct Older {
    streams: Arc<Mutex<HashMap<usize, mpsc::UnboundedSender<Bytes>>>>,
    opened: Arc<AtomicUsize>,
    messages: Arc<Mutex<Vec<Value>>>,
}

impl Older {
    pub async fn start(&self) -> Backend {
        let older = self.clone();
        Backend::start(move |request| {
            let older = older.clone();
            async move { older.answer(&request) }
        })
        .await
    }

    fn answer(&self, request: &Request<Bytes>) -> Response<Body> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/backend/sse") => {
                let number = self.opened.fetch_add(1, Ordering::SeqCst);
                let (sender, body) = feed();
                sender.send(Bytes::from(": hello\r\n\r\nevent: endp".to_owned())).unwrap();
                sender.send(Bytes::from(format!("oint\r\ndata: /backend/message?sessionId={number}\r\n\r\n"))).unwrap();
                self.streams.lock().unwrap().insert(number, sender);
                event_stream(body)
            }
            (&Method::POST, "/backend/message") => {
                let query = request.uri().query().unwrap_or_default();
                let number = query.strip_prefix("sessionId=").and_then(|number| number.parse().ok());
                let Ok(message) = serde_json::from_slice::<Value>(request.body()) else {
                    return status(StatusCode::BAD_REQUEST);
                };
                self.messages.lock().unwrap().push(message.clone());
                let Some(number) = number else { return status(StatusCode::NOT_FOUND) };
                if let Some(answer) = result(&message).filter(|_| method(&message) != "hold") {
                    self.say(number, &answer.to_string());
                }
                status(if self.streams.lock().unwrap().contains_key(&number) {
                    StatusCode::ACCEPTED
                } else {
                    StatusCode::NOT_FOUND
                })
            }
            _ => status(StatusCode::NOT_FOUND),
        }
    }

    fn say(&self, number: usize, message: &str) {
        if let Some(stream) = self.streams.lock().unwrap().get(&number) {
            let _ = stream.send(encode("message", message.as_bytes()));
        }
    }

    fn hang_up(&self, number: usize) {
        self.streams.lock().unwrap().remove(&number);
    }

    fn heard(&self, wanted: &str) -> usize {
        self.messages.lock().unwrap().iter().filter(|message| method(message) == wanted).count()
    }
}

fn sse_config(port: u16) -> Value {
    let mut config = http_config(port);
    config["source"] = json!({"http": {"port": port, "path": "/backend/sse", "transport": "sse"}});
    config
}

/// A client on `/sse`.
struct Client<'a> {
    front: &'a Front,
    events: Events<Body>,
    endpoint: String,
}

impl<'a> Client<'a> {
    async fn open(front: &'a Front) -> Self {
        let response = front.ask(front.bare("GET", "/weather/sse")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        let mut events = Events::new(response.into_body());
        let first = events.next().await.unwrap().unwrap();
        assert_eq!(first.name, "endpoint");
        Self { front, events, endpoint: String::from_utf8(first.data.unwrap()).unwrap() }
    }

    fn request(&self, message: &str) -> Request<Body> {
        let mut request = self.front.post(message);
        request.headers_mut().remove("accept");
        *request.uri_mut() = self.endpoint.parse().unwrap();
        request
    }

    async fn post(&self, message: &str) -> u16 {
        text(self.front.ask(self.request(message)).await).await.0
    }

    async fn next(&mut self) -> Option<String> {
        let next = tokio::time::timeout(Duration::from_secs(10), self.events.next());
        let Event { name, data, .. } = next.await.expect("an event within 10 s").unwrap()?;
        assert_eq!(name, "message");
        Some(String::from_utf8(data.unwrap()).unwrap())
    }

    /// Sends a request and returns the next event.
    async fn ask(&mut self, message: &str) -> Value {
        assert_eq!(self.post(message).await, 202, "{message}");
        serde_json::from_str(&self.next().await.unwrap()).unwrap()
    }
}

fn with_session(mut request: Request<Body>, session: &HeaderValue) -> Request<Body> {
    request.headers_mut().insert("mcp-session-id", session.clone());
    request
}

/// A Streamable HTTP session with a server that speaks the older transport.
async fn initialize(front: &Front) -> HeaderValue {
    let response = front.ask(front.post(INITIALIZE)).await;
    let (status, headers, body) = collect(response).await;
    let body = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(
        (status.as_u16(), &headers["content-type"]),
        (200, &HeaderValue::from_static("application/json")),
        "{body}"
    );
    assert!(body.contains("\"older\""), "{body}");
    let session = headers["mcp-session-id"].clone();
    assert_eq!(session.len(), 36);
    assert_eq!(text(front.ask(with_session(front.post(INITIALIZED), &session)).await).await.0, 202);
    session
}

/// A Streamable HTTP server with sessions.
async fn streamable(own: Arc<Mutex<Option<Body>>>) -> Backend {
    Backend::start(move |request| {
        let own = Arc::clone(&own);
        async move {
            if request.method() == Method::GET {
                let own = own.lock().unwrap().take();
                return own.map_or_else(|| status(StatusCode::METHOD_NOT_ALLOWED), event_stream);
            }
            if request.method() == Method::DELETE {
                return status(StatusCode::OK);
            }
            let message: Value = serde_json::from_slice(request.body()).unwrap();
            let answer = result(&message).unwrap_or_default().to_string();
            let mut response = match method(&message) {
                "tools/call" => {
                    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"big":12345678901234567890123}}"#;
                    let ask = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}"#;
                    let text = format!("id: 0\ndata: \n\n: c\n\ndata: {progress}\n\ndata: {ask}\r\n\r\ndata: {{\ndata: \"jsonrpc\":\"2.0\", \"id\":1e0,\"result\":{{}}}}\n\n");
                    event_stream(full(text))
                }
                "hold" => std::future::pending().await,
                "gone" => json_answer(StatusCode::NOT_FOUND, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#.into()),
                "html" => {
                    let mut response = Response::new(full("<html>"));
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    response
                }
                "cut" => event_stream(full("data: {\"method\":\"n\"}\n\n")),
                "" | "notifications/initialized" => status(StatusCode::ACCEPTED),
                _ => json_answer(StatusCode::OK, answer),
            };
            if method(&message) == "initialize" {
                response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("x-1"));
            }
            response
        }
    })
    .await
}
