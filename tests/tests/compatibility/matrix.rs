//! Every client against every server: each lists the tools and calls one, and what was agreed on is read off the wire.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use http::StatusCode;
use mooring_tests::clients::{Mode, Transport};
use mooring_tests::tap::{Seen, Tap};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::backends::{self, Alone, Backend};
use crate::clients::{Credential, ROWS, Row};

/// What a client in *legacy* speaks with our servers.
pub(crate) const LEGACY: &str = "2025-11-25";
/// What a client in *modern* speaks.
pub(crate) const MODERN: &str = "2026-07-28";
/// Most requests that one session may need: more would be a loop.
const REQUESTS: usize = 24;
/// Sessions at a time.
const AT_ONCE: usize = 4;

/// What a client and a server made of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The tools were listed and one was called, in this version.
    Spoken(String),
    /// They agree on none; what the client says of it.
    Refused(String),
}

/// The columns' names, what their servers answer alone, and one list of cells for each of [`ROWS`].
pub(crate) struct Matrix {
    pub(crate) servers: Vec<(&'static str, Transport)>,
    pub(crate) alone: Vec<Option<Alone>>,
    pub(crate) cells: Vec<Vec<Cell>>,
}

/// Runs every session. The error names each cell that is not as it must be.
pub(crate) async fn run() -> Result<Matrix> {
    let columns: Arc<Vec<Backend>> = Arc::new(backends::start().await?);
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut sessions = JoinSet::new();
    for (index, row) in ROWS.iter().enumerate() {
        for column in 0..columns.len() {
            let (columns, permits) = (Arc::clone(&columns), Arc::clone(&permits));
            sessions.spawn(async move {
                let _permit = permits.acquire().await?;
                let backend = columns.get(column).context("a column")?;
                let cell = meet(*row, backend).await;
                let cell = cell.with_context(|| format!("{row:?} with {} over {:?}", backend.name, backend.transport));
                anyhow::Ok((index, column, cell))
            });
        }
    }
    let mut cells = vec![vec![Cell::Refused(String::new()); columns.len()]; ROWS.len()];
    let mut wrong = Vec::new();
    for session in sessions.join_all().await {
        let (row, column, cell) = session?;
        match cell {
            Ok(cell) => cells[row][column] = cell,
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    wrong.sort();
    ensure!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
    // All clients have gone, and nothing of theirs goes on.
    for column in columns.iter() {
        column.door.idle().await.with_context(|| format!("{} over {:?}", column.name, column.transport))?;
    }
    let servers = columns.iter().map(|column| (column.name, column.transport)).collect();
    Ok(Matrix { servers, alone: columns.iter().map(|column| column.alone).collect(), cells })
}

async fn meet(row: Row, backend: &Backend) -> Result<Cell> {
    let tap = Tap::start(backend.door.address()).await?;
    let session = backend.tool.called(row.session(tap.address()));
    let outcome = row.client.run(&session).await;
    let seen = tap.seen();
    ensure!(seen.len() <= REQUESTS, "{} requests", seen.len());
    let header = if row.credential == Credential::Bearer { "authorization" } else { "x-api-key" };
    ensure!(seen.iter().any(|seen| !seen.header(header).is_empty()), "the key did not travel in {header}");
    match (outcome, expected(row, backend)) {
        (Ok(report), Some(version)) => {
            ensure!(report.tools.iter().any(|tool| tool == backend.tool.name), "the tools are {:?}", report.tools);
            let text = report.text.join(" ");
            ensure!(!report.is_error && text.contains(backend.tool.text), "the tool answered {text:?}");
            let call = seen.iter().find(|seen| seen.rpc() == "tools/call").context("no call came")?;
            let told = &report.protocol_version;
            let agreed = match row.transport {
                Transport::StreamableHttp => call.header("mcp-protocol-version"),
                Transport::Sse => told, // no header has it
            };
            ensure!(agreed == version, "they agreed on {agreed:?}, not on {version}");
            ensure!(told.is_empty() || told == version, "the client says {told}");
            Ok(Cell::Spoken(agreed.to_owned()))
        }
        (Err(error), None) => {
            ensure!(seen.iter().all(is_refused), "not every request was refused: {seen:?}");
            Ok(Cell::Refused(format!("{error:#}")))
        }
        (Ok(_), None) => bail!("it got through"),
        (Err(error), Some(_)) => Err(error.context(format!("it did not get through: {:?}", statuses(&seen)))),
    }
}

/// The newest version that both know and agree on; none where they do not. Where HTTP+SSE is on one side alone, the front door speaks legacy there;
/// on both, the messages pass as they are.
fn expected(row: Row, backend: &Backend) -> Option<&'static str> {
    match (row.mode, backend.modern && row.transport == backend.transport) {
        (None | Some(Mode::Legacy), _) | (Some(Mode::Auto), false) => Some(LEGACY),
        (Some(Mode::Auto | Mode::Modern), true) => Some(MODERN),
        (Some(Mode::Modern), false) => None,
    }
}

fn is_refused(seen: &Seen) -> bool {
    seen.status == Some(StatusCode::BAD_REQUEST)
}

fn statuses(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(|seen| format!("{} {} {:?}", seen.method, seen.rpc(), seen.status)).collect()
}
