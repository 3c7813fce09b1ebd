//! MCP servers that nobody here wrote, as processes on loopback, each with the checks of Host and Origin that it has by
//! itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::built;
use crate::clients::{Client, Transport, python_clients};
use crate::parts::servers::{EVERYTHING_PACKAGE, FASTMCP_PACKAGE};
use crate::parts::{node, python};
use crate::process::{Process, free_port};

const PROMPTISE_PACKAGE: &str = "promptise==1.10.1";
const RMCP: &str = "conformance-server";

/// An MCP server that speaks HTTP at `/mcp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// npm `@modelcontextprotocol/server-everything`, on the official TypeScript SDK.
    Everything,
    /// A small server on PyPI `fastmcp`.
    FastMcp,
    /// A small server on PyPI `promptise`.
    Promptise,
    /// This workspace's server for the conformance suite, on the official Rust SDK.
    Rmcp,
}

/// A running server. It is killed when this handle is dropped.
pub struct ServerProcess {
    process: Process,
    port: u16,
}

impl Server {
    /// Its package and version, as its registry writes them.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Everything => EVERYTHING_PACKAGE,
            Self::FastMcp => FASTMCP_PACKAGE,
            Self::Promptise => PROMPTISE_PACKAGE,
            Self::Rmcp => Client::Rmcp.package(),
        }
    }

    /// Starts it. It listens a moment later.
    pub async fn start(self) -> Result<ServerProcess> {
        self.start_over(Transport::StreamableHttp).await
    }

    /// Starts it with one transport alone: HTTP+SSE is at `/sse`, and only the first two have it.
    pub async fn start_over(self, transport: Transport) -> Result<ServerProcess> {
        let installed = tokio::task::spawn_blocking(move || self.install(transport)).await??;
        let port = free_port()?;
        let mut start = Command::new(&installed.program);
        start.args(&installed.arguments);
        start.env("PORT", port.to_string()).env("CONFORMANCE_LISTEN", format!("127.0.0.1:{port}"));
        Ok(ServerProcess { process: Process::start(self.package(), &start)?, port })
    }

    fn install(self, transport: Transport) -> Result<Installed> {
        let older = transport == Transport::Sse;
        ensure!(!older || matches!(self, Self::Everything | Self::FastMcp), "{self:?} has Streamable HTTP alone");
        let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("servers").join(name);
        let python = |home: PathBuf, name: &str| Installed {
            program: home.join("bin/python"),
            arguments: vec!["-B".into(), script(name), if older { "sse" } else { "http" }.into()],
        };
        Ok(match self {
            Self::Everything => {
                let modules = node::package(EVERYTHING_PACKAGE)?.join("node_modules");
                let start = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
                let mode = if older { "sse" } else { "streamableHttp" };
                let arguments = vec!["--import".into(), script("on_loopback.mjs"), start, mode.into()];
                Installed { program: node::node()?, arguments }
            }
            Self::FastMcp => python(python_clients()?, "fastmcp_on_loopback.py"),
            Self::Promptise => {
                python(python::environment("servers/promptise", &[PROMPTISE_PACKAGE])?, "promptise_server.py")
            }
            Self::Rmcp => Installed { program: built::binary(RMCP)?, arguments: Vec::new() },
        })
    }
}

struct Installed {
    program: PathBuf,
    arguments: Vec<PathBuf>,
}

impl ServerProcess {
    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Everything that it said so far.
    pub fn log_text(&self) -> String {
        self.process.log_text()
    }
}
