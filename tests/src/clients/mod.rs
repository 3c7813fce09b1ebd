//! MCP clients that nobody here wrote, each driven through one session: connect, list the tools, call one.
//!
//! A session can lead every host name to one address, so that a URL keeps its public host while it meets the ingress controller on a local port,
//! just as a person's DNS would have it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::parts::servers::npm_install;
use crate::{cache, command};

const PYTHON_PACKAGES: [&str; 2] = ["mcp==2.3.0", "fastmcp==4.2.3"];
const TYPESCRIPT: (&str, &str) = ("@modelcontextprotocol/sdk", "1.32.2");

/// A client that is widely used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// PyPI `mcp`, the official Python SDK.
    Python,
    /// PyPI `fastmcp`.
    FastMcp,
    /// npm `@modelcontextprotocol/sdk`, the official TypeScript SDK.
    TypeScript,
}

/// One session of a client.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    headers: BTreeMap<String, String>,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<Value>,
}

/// What a client got.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The package.
    pub client: String,
    /// Its version.
    pub client_version: String,
    /// The version of the protocol that both ends agreed on.
    pub protocol_version: String,
    /// How the server calls itself.
    pub server: String,
    /// The names of the tools, in the server's order.
    pub tools: Vec<String>,
    /// The text parts of the tool's answer.
    #[serde(default)]
    pub text: Vec<String>,
    /// Whether the tool said that it failed.
    #[serde(default)]
    pub is_error: bool,
}

impl Client {
    /// Every client.
    pub const ALL: [Self; 3] = [Self::Python, Self::FastMcp, Self::TypeScript];

    /// Fetches the client, once. Blocks.
    pub fn install(self) -> Result<PathBuf> {
        match self {
            Self::Python | Self::FastMcp => python(),
            Self::TypeScript => typescript(),
        }
    }

    /// Runs a session to its end. What the client itself reports as an error is the error.
    pub async fn run(self, session: &Session) -> Result<Report> {
        let installed = tokio::task::spawn_blocking(move || self.install()).await??;
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let mut driver = match self {
            Self::Python | Self::FastMcp => {
                let script = if self == Self::Python { "mcp_sdk.py" } else { "fastmcp_client.py" };
                let mut python = tokio::process::Command::new(installed.join("bin/python"));
                python.arg("-B").arg(scripts.join(script));
                python
            }
            Self::TypeScript => {
                let mut node = tokio::process::Command::new("node");
                node.env("MOORING_NODE_MODULES", installed.join("node_modules"));
                node.env("MOORING_SDK_VERSION", TYPESCRIPT.1);
                node.arg(scripts.join("typescript_sdk.mjs"));
                node
            }
        };
        driver.arg(serde_json::to_string(session)?);
        // A proxy of the machine has no part in a call to this machine.
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            driver.env_remove(name);
        }
        let printed = command::run_async(driver).await?;
        let report: Value =
            serde_json::from_str(printed.trim()).with_context(|| format!("{self:?} printed {printed}"))?;
        if let Some(error) = report["error"].as_str() {
            bail!("{self:?}: {error}");
        }
        serde_json::from_value(report).with_context(|| format!("{self:?} printed {printed}"))
    }
}

impl Session {
    /// A session with the server at this URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), address: None, headers: BTreeMap::new(), mode: "auto", call: None }
    }

    /// Leads every host name to this address; the port stays that of the URL.
    #[must_use]
    pub fn resolve_to(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Presents a key as `Authorization: Bearer`.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    /// Sends a header with each request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Speaks only the versions up to 2025-11-25, where the client could speak newer ones.
    #[must_use]
    pub fn legacy(mut self) -> Self {
        self.mode = "legacy";
        self
    }

    /// Calls a tool after the list.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a call is written with json!() in place")]
    pub fn call(mut self, tool: &str, arguments: Value) -> Self {
        self.call = Some(json!({"name": tool, "arguments": arguments}));
        self
    }
}

fn python() -> Result<PathBuf> {
    // A virtual environment knows its own path, so it is made in its final place, and is whole once the marker stands.
    let key = cache::key(PYTHON_PACKAGES);
    let home = cache::root().join(format!("clients/python-home-{key}"));
    cache::made("clients/python", &key, "Fetching the Python MCP clients", |marker| {
        cache::remove(&home)?;
        command::run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        let mut install = Command::new(home.join("bin/python"));
        command::run(install.args(["-m", "pip", "install", "--quiet"]).args(PYTHON_PACKAGES))?;
        Ok(std::fs::write(marker, "")?)
    })?;
    Ok(home)
}

fn typescript() -> Result<PathBuf> {
    let package = format!("{}@{}", TYPESCRIPT.0, TYPESCRIPT.1);
    cache::made("clients/typescript", &cache::key([&package]), "Fetching the TypeScript MCP client", |out| {
        npm_install(out, &[&package])
    })
}
