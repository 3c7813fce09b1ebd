//! A front door with mounted directories, asked directly or over a socket.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use mooring_contract::config::ServedOver;
use mooring_contract::key::ENTROPY;
use mooring_contract::{Key, KeyMetadata, KeyRecord};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::eventually;
use super::kubelet::Mount;
use crate::body::{Body, empty, full};
use crate::clock;
use crate::door::Door;
use crate::pipeline::{self, Arrival};
use crate::reload::Reloader;
use crate::rules::Surroundings;
use crate::sources::{Mounts, Sources};

/// A front door for `mcp.example.com`, with a key.
pub struct Front {
    pub door: Arc<Door>,
    pub config: Mount,
    pub keys: Mount,
    pub secrets: tempfile::TempDir,
    pub session: Mount,
    pub key: Key,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn key(number: u8) -> Key {
    Key::from_entropy(&[number; ENTROPY])
}

pub fn record(key: &Key, expires: Option<jiff::Timestamp>) -> String {
    let created = "2026-01-01T00:00:00Z".parse().unwrap();
    let metadata = KeyMetadata { name: "laptop".into(), subject: "s".into(), created, expires };
    KeyRecord::of(key, metadata).to_json().unwrap()
}

pub fn http_config(port: u16) -> Value {
    json!({
        "version": 1,
        "server": {"namespace": "demo", "name": "weather", "uid": "u"},
        "path": "/weather",
        "security": {"hosts": ["mcp.example.com"], "origins": ["https://app.example.com"]},
        "source": {"http": {"port": port, "path": "/backend/mcp"}},
        "limits": {"bodyBytes": 4096, "callTimeoutMs": 5000},
    })
}

/// The variables of the pod.
fn environment(name: &str) -> Option<String> {
    (name == "API_TOKEN").then(|| {
        "token-of-the-pod
"
        .to_owned()
    })
}

impl Front {
    /// A front door with this configuration in force, whose tasks do not run.
    pub fn new(config: &Value) -> Self {
        let front = Self::unchecked(config);
        assert!(front.door.rules().is_some(), "the configuration of the test is refused");
        front
    }

    /// The same, whether it takes its configuration or not.
    pub fn unchecked(config: &Value) -> Self {
        Self::with(Door::new(7), config, &[])
    }

    /// The same with more entries in the Secret of the sessions.
    pub fn with(door: Door, config: &Value, session: &[(&str, &str)]) -> Self {
        let front = Self {
            door: Arc::new(door),
            config: Mount::new(),
            keys: Mount::new(),
            secrets: tempfile::tempdir().unwrap(),
            session: Mount::new(),
            key: key(1),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        front.config.swap(&[("config.json", &config.to_string())]);
        front.keys.swap(&[(front.key.id(), &record(&front.key, None))]);
        let token = ("status-token", "status-token-of-the-test\n");
        front.session.swap(&[&[token], session].concat());
        front.reloader().reload();
        front
    }

    pub fn reloader(&self) -> Reloader {
        let sources = Sources::Mounted(Mounts {
            config: self.config.path().into(),
            keys: self.keys.path().into(),
            key_secrets: self.secrets.path().into(),
            session: self.session.path().into(),
        });
        let surroundings = Surroundings {
            transport: ServedOver::Http,
            loopback: true,
            older: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            listening: Vec::new(),
        };
        Reloader::new(Arc::clone(&self.door), sources, surroundings, environment)
    }

    /// Runs a task until the front door is dropped.
    pub fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stopped = self.stop.clone().cancelled_owned();
        self.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                () = stopped => {}
            }
        });
    }

    /// Listens on a free port.
    pub async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.run(crate::serve::serve_public(listener, Arc::clone(&self.door), self.tasks.clone()));
        address
    }

    /// Watches the mounts.
    pub fn watch(&self) {
        self.run(self.reloader().watch());
    }

    /// Asks the pipeline directly.
    pub async fn ask(&self, request: Request<Body>) -> Response<Body> {
        self.ask_over(request, false).await
    }

    /// Asks it over a connection that may be one too many.
    pub async fn ask_over(&self, request: Request<Body>, beyond: bool) -> Response<Body> {
        let arrival = Arrival {
            wall: clock::wall(),
            instant: clock::instant(),
            peer: [10, 0, 0, 9].into(),
            fault: None,
            beyond,
            forwarded: false,
        };
        pipeline::answer(Arc::clone(&self.door), arrival, request).await
    }

    /// A POST with key and Host.
    pub fn post(&self, text: &str) -> Request<Body> {
        Request::post("/weather/mcp")
            .header("host", "mcp.example.com")
            .header("authorization", format!("Bearer {}", self.key.expose()))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(full(text.to_owned()))
            .unwrap()
    }

    /// A request without body, with key and Host.
    pub fn bare(&self, method: &str, path: &str) -> Request<Body> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "mcp.example.com")
            .header("x-api-key", self.key.expose())
            .header("accept", "text/event-stream")
            .body(empty())
            .unwrap()
    }

    /// Sends raw bytes and reads until the front door closes the connection.
    pub async fn raw(&self, address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// How many requests were refused for the reason with this label.
    pub fn refused(&self, reason: &str) -> u64 {
        let sample = format!("mooring_server_refusals_total{{reason=\"{reason}\"}} ");
        let (_, text) = self.door.metrics.text(false).unwrap();
        text.lines().find_map(|line| line.strip_prefix(&sample)).map_or(0, |count| count.parse().unwrap())
    }

    /// What the backend failed to do, and how often.
    pub fn backend_errors(&self) -> Vec<String> {
        let (_, text) = self.door.metrics.text(false).unwrap();
        let errors = text.lines().filter_map(|line| line.strip_prefix("mooring_server_backend_errors_total"));
        errors.map(str::to_owned).collect()
    }

    /// Waits until the front door is ready.
    pub async fn ready(&self) {
        eventually("ready", || self.door.is_ready()).await;
    }
}

/// The whole answer.
pub async fn collect(response: Response<Body>) -> (StatusCode, HeaderMap, Bytes) {
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
}

/// The whole answer as text.
pub async fn text(response: Response<Body>) -> (u16, String) {
    let (status, _, bytes) = collect(response).await;
    (status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap())
}

/// The next piece of an answer.
pub async fn next(response: &mut Response<Body>) -> Option<String> {
    let frame = response.body_mut().frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}
