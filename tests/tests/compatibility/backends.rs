//! The columns of the matrix: a front door in front of each server, and the tool that is called there.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::{Result, ensure};
use http::StatusCode;
use mooring_tests::built;
use mooring_tests::clients::{Session, Transport};
use mooring_tests::front_door_process::{FrontDoorProcess, config, http, http_sse};
use mooring_tests::mcp::Target;
use mooring_tests::process::{Process, free_port};
use mooring_tests::server_process::{Server, ServerProcess};
use serde_json::{Value, json};

use crate::matrix::LEGACY;

/// One column.
pub(crate) struct Backend {
    /// Package and version, or what else it is.
    pub(crate) name: &'static str,
    /// What it speaks to the front door.
    pub(crate) transport: Transport,
    /// Whether it speaks 2026-07-28. All speak 2025-11-25.
    pub(crate) modern: bool,
    /// What it answers where no front door is before it; none of the front door's own tools.
    pub(crate) alone: Option<Alone>,
    pub(crate) tool: Tool,
    pub(crate) door: FrontDoorProcess,
    behind: Behind,
}

/// The status of what a server answers to whoever asks it under a name that is not its own, or from a page of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    pub(crate) foreign_host: StatusCode,
    pub(crate) foreign_origin: StatusCode,
}

/// A tool, and what it must answer.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    arguments: Value,
    pub(crate) text: &'static str,
}

/// What the front door leads to; ended with it.
enum Behind {
    Server(ServerProcess),
    Api(#[expect(dead_code, reason = "held until it is dropped")] Process),
}

impl Tool {
    /// The session with a call of this tool at its end.
    pub(crate) fn called(&self, session: Session) -> Session {
        session.call(self.name, self.arguments.clone())
    }
}

/// The tool of server-everything.
pub(crate) fn echo() -> Tool {
    Tool { name: "echo", arguments: json!({"message": "ahoy"}), text: "Echo: ahoy" }
}

/// The tool of the Python servers.
pub(crate) fn add() -> Tool {
    Tool { name: "add", arguments: json!({"a": 2, "b": 3}), text: "5" }
}

/// A server, what it speaks, whether it is modern, and its tool. A new server is one line.
fn servers() -> Vec<(Server, Transport, bool, Tool)> {
    use Transport::{Sse, StreamableHttp};
    let simple =
        Tool { name: "test_simple_text", arguments: json!({}), text: "This is a simple text response for testing." };
    vec![
        (Server::Everything, StreamableHttp, false, echo()),
        (Server::Everything, Sse, false, echo()),
        (Server::FastMcp, StreamableHttp, true, add()),
        (Server::FastMcp, Sse, true, add()),
        (Server::Promptise, StreamableHttp, true, add()),
        (Server::Rmcp, StreamableHttp, true, simple),
    ]
}

/// Starts every column, ready for clients.
pub(crate) async fn start() -> Result<Vec<Backend>> {
    let mut columns = vec![declared_tools().await?];
    for (server, transport, modern, tool) in servers() {
        let behind = server.start_over(transport).await?;
        let source = match transport {
            Transport::StreamableHttp => http(behind.port()),
            Transport::Sse => http_sse(behind.port()),
        };
        let door = FrontDoorProcess::start(&config(&source)).await?;
        columns.push(Backend {
            name: server.package(),
            transport,
            modern,
            tool,
            alone: None,
            door,
            behind: Behind::Server(behind),
        });
    }
    for column in &mut columns {
        column.door.ready().await?;
        if let Behind::Server(server) = &column.behind {
            column.alone = Some(asked_alone(column.transport, server.port()).await?);
        }
    }
    Ok(columns)
}

/// Asks a server as it is.
async fn asked_alone(transport: Transport, port: u16) -> Result<Alone> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (method, path) = match transport {
        Transport::StreamableHttp => ("POST", "/mcp"),
        Transport::Sse => ("GET", "/sse"),
    };
    let known = Target { address, host: address.to_string(), path: path.into(), key: None, headers: Vec::new() };
    let client =
        json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "stranger", "version": "1"}});
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}).to_string();
    let status = async |target: Target| anyhow::Ok(target.open(method, initialize.clone()).await?.status);
    ensure!(status(known.clone()).await?.is_success(), "it does not serve its own name");
    Ok(Alone {
        foreign_host: status(known.with_host("mcp.example.org")).await?,
        foreign_origin: status(known.with_header("origin", "https://example.org")).await?,
    })
}

/// Tools that the front door serves itself, over an HTTP API.
async fn declared_tools() -> Result<Backend> {
    let port = free_port()?;
    let mut api = Command::new(built::binary("weather-api")?);
    api.env("WEATHER_API_LISTEN", format!("127.0.0.1:{port}"));
    let api = Process::start("weather-api", &api)?;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let request = json!({
        "method": "GET", "url": format!("http://127.0.0.1:{port}/v1/forecast?city={{city}}"), "timeoutMs": 10_000,
    });
    let forecast = json!({"name": "forecast", "inputSchema": schema, "http": request});
    let door = FrontDoorProcess::start(&config(&json!({"tools": [forecast]}))).await?;
    let tool = Tool { name: "forecast", arguments: json!({"city": "Oslo"}), text: "\"city\":\"Oslo\"" };
    Ok(Backend {
        name: "declared tools",
        transport: Transport::StreamableHttp,
        modern: true,
        tool,
        alone: None,
        door,
        behind: Behind::Api(api),
    })
}
