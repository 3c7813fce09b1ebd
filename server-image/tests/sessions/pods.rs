//! The pods of a server, and what a client asks them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use mooring_contract::SessionKey;
use mooring_contract::session_key::ENTROPY;

use super::backend::Backend;
use super::common::{Running, now, program};
use super::http::send;
use super::link::Link;

/// With so many bytes a front door proves itself to another, which say nothing to whoever has no key.
pub const PROOF: usize = 68;
/// Longest wait for an answer where a pod cannot be reached: 5 s, and what a busy machine adds.
pub const BOUNDED: Duration = Duration::from_secs(15);

const STATUS_TOKEN: &str = "status-token-of-the-test";
const QUIET: &str = "info,mooring_server::log=error";

/// The mounts of a server's pods, and the MCP server beside them.
pub struct Server {
    mounts: tempfile::TempDir,
    pub backend: Backend,
    /// Where its pods listen to each other.
    pub port: u16,
}

pub struct Pod {
    pub running: Running,
    pub public: String,
    pub management: String,
}

impl Server {
    pub fn new(drain_ms: u64) -> Self {
        let port = TcpListener::bind("127.1.0.1:0").unwrap().local_addr().unwrap().port();
        Self::with(1, drain_ms, port)
    }

    /// A server with this session key.
    pub fn with(key: u8, drain_ms: u64, port: u16) -> Self {
        let backend = Backend::start();
        let mounts = tempfile::tempdir().unwrap();
        for directory in ["config", "session"] {
            std::fs::create_dir(mounts.path().join(directory)).unwrap();
        }
        let config = serde_json::json!({
            "server": {"name": "weather", "uid": format!("u-{key}")},
            "security": {"anonymous": true},
            "source": {"http": {"port": backend.port, "path": "/mcp"}},
            "sessions": {"drainMs": drain_ms},
        });
        let key = SessionKey::from_entropy(&[key; ENTROPY], "2026-11-30T00:00:00Z".parse().unwrap());
        std::fs::write(mounts.path().join("config/config.json"), config.to_string()).unwrap();
        std::fs::write(mounts.path().join("session/current"), key.to_json().unwrap()).unwrap();
        std::fs::write(mounts.path().join("session/status-token"), STATUS_TOKEN).unwrap();
        Self { mounts, backend, port }
    }

    /// Where a pod is reached by the others.
    pub fn address(&self, number: u8) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(127, 1, 0, number), self.port))
    }

    /// A pod of which nobody reads the log behind the lines that are waited for, so that it has none for each request.
    pub fn pod(&self, number: u8) -> Pod {
        self.start(number, self.address(number), QUIET)
    }

    pub fn logging(&self, number: u8, level: &str) -> Pod {
        self.start(number, self.address(number), level)
    }

    /// The same, reached by the others over a link.
    pub fn behind_a_link(&self, number: u8) -> (Pod, Link) {
        let there = SocketAddr::from((Ipv4Addr::new(127, 1, 1, number), self.port));
        let pod = self.start(number, there, QUIET);
        (pod, Link::between(self.address(number), there))
    }

    fn start(&self, number: u8, peers: SocketAddr, level: &str) -> Pod {
        let mut command = program();
        command.args(["serve", "--log-format", "json", "--linger-seconds", "0.2", "--shutdown-timeout", "5"]);
        command.args(["--log-level", level, "--listen", "127.0.0.1:0", "--management-listen", "127.0.0.1:0"]);
        command.arg("--pod-ip").arg(self.address(number).ip().to_string());
        command.arg("--pod-uid").arg(format!("00000000-0000-0000-0000-00000000000{number}"));
        command.arg("--peer-listen").arg(peers.to_string());
        for name in ["config", "session"] {
            command.arg(format!("--{name}-dir")).arg(self.mounts.path().join(name));
        }
        for name in ["keys", "key-secrets"] {
            command.arg(format!("--{name}-dir")).arg(self.mounts.path().join("none"));
        }
        let mut running = Running::start(command);
        let line = running.line("listening");
        let address = |name: &str| line[name].as_str().unwrap().to_owned();
        running.line("enforcing");
        Pod { running, public: address("public"), management: address("management") }
    }
}

/// The answer to a POST.
pub fn post(public: &str, method: &str, token: &str) -> String {
    send(public, &message(method, token, ""))
}

/// A POST with a message that carries some more.
pub fn message(method: &str, token: &str, pad: &str) -> String {
    let params = if pad.is_empty() { String::new() } else { format!(r#","params":{{"pad":"{pad}"}}"#) };
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#);
    let session = if token.is_empty() { String::new() } else { format!("Mcp-Session-Id: {token}\r\n") };
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{session}\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A GET or DELETE.
pub fn bare(method: &str, token: &str) -> String {
    format!(
        "{method} /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nMcp-Session-Id: {token}\r\n\
         Accept: text/event-stream\r\n\r\n"
    )
}

/// The token in an answer to `initialize`.
pub fn token(answer: &str) -> String {
    let token = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    let token = token.unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(token.len(), 115);
    token.to_owned()
}

impl Pod {
    pub fn post(&self, method: &str, token: &str) -> String {
        post(&self.public, method, token)
    }

    pub fn initialize(&self) -> String {
        token(&self.post("initialize", ""))
    }

    pub fn call(&self, token: &str) -> u16 {
        status(&self.post("tools/list", token))
    }

    /// Why it did not reach other pods of late.
    pub fn tells(&self) -> Vec<String> {
        let request = format!(
            "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {STATUS_TOKEN}\r\n\r\n"
        );
        let answer = send(&self.management, &request);
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        let told = status["unreachablePeers"].as_array().map(Vec::as_slice).unwrap_or_default();
        told.iter().map(|peer| peer["reason"].as_str().unwrap().to_owned()).collect()
    }
}

pub fn status(answer: &str) -> u16 {
    answer["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

/// Whether an answer says that there is no such session.
pub fn is_unknown(answer: &str) -> bool {
    status(answer) == 404 && answer.contains("-32001")
}

/// The body of an answer that has a length.
pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

/// Whether each kind of request is answered in time that there is no such session.
pub fn is_out_of_reach(through: &Pod, token: &str) {
    let begun = now();
    for request in [message("tools/list", token, "a secret"), bare("GET", token), bare("DELETE", token)] {
        let answer = send(&through.public, &request);
        assert!(is_unknown(&answer), "{answer}");
    }
    assert!(begun.elapsed() < BOUNDED, "{:?}", begun.elapsed());
}
