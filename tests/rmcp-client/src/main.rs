//! Drives the client of the official Rust SDK. The request, which is the argument, and the report on standard output are
//! those of `tests/clients/driver.py`.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, JsonObject, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;

#[derive(Deserialize)]
struct Request {
    url: String,
    headers: BTreeMap<String, String>,
    mode: Mode,
    command: Option<Vec<String>>,
    cancel: Option<Cancel>,
    call: Option<Call>,
    interrupted: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Legacy,
    Auto,
    Modern,
}

#[derive(Deserialize)]
struct Cancel {
    call: Call,
    after: Call,
}

#[derive(Clone, Deserialize)]
struct Call {
    name: String,
    arguments: JsonObject,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let report = session().await.unwrap_or_else(|error| json!({"error": error.to_string()}));
    writeln!(std::io::stdout(), "{report}")
}

async fn session() -> Result<Value, Box<dyn Error>> {
    let request: Request = serde_json::from_str(&std::env::args().nth(1).unwrap_or_default())?;
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match request.mode {
        Mode::Legacy => ClientLifecycleMode::Initialize,
        Mode::Auto => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
        Mode::Modern => ClientLifecycleMode::Discover { preferred_versions },
    };
    let client = if let Some(command) = request.command {
        let (program, arguments) = command.split_first().ok_or("an empty command")?;
        let mut command = Command::new(program);
        command.args(arguments);
        ().serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?
    } else {
        let mut headers = HashMap::<http::HeaderName, http::HeaderValue>::new();
        for (name, value) in request.headers {
            headers.insert(name.parse()?, value.parse()?);
        }
        let config = StreamableHttpClientTransportConfig::with_uri(request.url).custom_headers(headers);
        ().serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), lifecycle).await?
    };
    let begin = |Call { name, arguments }| client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments));
    let tools = client.list_all_tools().await?;
    let mut report = Map::new();
    report.insert("tools".into(), tools.iter().map(|tool| tool.name.as_ref()).collect());
    if let Some(Cancel { call, after }) = request.cancel {
        // A call that is dropped is cancelled.
        let cancelled = tokio::select! {
            _ = begin(call) => false,
            answer = begin(after) => answer.is_ok(),
        };
        report.insert("cancelled".into(), cancelled.into());
    }
    if let Some(call) = request.call {
        let result = begin(call.clone()).await?;
        let texts = result.content.iter().filter_map(|part| part.as_text().map(|text| text.text.as_str()));
        report.insert("text".into(), texts.collect());
        report.insert("isError".into(), (result.is_error == Some(true)).into());
        if let Some(port) = request.interrupted {
            // Whoever listens there hangs up when it is time.
            TcpStream::connect(("127.0.0.1", port)).await?.read_to_end(&mut Vec::new()).await?;
            let mut after = Vec::new();
            for _ in 0..2 {
                let answer = tokio::time::timeout(Duration::from_secs(30), begin(call.clone())).await;
                after.push(match answer {
                    Ok(Ok(_)) => Value::Null,
                    Ok(Err(error)) => error.to_string().into(),
                    Err(error) => error.to_string().into(),
                });
            }
            report.insert("after".into(), after.into());
        }
    }
    client.cancel().await?;
    Ok(report.into())
}
