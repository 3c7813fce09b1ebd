//! Drives the client of the official Rust SDK. The request, which is the argument, and the report on standard output are
//! those of `tests/clients/driver.py`.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::Write as _;

use rmcp::model::{CallToolRequestParams, JsonObject, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Request {
    url: String,
    headers: BTreeMap<String, String>,
    mode: Mode,
    call: Option<Call>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Legacy,
    Auto,
    Modern,
}

#[derive(Deserialize)]
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
    let mut headers = HashMap::<http::HeaderName, http::HeaderValue>::new();
    for (name, value) in request.headers {
        headers.insert(name.parse()?, value.parse()?);
    }
    let config = StreamableHttpClientTransportConfig::with_uri(request.url).custom_headers(headers);
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match request.mode {
        Mode::Legacy => ClientLifecycleMode::Initialize,
        Mode::Auto => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
        Mode::Modern => ClientLifecycleMode::Discover { preferred_versions },
    };
    let client = ().serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), lifecycle).await?;
    let tools = client.list_all_tools().await?;
    let tools: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    let report = match request.call {
        None => json!({"tools": tools}),
        Some(Call { name, arguments }) => {
            let result = client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await?;
            let texts = result.content.iter().filter_map(|part| part.as_text().map(|text| text.text.as_str()));
            json!({"tools": tools, "text": texts.collect::<Vec<_>>(), "isError": result.is_error == Some(true)})
        }
    };
    client.cancel().await?;
    Ok(report)
}
