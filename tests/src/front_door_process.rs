//! The real front door as a process of its own on loopback: a config folder written for it, one key, its log and its
//! figures, all asked from outside.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mcp::Target;
use crate::process::{PATIENCE, Process, Usage};
use crate::{built, metrics, wait};

/// The key that every front door of the harness accepts, unless its config says otherwise.
pub const KEY: &str = "5f0c1d8e-2f7b-4c3f-9a44-7d1e6b0f9c21";
/// The Secret of `auth.keySecrets` that holds it.
const SECRET: &str = "harness";

/// A config file with this `source` and defaults for the rest.
pub fn config(source: &Value) -> Value {
    json!({
        "version": 1,
        "server": {"name": "harness"},
        "path": "/",
        "security": {"keySecrets": [SECRET]},
        "source": source,
        "limits": {"bodyBytes": 4_194_304, "callTimeoutMs": 600_000},
    })
}

/// The `source` that leads to an HTTP server on loopback, with the path `/mcp`.
pub fn http(port: u16) -> Value {
    json!({"http": {"port": port, "path": "/mcp"}})
}

/// The `source` that leads to a server on loopback which speaks only HTTP+SSE.
pub fn http_sse(port: u16) -> Value {
    json!({"http": {"port": port, "path": "/sse", "transport": "sse"}})
}

/// A running front door. It is killed when this handle is dropped.
pub struct FrontDoorProcess {
    process: Process,
    public: SocketAddr,
    management: SocketAddr,
    folder: TempDir,
}

impl FrontDoorProcess {
    /// Starts `mooring-server` with this config and waits until it listens.
    pub async fn start(config: &Value) -> Result<Self> {
        Self::start_with(config, &[]).await
    }

    /// Starts it as one of several pods of a server, which have one session key and reach each other at `peer_port` of
    /// addresses of their own.
    pub async fn start_in_pod(config: &Value, number: u8, peer_port: u16) -> Result<Self> {
        let address = Ipv4Addr::new(127, 3, 0, number);
        let uid = format!("00000000-0000-0000-0000-{number:012}");
        let peers = SocketAddr::from((address, peer_port)).to_string();
        let address = address.to_string();
        Self::start_with(config, &["--pod-uid", &uid, "--pod-ip", &address, "--peer-listen", &peers]).await
    }

    async fn start_with(config: &Value, flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let directory = |name: &str| folder.path().join(name);
        for name in ["config", "keys", "key-secrets", "session"] {
            std::fs::create_dir(directory(name))?;
        }
        let secret = directory("key-secrets").join(SECRET);
        std::fs::create_dir(&secret)?;
        std::fs::write(secret.join("key"), KEY)?;
        write_config(folder.path(), config)?;
        let session_key = json!({"id": "01010101", "key": STANDARD.encode([1; 32]), "created": "2026-01-01T00:00:00Z"});
        std::fs::write(directory("session").join("current"), session_key.to_string())?;
        let mut serve = Command::new(built::binary("mooring-server")?);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--management-listen", "127.0.0.1:0", "--log-format", "json"]);
        serve.args(flags);
        for name in ["config", "keys", "key-secrets", "session"] {
            serve.arg(format!("--{name}-dir")).arg(directory(name));
        }
        let mut process = Process::start("mooring-server", &serve)?;
        let (public, management) = process.says("where it listens", listening).await?;
        Ok(Self { process, public, management, folder })
    }

    /// Waits until it is ready: the server behind it has answered.
    pub async fn ready(&self) -> Result<()> {
        let path = "/health/ready".to_owned();
        let ready = Target { address: self.management, path, ..self.target() };
        wait::until("the front door to be ready", PATIENCE, || async {
            let answer = ready.send("GET", "").await?;
            ensure!(answer.status == 200, "{}: {}", answer.text(), self.process.log_text());
            Ok(())
        })
        .await
    }

    /// Replaces the config; it is in force a moment later.
    pub fn configure(&self, config: &Value) -> Result<()> {
        write_config(self.folder.path(), config)
    }

    /// Its public address.
    pub fn address(&self) -> SocketAddr {
        self.public
    }

    /// The URL of the endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.public)
    }

    /// The endpoint, with the key.
    pub fn target(&self) -> Target {
        let host = self.public.to_string();
        Target { address: self.public, host, path: "/mcp".into(), key: Some(KEY.into()), headers: Vec::new() }
    }

    /// The sum of a metric over all its labels that contain this text; an error where there is no such metric.
    pub async fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        let said = Target { address: self.management, path: "/metrics".into(), ..self.target() };
        metrics::sum(&said.send("GET", "").await?.text(), name, labels)
    }

    /// What it uses now.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.pid())
    }

    /// Waits until it answers no request and holds no event stream.
    pub async fn idle(&self) -> Result<()> {
        wait::until("the front door to be idle", PATIENCE, || async {
            for name in ["mooring_server_in_flight", "mooring_server_event_streams"] {
                let value = self.metric(name, "").await?;
                ensure!(value < 0.5, "{name} is {value}");
            }
            Ok(())
        })
        .await
    }

    /// Everything that it said so far.
    pub fn log_text(&self) -> String {
        self.process.log_text()
    }
}

fn write_config(folder: &Path, config: &Value) -> Result<()> {
    let path = folder.join("config/config.json");
    std::fs::write(&path, config.to_string()).with_context(|| format!("cannot write {}", path.display()))
}

fn listening(log: &str) -> Option<(SocketAddr, SocketAddr)> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.into_iter().find(|line| line["message"] == "listening")?;
    let address = |name: &str| line[name].as_str()?.parse().ok();
    Some((address("public")?, address("management")?))
}
