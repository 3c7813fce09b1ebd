//! The older HTTP+SSE transport: clients on `/sse`, backends that speak nothing else, and both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::backend::Backend;
use super::eventually;
use super::front::{Front, collect, http_config, key, record, text};
use crate::body::{Body, BodyError, empty, full};
use crate::commit::event_stream;
use crate::door::Phase;
use crate::handshake;
use crate::refusal::json as json_answer;
use crate::sse::event::{Event, Events, encode};

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A stream that is fed from outside.
fn feed() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, BodyError>(Frame::data(bytes)), receiver))
    });
    (sender, StreamBody::new(frames).boxed_unsync())
}

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
struct Older {
    streams: Arc<Mutex<HashMap<usize, mpsc::UnboundedSender<Bytes>>>>,
    opened: Arc<AtomicUsize>,
    messages: Arc<Mutex<Vec<Value>>>,
}

impl Older {
    async fn start(&self) -> Backend {
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

fn tools_config() -> Value {
    let mut config = http_config(9);
    config["source"] = json!({"tools": [
        {"name": "t", "inputSchema": {"type": "object"}, "http": {"method": "GET", "url": "http://127.0.0.1:9/", "timeoutMs": 1000}},
    ]});
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

#[tokio::test]
async fn declared_tools_are_served_to_older_clients() {
    let front = Front::new(&tools_config());
    let mut client = Client::open(&front).await;
    let prefix = "/weather/messages?s=";
    assert!(client.endpoint.starts_with(prefix) && client.endpoint.len() == prefix.len() + 43, "{}", client.endpoint);
    let answer = client.ask(INITIALIZE).await;
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(0), &json!("2024-11-05")));
    assert_eq!(client.post(INITIALIZED).await, 202);
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#).await;
    assert_eq!((&answer["id"], &answer["result"]["tools"][0]["name"]), (&json!("l"), &json!("t")));
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-32601)));
    // The newest revision has no such transport; its clients fall back from this answer.
    let discover = r#"{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let answer = client.ask(discover).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(3), &json!(-32600)));
    assert_eq!(answer["error"]["data"]["supported"][0], "2025-11-25");
    // What is no message is refused where it was sent.
    assert_eq!(client.post("{").await, 400);
    assert_eq!(client.post(r#"{"id":1,"method":"a","method":"b"}"#).await, 400);
    assert_eq!(client.post(&format!(r#"{{"id":1,"method":"a","x":"{}"}}"#, "x".repeat(5000))).await, 413);
}

#[tokio::test]
async fn a_session_belongs_to_its_principal_and_ends_with_its_stream() {
    let front = Front::new(&tools_config());
    let (other, rotated) = (key(2), key(3));
    let of = |subject: &str, key| record(key, None).replace("\"subject\":\"s\"", &format!("\"subject\":\"{subject}\""));
    front.keys.swap(&[
        (front.key.id(), &of("alice", &front.key)),
        (other.id(), &of("bob", &other)),
        (rotated.id(), &of("alice", &rotated)),
    ]);
    front.reloader().reload();
    let mut client = Client::open(&front).await;
    let with = |key: &str| {
        let mut request = client.request(INITIALIZE);
        request.headers_mut().insert("authorization", HeaderValue::try_from(format!("Bearer {key}")).unwrap());
        request
    };
    assert_eq!(text(front.ask(with(other.expose())).await).await.0, 404, "another principal");
    assert_eq!(text(front.ask(with("nobody")).await).await.0, 401);
    assert_eq!(text(front.ask(with(rotated.expose())).await).await.0, 202, "the same after a rotation");
    assert!(client.next().await.unwrap().contains("serverInfo"));
    for wrong in ["/weather/messages", "/weather/messages?s=", "/weather/messages?s=wrong", "/messages?s=x"] {
        let mut request = client.request(INITIALIZE);
        *request.uri_mut() = wrong.parse().unwrap();
        assert_eq!(text(front.ask(request).await).await.0, 404, "{wrong}");
    }
    let twice = format!("{0}&s={1}", client.endpoint, client.endpoint.split("s=").nth(1).unwrap());
    let mut request = client.request(INITIALIZE);
    *request.uri_mut() = twice.parse().unwrap();
    assert_eq!(text(front.ask(request).await).await.0, 404, "two tokens");
    for (method, path, expected) in [
        ("POST", "/weather/sse", 405),
        ("DELETE", "/weather/sse", 405),
        ("HEAD", "/weather/sse", 405),
        ("GET", "/weather/messages", 405),
        ("OPTIONS", "/weather/sse", 204),
        ("OPTIONS", "/weather/messages", 204),
    ] {
        assert_eq!(text(front.ask(front.bare(method, path)).await).await.0, expected, "{method} {path}");
    }
    let mut request = front.bare("GET", "/weather/sse");
    request.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
    assert_eq!(text(front.ask(request).await).await.0, 406);

    let request = client.request(INITIALIZE);
    drop(client);
    assert_eq!(text(front.ask(request).await).await.0, 404, "the stream has ended");
    eventually("nothing is left", || front.door.calls.is_empty() && front.door.sse.sessions() == 0).await;
}

/// A token is in its first event and in no answer, no request to the backend, no metric, no status and no description.
#[tokio::test]
async fn a_token_is_told_to_nobody_but_its_client() {
    let older = Older::default();
    let (behind_older, behind_streamable) = (older.start().await, streamable(Arc::default()).await);
    for (backend, config) in
        [(&behind_older, sse_config(behind_older.port)), (&behind_streamable, http_config(behind_streamable.port))]
    {
        let front = Front::new(&config);
        let mut client = Client::open(&front).await;
        client.ask(INITIALIZE).await;
        let token = client.endpoint.split("s=").nth(1).unwrap().to_owned();
        let mut texts = Vec::new();
        for (method, message) in [("POST", INITIALIZED), ("POST", "{"), ("PUT", ""), ("GET", ""), ("OPTIONS", "")] {
            let mut request = client.request(message);
            *request.method_mut() = method.parse().unwrap();
            let (_, headers, body) = collect(front.ask(request).await).await;
            texts.push(format!("{headers:?} {}", String::from_utf8_lossy(&body)));
        }
        for place in ["/weather/sse?s=", "/weather/messages?s=x&s=", "/weather/messages/", "/weather/mcp?x="] {
            let mut request = client.request("{");
            *request.uri_mut() = format!("{place}{token}").parse().unwrap();
            let (_, headers, body) = collect(front.ask(request).await).await;
            texts.push(format!("{headers:?} {}", String::from_utf8_lossy(&body)));
        }
        texts.push(format!("{:?}", backend.seen()));
        texts.push(serde_json::to_string(&front.door.status()).unwrap());
        texts.push(front.door.metrics.text(true).unwrap().1);
        texts.push(format!("{:?}", front.door));
        let found = texts.iter().find(|text| text.contains(&token));
        assert!(found.is_none(), "{found:?}");
    }
}

#[tokio::test]
async fn a_revoked_key_ends_the_stream() {
    let front = Front::new(&tools_config());
    let mut client = Client::open(&front).await;
    front.watch();
    front.keys.swap(&[]);
    assert_eq!(client.next().await, None);
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

#[tokio::test]
async fn an_older_client_reaches_a_streamable_server() {
    let (sender, own) = feed();
    let backend = streamable(Arc::new(Mutex::new(Some(own)))).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    assert_eq!(backend.calls(), 0, "the server learns of the client with its first message");
    client.ask(INITIALIZE).await;
    assert_eq!(client.post(INITIALIZED).await, 202);
    eventually("the server's own stream is read", || backend.calls() == 3).await;
    sender.send(Bytes::from_static(b"event: message\ndata: {\"method\":\"notifications/x\"}\n\n")).unwrap();
    assert_eq!(client.next().await.unwrap(), r#"{"method":"notifications/x"}"#);

    // An answer of several events is copied as it comes.
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#).await, 202);
    assert!(client.next().await.unwrap().contains("12345678901234567890123"));
    assert_eq!(client.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}"#);
    assert_eq!(client.next().await.unwrap(), "{\n\"jsonrpc\":\"2.0\", \"id\":1e0,\"result\":{}}");
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await, 202);

    // What fails becomes an error for the request that failed.
    let mut failures = Vec::new();
    for method in ["html", "cut"] {
        assert_eq!(client.post(&format!(r#"{{"jsonrpc":"2.0","id":"f","method":"{method}"}}"#)).await, 202);
        loop {
            let said: Value = serde_json::from_str(&client.next().await.unwrap()).unwrap();
            if said["id"] == "f" {
                failures.push(said["error"]["message"].as_str().unwrap().to_owned());
                break;
            }
        }
    }
    assert_eq!(
        failures,
        ["The MCP server answered HTTP 502 Bad Gateway", "The MCP server ended its answer without a message"]
    );
    for request in backend.seen().iter().skip(1) {
        assert_eq!(request.headers()["mcp-session-id"], "x-1", "{:?}", request.method());
        assert_eq!(request.headers()["mcp-protocol-version"], "2024-11-05");
        assert_eq!((request.uri().path(), request.uri().query()), ("/backend/mcp", None));
        assert!(!request.headers().contains_key("authorization") && !request.headers().contains_key("x-api-key"));
    }
    // A call that still runs is given up with the client, and the session is ended.
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":2,"method":"hold"}"#).await, 202);
    eventually("the call runs", || backend.open() == 2).await;
    drop(client);
    eventually("all is over", || backend.open() == 0).await;
    eventually("the session is ended", || backend.last().method() == Method::DELETE).await;
    assert_eq!(backend.last().headers()["mcp-session-id"], "x-1");
}

#[tokio::test]
async fn a_session_that_the_server_forgot_ends_the_stream() {
    let backend = streamable(Arc::default()).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    client.ask(INITIALIZE).await;
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":5,"method":"gone"}"#).await;
    assert_eq!(answer["id"], 5);
    assert_eq!(answer["error"]["message"], "The MCP server answered HTTP 404 Not Found: Session not found");
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn a_server_that_is_away_is_told_for_each_request() {
    let front = Front::new(&http_config(9));
    let mut client = Client::open(&front).await;
    let answer = client.ask(INITIALIZE).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(0), &json!(503)));
    assert_eq!(client.post(INITIALIZED).await, 503);
}

/// A request that its client gives up is not answered any more, and nothing waits for it.
#[tokio::test]
async fn a_request_that_is_given_up_holds_nothing() {
    let give_up = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2.0}}"#;
    let hold = r#"{"jsonrpc":"2.0","id":2,"method":"hold"}"#;
    let backend = streamable(Arc::default()).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    client.ask(INITIALIZE).await;
    assert_eq!(client.post(hold).await, 202);
    eventually("the call runs", || backend.open() == 1).await;
    assert_eq!(client.post(&give_up.replace("2.0}", "3}")).await, 202);
    assert_eq!(backend.open(), 1, "another request's");
    assert_eq!(client.post(give_up).await, 202);
    eventually("the call is given up", || backend.open() == 0).await;
    front.door.enter(Phase::Stopping);
    assert_eq!(client.next().await, None);

    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let giving_up = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        assert_eq!(text(front.ask(with_session(front.post(give_up), &session)).await).await.0, 202);
    };
    let (response, ()) = tokio::join!(front.ask(with_session(front.post(hold), &session)), giving_up);
    assert_eq!(response.status(), 502);
    let mut client = Client::open(&front).await;
    assert_eq!(client.post(hold).await, 202);
    assert_eq!(client.post(give_up).await, 202);
    front.door.enter(Phase::Stopping);
    assert_eq!(client.next().await, None);
}

/// A server may end a stream early and wait to be asked for the rest.
#[tokio::test]
async fn a_stream_that_ends_early_is_resumed() {
    let backend = Backend::start(|request| async move {
        if request.method() == Method::GET {
            assert_eq!(request.headers()["last-event-id"], "e-1");
            return event_stream(full("id: e-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"));
        }
        event_stream(full("id: e-1\nretry: 5\ndata: \n\n"))
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#).await;
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
}

#[tokio::test]
async fn a_stop_waits_for_calls_and_then_ends_the_stream() {
    let go = Arc::new(tokio::sync::Notify::new());
    let wait = Arc::clone(&go);
    let backend = Backend::start(move |_| {
        let wait = Arc::clone(&wait);
        async move {
            wait.notified().await;
            json_answer(StatusCode::OK, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#.into())
        }
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let (mut idle, mut calling) = (Client::open(&front).await, Client::open(&front).await);
    assert_eq!(calling.post(INITIALIZE).await, 202);
    eventually("the call runs", || backend.open() == 1).await;
    front.door.enter(Phase::Stopping);
    assert_eq!(idle.next().await, None);
    go.notify_one();
    assert!(calling.next().await.unwrap().contains("result"));
    assert_eq!(calling.next().await, None);
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
    assert_eq!(session.len(), 43);
    assert_eq!(text(front.ask(with_session(front.post(INITIALIZED), &session)).await).await.0, 202);
    session
}

#[tokio::test]
async fn a_streamable_client_reaches_an_older_server() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let post = |message: &str| with_session(front.post(message), &session);
    let (status, answer) = text(front.ask(post(r#"{"jsonrpc":"2.0","id":"t","method":"tools/list"}"#)).await).await;
    assert_eq!(status, 200);
    assert!(answer.contains("\"id\":\"t\"") && answer.contains("\"b\""), "{answer}");

    // Progress belongs to the request that brought its token, all else to the client's own stream, as soon as there is
    // one; a request that takes JSON alone is told nothing but its answer.
    older.say(0, r#"{"jsonrpc":"2.0","method":"notifications/early"}"#);
    let mut plain = post(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    plain.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
    assert!(text(front.ask(plain).await).await.1.contains("\"ping\""));
    let hold = r#"{"jsonrpc":"2.0","id":9,"method":"hold","params":{"_meta":{"progressToken":"p"}}}"#;
    let asking = front.ask(post(hold));
    let talking = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        let mut own =
            Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &session)).await.into_body());
        let mut next = async || {
            let event = tokio::time::timeout(Duration::from_secs(10), own.next()).await.expect("an event within 10 s");
            String::from_utf8(event.unwrap().unwrap().data.unwrap()).unwrap()
        };
        assert_eq!(next().await, r#"{"jsonrpc":"2.0","method":"notifications/early"}"#);
        older.say(0, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        older.say(
            0,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
        );
        older.say(
            0,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"q","progress":1}}"#,
        );
        assert_eq!(next().await, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        assert!(next().await.contains("\"q\""));
        // Ids are the client's: a second request with one that waits is refused.
        assert_eq!(text(front.ask(post(hold)).await).await.0, 400);
        older.say(0, r#"{"jsonrpc":"2.0","id":9,"result":{"big":12345678901234567890123}}"#);
        own
    };
    let (response, _own) = tokio::join!(asking, talking);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (status, answer) = text(response).await;
    assert_eq!(status, 200);
    assert_eq!(
        answer,
        "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"p\",\"progress\":1}}\n\n\
         event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"big\":12345678901234567890123}}\n\n"
    );
    for request in backend.seen() {
        assert!(!request.headers().contains_key("mcp-session-id"), "the session is the front door's own");
        assert!(!request.headers().contains_key("authorization"));
    }
    assert_eq!(text(front.ask(with_session(front.bare("DELETE", "/weather/mcp"), &session)).await).await.0, 204);
    assert_eq!(text(front.ask(post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await).await.0, 404);
    eventually("the server's stream is closed", || backend.open() == 0 && front.door.sse.sessions() == 0).await;
}

#[tokio::test]
async fn what_does_not_belong_to_a_session_is_refused() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let other = key(2);
    front.keys.swap(&[
        (front.key.id(), &record(&front.key, None)),
        (other.id(), &record(&other, None).replace("\"subject\":\"s\"", "\"subject\":\"t\"")),
    ]);
    front.reloader().reload();
    let session = initialize(&front).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let calls = backend.calls();
    assert_eq!(text(front.ask(front.post(ping)).await).await.0, 400, "no session");
    assert_eq!(text(front.ask(with_session(front.post(ping), &HeaderValue::from_static("wrong"))).await).await.0, 404);
    for message in [ping, INITIALIZED, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#] {
        let mut request = with_session(front.post(message), &session);
        request
            .headers_mut()
            .insert("authorization", HeaderValue::try_from(format!("Bearer {}", other.expose())).unwrap());
        assert_eq!(text(front.ask(request).await).await.0, 404, "another's session: {message}");
    }
    for method in ["GET", "DELETE"] {
        let mut request = with_session(front.bare(method, "/weather/mcp"), &session);
        request.headers_mut().insert("x-api-key", HeaderValue::try_from(other.expose()).unwrap());
        assert_eq!(text(front.ask(request).await).await.0, 404, "another's session: {method}");
        assert_eq!(text(front.ask(front.bare(method, "/weather/mcp")).await).await.0, 400, "no session: {method}");
    }
    let batch = format!("[{ping}]");
    assert_eq!(text(front.ask(with_session(front.post(&batch), &session)).await).await.0, 400);
    assert_eq!(backend.calls(), calls, "none of them reached the server");
    assert_eq!(text(front.ask(with_session(front.post(ping), &session)).await).await.0, 200);
}

#[tokio::test]
async fn a_session_ends_with_the_servers_stream() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let mut own = Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &session)).await.into_body());
    let hold = r#"{"jsonrpc":"2.0","id":9,"method":"hold"}"#;
    let hanging_up = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        older.hang_up(0);
    };
    let (response, ()) = tokio::join!(front.ask(with_session(front.post(hold), &session)), hanging_up);
    let (status, answer) = text(response).await;
    assert_eq!(status, 502, "{answer}");
    assert!(answer.contains("\"id\":9"), "{answer}");
    assert_eq!(own.next().await.unwrap(), None);
    assert_eq!(text(front.ask(with_session(front.post(hold), &session)).await).await.0, 404);
    eventually("nothing is left", || backend.open() == 0).await;
}

#[tokio::test]
async fn an_idle_session_ends_and_one_with_a_stream_does_not() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let (idle, listening) = (initialize(&front).await, initialize(&front).await);
    let mut own = Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &listening)).await.into_body());
    tokio::time::pause();
    let silent = tokio::time::timeout(Duration::from_secs(40 * 60), own.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    tokio::time::resume();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(text(front.ask(with_session(front.post(ping), &idle)).await).await.0, 404);
    assert_eq!(text(front.ask(with_session(front.post(ping), &listening)).await).await.0, 200);
}

#[tokio::test]
async fn a_client_that_leaves_during_the_handshake_leaves_no_session() {
    let backend = Backend::start(|request| async move {
        if request.method() == Method::POST {
            return status(StatusCode::ACCEPTED); // and never an answer
        }
        let (sender, body) = feed();
        sender.send(Bytes::from_static(b"event: endpoint\ndata: message\n\n")).unwrap();
        event_stream(
            body.map_frame(move |frame| {
                let _open = &sender;
                frame
            })
            .boxed_unsync(),
        )
    })
    .await;
    let front = Front::new(&sse_config(backend.port));
    {
        let asking = front.ask(front.post(INITIALIZE));
        let waiting = eventually("it waits for the answer", || backend.calls() == 2);
        tokio::select! {
            _ = asking => panic!("there is no answer"),
            () = waiting => {}
        }
    }
    assert_eq!(backend.last().uri().path(), "/backend/message", "relative to the stream's own path");
    eventually("nothing is left", || backend.open() == 0 && front.door.sse.sessions() == 0).await;
}

#[tokio::test]
async fn a_backend_without_the_older_transport_is_told() {
    for (first, expected) in [
        ("event: endpoint\ndata: http://evil.example.com/message\n\n", 502),
        ("event: endpoint\ndata: //evil.example.com/message\n\n", 502),
        ("data: {}\n\n", 502),
        ("", 502),
    ] {
        let backend = Backend::start(move |_| async move { event_stream(full(first)) }).await;
        let front = Front::new(&sse_config(backend.port));
        let (status, answer) = text(front.ask(front.post(INITIALIZE)).await).await;
        assert_eq!(status, expected, "{first}: {answer}");
        assert_eq!(text(front.ask(front.bare("GET", "/weather/sse")).await).await.0, expected, "{first}");
        assert_eq!(backend.calls(), 2, "nothing was sent elsewhere");
    }
}

#[tokio::test]
async fn an_older_client_and_an_older_server_talk_as_they_like() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let mut client = Client::open(&front).await;
    assert!(client.endpoint.starts_with("/weather/messages?s="), "{}", client.endpoint);
    client.ask(INITIALIZE).await;
    assert_eq!(client.post(INITIALIZED).await, 202);
    let odd = "{ \"jsonrpc\":\"2.0\" ,\"id\":12345678901234567890123,\"method\":\"x/y\"}\n";
    client.ask(odd).await;
    assert_eq!(backend.last().body(), odd);
    assert_eq!(backend.last().uri(), "/backend/message?sessionId=0");
    let stream = older.streams.lock().unwrap()[&0].clone();
    stream.send(Bytes::from_static(b"id: 1\r\nevent: other\r\ndata: x\r\n\r\n")).unwrap();
    let event = client.events.next().await.unwrap().unwrap();
    assert_eq!((event.name.as_str(), event.id.as_deref()), ("other", Some("1")), "all bytes pass");
    let request = client.request(INITIALIZE);
    drop(client);
    eventually("the server's stream is closed", || backend.open() == 0).await;
    assert_eq!(text(front.ask(request).await).await.0, 404);
}

#[tokio::test]
async fn the_handshake_speaks_the_older_transport_too() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    front.run(handshake::keep(Arc::clone(&front.door)));
    front.ready().await;
    let told = front.door.status().handshake.unwrap();
    assert_eq!((told.name.as_str(), told.version.as_str(), told.tool_count), ("older", "1", Some(2)));
    assert_eq!(told.protocol_versions, ["2024-11-05"]);
    assert_eq!((older.heard("initialize"), older.heard("notifications/initialized")), (1, 1));
    eventually("its stream is closed", || backend.open() == 0).await;
    // A modern request is refused in its own words, and its client falls back.
    let modern = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let mut request = front.post(modern);
    request.headers_mut().insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
    request.headers_mut().insert("mcp-method", HeaderValue::from_static("server/discover"));
    let (status, answer) = text(front.ask(request).await).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32600)));
    assert_eq!(answer["error"]["data"]["supported"], json!(["2024-11-05"]));
}
