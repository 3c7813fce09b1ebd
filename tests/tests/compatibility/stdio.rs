//! Declared tools on the standard streams: each client starts the program itself, lists the tools, calls one, and cancels another where it has a
//! way to; what was said is read off the pipes.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use mooring_tests::built;
use mooring_tests::clients::{Client, Mode, Session};
use mooring_tests::stdio_tap::{Run, StdioTap};
use serde_json::{Value, json};

use crate::api::Api;
use crate::matrix::{LEGACY, MODERN};

/// One row.
pub(crate) struct Row {
    pub(crate) client: Client,
    /// Absent where the client knows legacy versions only.
    pub(crate) mode: Option<Mode>,
    /// Whether it has a way to cancel a call.
    pub(crate) cancels: bool,
}

const fn row(client: Client, mode: Option<Mode>) -> Row {
    Row { client, mode, cancels: true }
}

/// Its command line does one thing in each run.
const fn inspector(mode: Mode) -> Row {
    Row { client: Client::Inspector, mode: Some(mode), cancels: false }
}

/// Every row. A new client is one line.
pub(crate) const ROWS: &[Row] = &[
    row(Client::Python, Some(Mode::Legacy)),
    row(Client::Python, Some(Mode::Auto)),
    row(Client::Python, Some(Mode::Modern)),
    row(Client::FastMcp, Some(Mode::Legacy)),
    row(Client::FastMcp, Some(Mode::Auto)),
    row(Client::FastMcp, Some(Mode::Modern)),
    row(Client::TypeScript, None),
    row(Client::TypeScript2, Some(Mode::Legacy)),
    row(Client::TypeScript2, Some(Mode::Auto)),
    row(Client::TypeScript2, Some(Mode::Modern)),
    inspector(Mode::Legacy),
    inspector(Mode::Auto),
    inspector(Mode::Modern),
    row(Client::Rmcp, Some(Mode::Legacy)),
    row(Client::Rmcp, Some(Mode::Auto)),
    row(Client::Rmcp, Some(Mode::Modern)),
];

/// Runs every session. For each of [`ROWS`] the version that was spoken; the error names each that is not as it must be.
pub(crate) async fn run() -> Result<Vec<&'static str>> {
    let program = tokio::task::spawn_blocking(|| built::binary("mooring-server")).await??;
    let (mut spoken, mut wrong) = (Vec::new(), Vec::new());
    for row in ROWS {
        let mut serve = Command::new(&program);
        serve.args(["serve", "--stdio", "--config"]);
        match meet(row, serve).await {
            Ok(version) => spoken.push(version),
            Err(error) => wrong.push(format!("{:?} {:?}: {error:#}", row.client, row.mode)),
        }
    }
    ensure!(wrong.is_empty(), "{} clients fail over stdio:\n{}", wrong.len(), wrong.join("\n"));
    Ok(spoken)
}

async fn meet(row: &Row, mut serve: Command) -> Result<&'static str> {
    let api = Api::start().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tools.yaml");
    std::fs::write(&file, json!({"server": {"name": "harness"}, "source": {"tools": api.tools()}}).to_string())?;
    let tap = StdioTap::new(serve.arg(&file))?;
    let session = Session::program(&tap.program()).mode(row.mode.unwrap_or(Mode::Legacy));
    let session = session.call("forecast", json!({"city": "Oslo"}));
    let session = if row.cancels { session.cancel("endless", "begun") } else { session };
    let report = row.client.run(&session).await;
    let runs = tap.runs().await?;
    let report = report.with_context(|| format!("{runs:?}"))?;
    ensure!(report.tools == ["forecast", "endless", "begun"], "the tools are {:?}", report.tools);
    let text = report.text.join(" ");
    ensure!(!report.is_error && text.contains("city=Oslo"), "the tool answered {text:?}");
    ensure!(report.cancelled == row.cancels, "the call that it cancelled ended in another way");
    if row.cancels {
        api.gone().await?;
    }
    let mut cancelled = 0;
    for run in &runs {
        ensure!(run.status == 0, "a run ended with {}: {}", run.status, run.log);
        cancelled += cancelled_of(run).with_context(|| format!("{run:?}"))?;
    }
    ensure!(cancelled == usize::from(row.cancels), "{cancelled} calls were cancelled");
    let expected = if matches!(row.mode, None | Some(Mode::Legacy)) { LEGACY } else { MODERN };
    let spoken = runs.iter().find_map(spoken).context("no call came")?;
    ensure!(spoken == expected, "they agreed on {spoken:?}, not on {expected}");
    ensure!(report.protocol_version.is_empty() || report.protocol_version == expected, "it says {report:?}");
    Ok(expected)
}

/// How many requests of a run were cancelled. Each other was answered once, and nothing else was said.
fn cancelled_of(run: &Run) -> Result<usize> {
    let sent = messages(&run.sent)?;
    let ids = |messages: Vec<&Value>| messages.into_iter().map(|message| message["id"].to_string()).collect::<Vec<_>>();
    let asked = ids(sent.iter().filter(|message| message.get("id").is_some()).collect());
    let cancels = sent.iter().filter(|message| message["method"] == "notifications/cancelled");
    let cancelled: BTreeSet<String> = cancels.map(|message| message["params"]["requestId"].to_string()).collect();
    let said = messages(&run.answered)?;
    ensure!(said.iter().all(|said| said.get("result").is_some() || said.get("error").is_some()), "not only answers");
    let mut answered = ids(said.iter().collect());
    let mut owed: Vec<String> = asked.into_iter().filter(|id| !cancelled.contains(id)).collect();
    answered.sort();
    owed.sort();
    ensure!(answered == owed, "answered were {answered:?}, not {owed:?}");
    Ok(cancelled.len())
}

/// The version in which a tool was called: 2026-07-28 says it in each request, older ones in the handshake.
fn spoken(run: &Run) -> Option<String> {
    let sent = messages(&run.sent).ok()?;
    let call = sent.iter().find(|message| message["method"] == "tools/call")?;
    let meta = &call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
    let said = messages(&run.answered).ok()?;
    let handshake = said.iter().find_map(|answer| answer["result"]["protocolVersion"].as_str());
    meta.as_str().or(handshake).map(str::to_owned)
}

/// One JSON-RPC message a line, and nothing else.
fn messages(text: &str) -> Result<Vec<Value>> {
    ensure!(text.is_empty() || text.ends_with('\n'), "the last line does not end: {text:?}");
    let message = |line: &str| {
        let message: Value = serde_json::from_str(line).with_context(|| format!("no message: {line:?}"))?;
        ensure!(message["jsonrpc"] == "2.0", "not JSON-RPC: {line:?}");
        Ok(message)
    };
    text.lines().map(message).collect()
}
