//! Tools that the front door serves itself. It has no prompts, resources, tasks, logs or questions, so it is judged by
//! the scenarios that are about tools and the transport.

use anyhow::Result;
use mooring_tests::conformance::{self, Requirements};
use mooring_tests::front_door_process::{self, FrontDoorProcess};
use mooring_tests::progress;
use serde_json::{Value, json};

use crate::relayed::Fixture;

/// A schema with everything that JSON Schema has, as the fixture lists it, too.
const VOCABULARY: &str = include_str!("../../conformance-server/src/tools/vocabulary.json");

/// Scenarios of each revision, and how many checks they have.
const SCENARIOS: [(Requirements, &[&str], usize); 2] = [
    (
        Requirements::V2025_11_25,
        &[
            "server-initialize",
            "ping",
            "tools-list",
            "tools-call-simple-text",
            "tools-call-error",
            "json-schema-2020-12",
            "dns-rebinding-protection",
        ],
        21,
    ),
    (
        Requirements::V2026_07_28,
        &[
            "server-stateless",
            "tools-list",
            "tools-call-simple-text",
            "tools-call-error",
            "server-sse-multiple-streams",
            "json-schema-2020-12",
            "dns-rebinding-protection",
            "caching",
            "http-header-validation",
            "http-custom-header-server-validation",
        ],
        68,
    ),
];

/// Checks of these scenarios that ask for what declared tools do not have. One that passes is a fault of this list.
const NOT_OURS: [(&str, &str); 7] = [
    ("caching", "sep-2549-prompts-list-caching-hints"),
    ("caching", "sep-2549-resources-list-caching-hints"),
    ("caching", "sep-2549-resources-templates-list-caching-hints"),
    // Tools that ask the client or log.
    ("server-stateless", "sep-2575-http-server-no-independent-requests-on-stream"),
    ("server-stateless", "sep-2575-missing-capability-http-400"),
    ("server-stateless", "sep-2575-server-no-log-without-loglevel"),
    ("server-stateless", "sep-2575-server-rejects-undeclared-capability"),
];

fn tool(name: &str, schema: &Value, url: &str) -> Value {
    let request = json!({"method": "GET", "url": url, "timeoutMs": 10_000});
    json!({"name": name, "description": name, "inputSchema": schema, "http": request})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declared_tools_pass_what_is_about_tools() -> Result<()> {
    // An API that answers with a text, and with 404 elsewhere.
    let api = Fixture::start().await?;
    let url = |path: &str| format!("http://127.0.0.1:{}/{path}", api.port());
    let nothing = json!({"type": "object", "properties": {}});
    let region = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let vocabulary: Value = serde_json::from_str(VOCABULARY)?;
    let tools = json!([
        tool("test_simple_text", &nothing, &url("calls")),
        tool("test_error_handling", &nothing, &url("none")),
        tool("json_schema_2020_12_tool", &vocabulary, &url("calls")),
        tool("test_header_argument", &region, &url("calls")),
    ]);
    let mut config = front_door_process::config(&json!({"tools": tools}));
    config["security"] = json!({"anonymous": true});
    let door = FrontDoorProcess::start(&config).await?;
    door.ready().await?;
    let url = format!("http://localhost:{}/mcp", door.address().port());
    for (requirements, scenarios, checks) in SCENARIOS {
        let report = conformance::run_scenarios(&url, requirements, scenarios).await?;
        progress::say(format!("declared tools, {}:\n{report}", requirements.revision()));
        let not_ours = if requirements == Requirements::V2026_07_28 { &NOT_OURS[..] } else { &[] };
        report.spotless_except(checks, not_ours)?;
    }
    conformance::refuses_foreign_names(&door.target().with_key(None)).await
}
