//! MCP clients that nobody here wrote, each driven through one session: connect, list the tools, call one.
//!
//! A session can lead every host name to one address, so that a URL keeps its public host while it meets the ingress controller on a local port,
//! just as a person's DNS would have it. Programs that cannot be told so are driven on loopback only.

mod session;

pub use session::{Call, Cancel, Mode, Session, Transport};

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::parts::{node, python};
use crate::{built, command};

const PYTHON_PACKAGES: [&str; 2] = ["mcp==2.3.0", "fastmcp==4.2.3"];
/// The client that talks to programs which are MCP servers on their standard streams.
const TYPESCRIPT: &str = "@modelcontextprotocol/sdk@1.32.2";

/// How long a session may take, on a machine that is busy with builds.
const PATIENCE: Duration = Duration::from_secs(180);

/// A client that is widely used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// PyPI `mcp`, the official Python SDK.
    Python,
    /// PyPI `fastmcp`.
    FastMcp,
    /// npm `@modelcontextprotocol/sdk`, the official TypeScript SDK.
    TypeScript,
    /// npm `@modelcontextprotocol/client`, its second generation.
    TypeScript2,
    /// npm `@modelcontextprotocol/inspector`, on its command line.
    Inspector,
    /// npm `mcp-remote`, by which clients without HTTP reach a server.
    McpRemote,
    /// npm `supergateway`, used likewise.
    Supergateway,
    /// `rmcp`, the official Rust SDK.
    Rmcp,
}

/// What a client got.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The package.
    pub client: String,
    /// Its version.
    pub client_version: String,
    /// The version of the protocol that both ends agreed on; empty where the client does not tell.
    #[serde(default)]
    pub protocol_version: String,
    /// How the server calls itself; empty where the client does not tell.
    #[serde(default)]
    pub server: String,
    /// The names of the tools, in the server's order.
    pub tools: Vec<String>,
    /// The text parts of the tool's answer.
    #[serde(default)]
    pub text: Vec<String>,
    /// Whether the tool said that it failed.
    #[serde(default)]
    pub is_error: bool,
    /// Whether the call that was to be cancelled ended so.
    #[serde(default)]
    pub cancelled: bool,
    /// Of each call after the interruption, its error.
    #[serde(default)]
    pub after: Vec<Option<String>>,
}

impl Client {
    /// Those that the suites with clusters use.
    pub const IN_CLUSTERS: [Self; 3] = [Self::Python, Self::FastMcp, Self::TypeScript];

    /// Its package and version, as its registry writes them.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Python => PYTHON_PACKAGES[0],
            Self::FastMcp => PYTHON_PACKAGES[1],
            Self::TypeScript => TYPESCRIPT,
            Self::TypeScript2 => "@modelcontextprotocol/client@2.4.0",
            Self::Inspector => "@modelcontextprotocol/inspector@2.12.0",
            Self::McpRemote => "mcp-remote@0.15.1",
            Self::Supergateway => "supergateway@4.0.0",
            Self::Rmcp => "rmcp@3.11.0",
        }
    }

    /// Fetches the client, once. Blocks.
    pub fn install(self) -> Result<PathBuf> {
        match self {
            Self::Python | Self::FastMcp => python_clients(),
            Self::McpRemote | Self::Supergateway => {
                node::package(TYPESCRIPT)?;
                node::package(self.package())
            }
            Self::TypeScript | Self::TypeScript2 | Self::Inspector => node::package(self.package()),
            Self::Rmcp => built::binary("rmcp-client"),
        }
    }

    /// Runs a session to its end. What the client itself reports as an error is the error.
    pub async fn run(self, session: &Session) -> Result<Report> {
        let home = tempfile::tempdir()?;
        let told = session.clone();
        let mut driver = tokio::task::spawn_blocking(move || self.driver(&told)).await??;
        // Some keep files of their own.
        driver.env("HOME", home.path()).current_dir(home.path());
        // A proxy of the machine has no part in a call to this machine.
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            driver.env_remove(name);
        }
        if let Some(authority) = session.trusted() {
            driver.env("SSL_CERT_FILE", authority).env("NODE_EXTRA_CA_CERTS", authority);
        }
        let printed = tokio::time::timeout(PATIENCE, command::run_async(driver)).await;
        let printed = printed.with_context(|| format!("{self:?} did not come to an end"))??;
        let mut report: Value =
            serde_json::from_str(printed.trim()).with_context(|| format!("{self:?} printed {printed}"))?;
        if let Some(error) = report["error"].as_str() {
            bail!("{self:?}: {error}");
        }
        let (package, version) = self.package().rsplit_once(['@', '=']).context("a package has a version")?;
        report["client"] = package.trim_end_matches('=').into();
        report["clientVersion"] = version.into();
        serde_json::from_value(report).with_context(|| format!("{self:?} printed {printed}"))
    }

    /// The command that drives it through the session.
    fn driver(self, session: &Session) -> Result<Command> {
        let installed = self.install()?;
        let script = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name);
        let nodes = |modules: &Path, name, request: &Value| {
            let mut driver = Command::new(node::node()?);
            driver.env("MOORING_NODE_MODULES", modules.join("node_modules"));
            driver.arg(script(name)).arg(request.to_string());
            anyhow::Ok(driver)
        };
        let mut request = serde_json::to_value(session)?;
        match self {
            Self::Python | Self::FastMcp => {
                let name = if self == Self::Python { "mcp_sdk.py" } else { "fastmcp_client.py" };
                let mut driver = Command::new(installed.join("bin/python"));
                driver.arg("-B").arg(script(name)).arg(request.to_string());
                Ok(driver)
            }
            Self::Rmcp => {
                let mut driver = Command::new(installed);
                driver.arg(request.to_string());
                Ok(driver)
            }
            Self::TypeScript => nodes(&installed, "typescript_sdk.mjs", &request),
            Self::TypeScript2 => nodes(&installed, "typescript_sdk_2.mjs", &request),
            Self::Inspector => nodes(&installed, "inspector.mjs", &request),
            Self::McpRemote | Self::Supergateway => {
                let mut program: Vec<String> = vec![node::node()?.display().to_string()];
                let older = session.transport() == Transport::Sse;
                if self == Self::McpRemote {
                    program.push(installed.join("node_modules/mcp-remote/dist/proxy.js").display().to_string());
                    let strategy = if older { "sse-only" } else { "http-first" };
                    program.extend([session.url(), "--allow-http", "--transport", strategy].map(str::to_owned));
                } else {
                    program.push(installed.join("node_modules/supergateway/dist/index.js").display().to_string());
                    let flag = if older { "--sse" } else { "--streamableHttp" };
                    program.extend([flag, session.url()].map(str::to_owned));
                }
                for (name, value) in session.headers() {
                    program.extend(["--header".into(), format!("{name}: {value}")]);
                }
                request["command"] = program.into();
                nodes(&node::package(TYPESCRIPT)?, "typescript_sdk.mjs", &request)
            }
        }
    }
}

/// The environment with the Python clients, and with what a FastMCP server needs.
pub(crate) fn python_clients() -> Result<PathBuf> {
    python::environment("clients/python", &PYTHON_PACKAGES)
}
