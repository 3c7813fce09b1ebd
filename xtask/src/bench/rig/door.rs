//! The front door as a process under measurement: with everything on, by itself or as one of the pods of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use mooring_contract::{Key, KeyMetadata, KeyRecord, SessionKey, Slot, session_key};
use mooring_tests::metrics;
use mooring_tests::product::Product;
use serde_json::{Value, json};

use super::load::Target;
use super::running::{Running, Start};
use super::{free, words, write};

/// Most sessions of one front door: more than any bench opens.
const SESSIONS: u64 = 10_000_000;

/// The key that every front door of the benches accepts.
pub fn key() -> Key {
    Key::from_entropy(&[7; mooring_contract::key::ENTROPY])
}

/// A front door that runs.
pub struct Door {
    /// Its process.
    pub running: Running,
    management: SocketAddr,
}

impl Door {
    /// Starts one by itself: ids of sessions pass through it as they are.
    pub async fn alone(door: &Product, folder: &Path, backend: u16) -> Result<Self> {
        Self::start(door, folder, backend, Vec::new()).await
    }

    /// Starts one as the pod of this number: the ids are sealed. Pods that have one `peer_port` reach each other.
    pub async fn in_pod(door: &Product, folder: &Path, backend: u16, number: u8, peer_port: u16) -> Result<Self> {
        let address = Ipv4Addr::new(127, 4, 0, number);
        let uid = format!("00000000-0000-0000-0000-{number:012}");
        let peers = SocketAddr::from((address, peer_port)).to_string();
        let pod = ["--pod-uid", &uid, "--pod-ip", &address.to_string(), "--peer-listen", &peers];
        Self::start(door, folder, backend, words(&pod)).await
    }

    async fn start(door: &Product, folder: &Path, backend: u16, pod: Vec<String>) -> Result<Self> {
        let (target, management) = (Target::at(free()?), free()?);
        let at = ["--listen", &target.address.to_string(), "--management-listen", &management.to_string()];
        let mut arguments = [words(&["serve", "--linger-seconds", "0"]), words(&at), pod].concat();
        arguments.extend(files(folder, backend)?);
        let start = Start { program: door.binary.clone(), arguments, target };
        Ok(Self { running: Running::start(start, folder).await?, management })
    }

    /// The sum of a metric over all its labels; an error where there is no such metric.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let target = Target { address: self.management, path: "/metrics", ..self.running.target.clone() };
        metrics::sum(&target.once("GET", None, "").await?.body, name, "")
    }
}

/// Writes what a pod mounts, and returns the flags that lead there.
fn files(folder: &Path, backend: u16) -> Result<Vec<String>> {
    let config = json!({
        "version": 1,
        "server": {"name": "bench"},
        "path": "/",
        "security": {"hosts": ["mcp.example.com"], "origins": ["https://app.example.com"]},
        "source": {"http": {"port": backend, "path": "/mcp"}},
        "limits": {"bodyBytes": 4_194_304, "callTimeoutMs": 600_000},
        "sessions": {"maxPerPod": SESSIONS},
    });
    let flags = mounted(folder, &config)?;
    let (key, created) = (key(), jiff::Timestamp::UNIX_EPOCH);
    let metadata = KeyMetadata { name: "bench".into(), subject: "bench".into(), created, expires: None };
    let record = KeyRecord { key_hash: key.hash(), metadata };
    write(&folder.join("keys"), key.id(), &serde_json::to_string(&record)?)?;
    let session_key = SessionKey::from_entropy(&[7; session_key::ENTROPY], created).to_json()?;
    write(&folder.join("session"), Slot::Current.entry(), &session_key)?;
    Ok(flags)
}

/// Makes the directories that a pod mounts, with this configuration, and returns the flags that lead to them.
pub fn mounted(folder: &Path, config: &Value) -> Result<Vec<String>> {
    let mut flags = Vec::new();
    for name in ["config", "keys", "key-secrets", "session"] {
        let directory = folder.join(name);
        std::fs::create_dir_all(&directory)?;
        flags.extend([format!("--{name}-dir"), directory.display().to_string()]);
    }
    write(&folder.join("config"), "config.json", &config.to_string())?;
    Ok(flags)
}
