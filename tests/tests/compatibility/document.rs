//! `docs/compatibility.md`, as what was seen makes it. With `INSTA_UPDATE=always` it is rewritten, like a snapshot.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use mooring_tests::clients::{Mode, Transport};
use mooring_tests::product::workspace;

use crate::backends::Alone;
use crate::clients::{Credential, ROWS, Row};
use crate::lost::Lost;
use crate::matrix::{Cell, Matrix};
use crate::refusals::{CLIENTS, Refused};
use crate::stdio;

const FILE: &str = "docs/compatibility.md";

const HEAD: &str = "\
# Compatibility

<!-- Written by `cargo xtask test compatibility`, which fails when something else is seen.
     `INSTA_UPDATE=always cargo test -p mooring-tests --test compatibility` rewrites it. -->

Real clients in front of real servers, with the front door between them. Every client lists the tools and calls one. A cell has the revision of
the protocol in which the call came. Each server keeps the checks of `Host` and `Origin` that it has by itself. A row with HTTP+SSE is a client
that speaks this older transport, at `/sse`; a column with HTTP+SSE is a server that speaks nothing else. On one side alone it has the revisions
up to 2025-11-25; on both, the messages pass as they are.
";

const MODES: &str = "
*legacy* speaks the revisions up to 2025-11-25, which begin with `initialize`; *modern* speaks 2026-07-28 alone; *auto* asks for the newer and
falls back. A client without a mode has no choice: it is legacy.
";

const ALONE: &str = "
What a server answers by itself where it is asked straight, under a name that is not its own, or from a page of a foreign origin. Under its own
name each of them serves.
";

const STDIO: &str = "
## Standard streams

The clients start `mooring-server serve --stdio` with a file of declared tools, list the tools, call one, and cancel another. Each request but the
cancelled one is answered, and nothing else is on standard output; the cancelled call ends at the API, too; after the end of input the program
leaves with 0.
";

const REFUSED: &str = "
## No revision in common

A client that speaks 2026-07-28 alone is refused in front of a server that knows only older ones: the front door answers 400 and names those. It
does not make a server seem to be more than it is. What the clients say:
";

const REFUSALS: &str = "
## A refusal stays a refusal

A client in *auto* takes most errors for the sign of an older server and tries `initialize`. It meets the same refusal there, reports it and
stops; what is refused does not reach the server. Where the server is well, the same client's next session, in which nothing is wrong, works. What
the clients say:
";

const LOST: &str = "
## A session that is lost

Front door and server of a session's pod are killed while the client is silent. Others of the same name and address, which remember nothing, are there
before its next call, and that reaches another pod, which passes it on. The client gets 404, which means that it shall begin anew, also where the
server says 400 for a session that it does not know. Some begin anew by themselves, and no call fails. For the others that call fails, and each
further one, until the program connects anew, which works at once. Over HTTP+SSE the stream breaks with the pod. A client that speaks 2026-07-28 with
its server has no session to lose.
";

/// The whole text.
pub(crate) fn text(matrix: &Matrix, spoken: &[&str], refused: &[Refused], lost: &[Lost]) -> String {
    let servers: Vec<String> = matrix.servers.iter().map(|server| column(*server)).collect();
    let mut rows = vec![words(&["client", "mode", "over", "key in"]).into_iter().chain(servers.clone()).collect()];
    for (row, cells) in ROWS.iter().zip(&matrix.cells) {
        rows.push(described(*row).into_iter().chain(cells.iter().map(brief)).collect());
    }
    let mut alone = vec![words(&["server", "foreign `Host`", "foreign `Origin`"])];
    for (server, answers) in servers.iter().zip(&matrix.alone) {
        if let Some(Alone { foreign_host, foreign_origin }) = answers {
            alone.push(vec![server.clone(), foreign_host.as_u16().to_string(), foreign_origin.as_u16().to_string()]);
        }
    }
    let mut streams = vec![words(&["client", "mode", "revision", "a call is cancelled"])];
    for (stdio::Row { client, mode, cancels }, spoken) in stdio::ROWS.iter().zip(spoken) {
        let cancels = if *cancels { "yes" } else { "has no way to" };
        streams.push(words(&[&plain(client.package()), named(*mode), spoken, cancels]));
    }
    let mut apart = vec![words(&["client", "server", "says"])];
    for (row, cells) in ROWS.iter().zip(&matrix.cells) {
        for (server, cell) in servers.iter().zip(cells) {
            if let Cell::Refused(says) = cell {
                apart.push(vec![plain(row.client.package()), server.clone(), quoted(says)]);
            }
        }
    }
    let clients = CLIENTS.map(|client| plain(client.package()));
    let mut refusals = vec![words(&["met with", "status"]).into_iter().chain(clients).collect()];
    for Refused { what, status, says } in refused {
        let says = says.iter().map(|says| quoted(says));
        refusals.push(words(&[what, &status.to_string()]).into_iter().chain(says).collect());
    }
    let mut sessions = vec![words(&["client", "over", "server", "the next call"])];
    for Lost { client, transport, server, says } in lost {
        let says = match (transport, says) {
            (_, None) => "works".to_owned(),
            (Transport::StreamableHttp, Some(says)) => in_a_cell(says),
            (Transport::Sse, Some(_)) => "fails".to_owned(), // in words that depend on when it hears of the stream
        };
        sessions.push(words(&[&plain(client.package()), over(*transport), &plain(server), &says]));
    }
    let parts =
        [(HEAD, rows), (ALONE, alone), (STDIO, streams), (REFUSED, apart), (REFUSALS, refusals), (LOST, sessions)];
    let parts = parts.map(|(says, rows)| format!("{says}\n{}", table(&rows)));
    let [matrix, rest @ ..] = &parts;
    [matrix, MODES, &rest.concat()].concat()
}

/// Compares the file with the text, or rewrites it.
pub(crate) fn check(text: &str) -> Result<()> {
    let path = workspace().join(FILE);
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        return std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let mut differences = String::new();
    let (mut seen, mut written) = (text.lines(), found.lines());
    loop {
        match (seen.next(), written.next()) {
            (None, None) => break,
            (seen, written) if seen == written => {}
            (seen, written) => {
                let _ = writeln!(differences, "- {}\n+ {}", written.unwrap_or_default(), seen.unwrap_or_default());
            }
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "{FILE} says something else than what was seen; read this, then rewrite it with INSTA_UPDATE=always:\n{differences}"
    )
}

fn described(row: Row) -> [String; 4] {
    let header = match row.credential {
        Credential::Bearer => "`Authorization`",
        Credential::ApiKey => "`x-api-key`",
    };
    [&plain(row.client.package()), named(row.mode), over(row.transport), header].map(str::to_owned)
}

fn named(mode: Option<Mode>) -> &'static str {
    match mode {
        None => "",
        Some(Mode::Legacy) => "legacy",
        Some(Mode::Auto) => "auto",
        Some(Mode::Modern) => "modern",
    }
}

fn over(transport: Transport) -> &'static str {
    match transport {
        Transport::StreamableHttp => "Streamable HTTP",
        Transport::Sse => "HTTP+SSE",
    }
}

/// A server; what it speaks is said where it is the older transport.
fn column((package, transport): (&str, Transport)) -> String {
    match transport {
        Transport::StreamableHttp => plain(package),
        Transport::Sse => format!("{}, {}", plain(package), over(transport)),
    }
}

fn brief(cell: &Cell) -> String {
    match cell {
        Cell::Spoken(version) => version.clone(),
        Cell::Refused(_) => "refused".to_owned(),
    }
}

/// `name version` for `name@version` and `name==version`.
fn plain(package: &str) -> String {
    match package.rsplit_once(['@', '=']) {
        Some((name, version)) => format!("{} {version}", name.trim_end_matches('=')),
        None => package.to_owned(),
    }
}

/// An error of [`mooring_tests::clients::Client::run`] in one cell, without the client's name before it.
fn quoted(error: &str) -> String {
    in_a_cell(error.split_once(": ").map_or(error, |(_, says)| says))
}

fn in_a_cell(says: &str) -> String {
    says.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    text
}
