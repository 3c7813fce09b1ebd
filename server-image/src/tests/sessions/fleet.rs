//! The pods of one server, on loopback addresses, and a backend that keeps sessions.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::body::{Body, empty};
use crate::commit::event_stream;
use crate::door::Door;
use crate::refusal::json as json_answer;
use crate::session::keys::tests::entry;
use crate::session::pod::{Pod, Uid};
use crate::tests::backend::{Backend, endless};
use crate::tests::front::{Front, collect, http_config, key, record};

pub const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
pub const CALL: &str = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"t"}}"#;
pub const SESSION: HeaderName = crate::headers::SESSION;

/// The sessions of a backend.
#[derive(Clone, Default)]
pub struct Memory {
    pub alive: Arc<Mutex<HashSet<String>>>,
    pub begun: Arc<AtomicU64>,
    /// Lets a call of `slow` end.
    pub go: Arc<Notify>,
    /// What is said of a session that is not there.
    pub unknown: Option<StatusCode>,
    /// What is answered to DELETE.
    pub deleted: Option<StatusCode>,
}

impl Memory {
    pub fn forget(&self) {
        self.alive.lock().unwrap().clear();
    }

    pub fn alive(&self) -> usize {
        self.alive.lock().unwrap().len()
    }

    /// A backend that remembers here.
    pub async fn serve(&self) -> Backend {
        let memory = self.clone();
        Backend::start(move |request| {
            let memory = memory.clone();
            async move {
                if request.body().windows(6).any(|bytes| bytes == b"\"slow\"") {
                    memory.go.notified().await;
                }
                memory.answer(&request)
            }
        })
        .await
    }

    pub fn answer(&self, request: &Request<Bytes>) -> Response<Body> {
        let message: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let id = request.headers().get(SESSION).map(|id| id.to_str().unwrap().to_owned());
        if message["method"] == "initialize" {
            let id = format!("0b6f4d5e-8f0e-4f43-9e58-{:012x}", self.begun.fetch_add(1, Ordering::SeqCst));
            self.alive.lock().unwrap().insert(id.clone());
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "m", "version": "1"}});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
            let mut response = match request.uri().query() {
                Some("stream") => event_stream(crate::body::full(format!("data: {answer}\n\n"))),
                _ => json_answer(StatusCode::OK, answer),
            };
            response.headers_mut().insert(SESSION, HeaderValue::try_from(id).unwrap());
            return response;
        }
        let Some(id) = id.filter(|id| self.alive.lock().unwrap().contains(id)) else {
            let status = self.unknown.unwrap_or(StatusCode::NOT_FOUND);
            return json_answer(status, json!({"of": "the backend"}).to_string());
        };
        let mut response = match *request.method() {
            Method::GET => endless("data: 1\n\n"),
            Method::DELETE => {
                let status = self.deleted.unwrap_or(StatusCode::OK);
                if status.is_success() {
                    self.alive.lock().unwrap().remove(&id);
                }
                bare(status)
            }
            _ if message["method"] == "wrong" => {
                json_answer(StatusCode::BAD_REQUEST, json!({"of": "the backend"}).to_string())
            }
            _ if message["method"] == "large" => json_answer(StatusCode::OK, "x".repeat(1024 * 1024)),
            _ if message.get("id").is_none() => bare(StatusCode::ACCEPTED),
            _ => json_answer(StatusCode::OK, json!({"jsonrpc": "2.0", "id": message["id"], "result": {}}).to_string()),
        };
        response.headers_mut().insert(SESSION, HeaderValue::try_from(id).unwrap());
        response
    }
}

fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

/// The pods of one server.
pub struct Fleet {
    pub pods: Vec<Front>,
    pub port: u16,
    listening: Vec<tokio::task::JoinHandle<()>>,
}

/// The address of a pod.
pub fn address(number: u8) -> IpAddr {
    [127, 0, 0, number + 2].into()
}

pub fn uid(number: u8) -> Uid {
    Uid([number + 1; 16])
}

/// Sockets for so many pods, all at one port.
async fn sockets(number: u8) -> (u16, Vec<TcpListener>) {
    'again: loop {
        let first = TcpListener::bind((address(0), 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let mut sockets = vec![first];
        for pod in 1..number {
            let Ok(socket) = TcpListener::bind((address(pod), port)).await else { continue 'again };
            sockets.push(socket);
        }
        return (port, sockets);
    }
}

/// A front door of a pod, with the key 1 in force.
pub fn pod(number: u8, port: u16, config: &Value) -> Front {
    let pod = Pod { uid: uid(number), address: address(number) };
    Front::with(Door::new(u64::from(number)).in_pod(pod, port), config, &[("current", &entry(1))])
}

impl Fleet {
    /// One pod for each backend, with a configuration that `change` made of the usual one.
    pub async fn of(backends: &[&Backend], change: impl Fn(&mut Value)) -> Self {
        let (port, sockets) = sockets(u8::try_from(backends.len()).unwrap()).await;
        let (mut pods, mut listening) = (Vec::new(), Vec::new());
        for ((number, backend), socket) in (0..).zip(backends).zip(sockets) {
            let mut config = http_config(backend.port);
            change(&mut config);
            let front = pod(number, port, &config);
            let serve = crate::session::peer::serve(socket, uid(number), Arc::clone(&front.door), TaskTracker::new());
            listening.push(TaskTracker::new().spawn(serve));
            pods.push(front);
        }
        Self { pods, port, listening }
    }

    /// Takes a pod's socket away; what is connected stays so.
    pub async fn stop_listening(&mut self, number: usize) {
        self.listening[number].abort();
        let _ = (&mut self.listening[number]).await;
    }

    /// Where a pod listens to the others.
    pub fn peer(&self, number: u8) -> SocketAddr {
        SocketAddr::new(address(number), self.port)
    }

    /// How many requests a pod has passed on.
    pub fn forwards(&self, number: usize) -> u64 {
        let (_, figures) = self.pods[number].door.metrics.text(false).unwrap();
        let count = figures.lines().find_map(|line| line.strip_prefix("mooring_server_forwards_total "));
        count.unwrap().parse().unwrap()
    }

    pub async fn initialize(&self, number: usize) -> HeaderValue {
        initialize(&self.pods[number]).await
    }

    pub async fn call(&self, number: usize, token: &HeaderValue) -> (u16, String) {
        answer(&self.pods[number], "POST", Some(token)).await
    }
}

/// Lets a second caller in, and returns what makes a request theirs.
pub fn another_caller(front: &Front) -> impl Fn(Request<Body>) -> Request<Body> + use<> {
    let bob = key(2);
    let of_bob = record(&bob, None).replace("\"s\"", "\"bob\"");
    front.keys.swap(&[(front.key.id(), &record(&front.key, None)), (bob.id(), &of_bob)]);
    front.reloader().reload();
    move |mut request| {
        let bearer = HeaderValue::try_from(format!("Bearer {}", bob.expose())).unwrap();
        request.headers_mut().remove("x-api-key");
        request.headers_mut().insert("authorization", bearer);
        request
    }
}

/// Brings another configuration into force.
pub fn reconfigure(front: &Front, config: &Value) {
    front.config.swap(&[("config.json", &config.to_string())]);
    front.reloader().reload();
}

/// Begins a session.
pub async fn initialize(front: &Front) -> HeaderValue {
    let (status, headers, body) = collect(front.ask(front.post(INITIALIZE)).await).await;
    assert_eq!(status, 200, "{body:?}");
    token(&headers)
}

/// The one session id of an answer, which is a token.
pub fn token(headers: &HeaderMap) -> HeaderValue {
    let all: Vec<_> = headers.get_all(SESSION).iter().collect();
    assert_eq!(all.len(), 1, "{headers:?}");
    assert_eq!(all[0].len(), 115, "{headers:?}");
    all[0].clone()
}

/// A call, GET or DELETE with a session's id.
pub fn request(front: &Front, method: &str, token: Option<&HeaderValue>) -> Request<Body> {
    let mut request = if method == "POST" { front.post(CALL) } else { front.bare(method, "/weather/mcp") };
    if let Some(token) = token {
        request.headers_mut().insert(SESSION, token.clone());
    }
    request
}

pub async fn answer(front: &Front, method: &str, token: Option<&HeaderValue>) -> (u16, String) {
    crate::tests::front::text(front.ask(request(front, method, token)).await).await
}
