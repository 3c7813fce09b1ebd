//! `docs/compatibility.md`, as what was seen makes it. With `INSTA_UPDATE=always` it is rewritten, like a snapshot.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use mooring_tests::clients::Mode;
use mooring_tests::product::workspace;

use crate::clients::{Credential, ROWS, Row};
use crate::matrix::{Cell, Matrix};
use crate::refusals::{CLIENTS, Refused};

const FILE: &str = "docs/compatibility.md";

const HEAD: &str = "\
# Compatibility

<!-- Written by `cargo xtask test compatibility`, which fails when something else is seen.
     `INSTA_UPDATE=always cargo test -p mooring-tests --test compatibility` rewrites it. -->

Real clients in front of real servers, with the front door between them. Every client lists the tools and calls one. A cell has the revision of
the protocol in which the call came. Each server keeps the checks of `Host` and `Origin` that it has by itself.
";

const MODES: &str = "
*legacy* speaks the revisions up to 2025-11-25, which begin with `initialize`; *modern* speaks 2026-07-28 alone; *auto* asks for the newer and
falls back. A client without a mode has no choice: it is legacy.
";

const REFUSED: &str = "
## No revision in common

A client that speaks 2026-07-28 alone is refused in front of a server that knows only older ones: the front door answers 400 and names those. It
does not make a server seem to be more than it is. What the clients say:
";

const REFUSALS: &str = "
## A refusal stays a refusal

A client in *auto* takes most errors for the sign of an older server and tries `initialize`. It meets the same refusal there, reports it and
stops; nothing reaches the server. What the clients say:
";

/// The whole text.
pub(crate) fn text(matrix: &Matrix, refused: &[Refused]) -> String {
    let servers = matrix.servers.iter().map(|server| plain(server));
    let mut rows = vec![["client", "mode", "key in"].map(str::to_owned).into_iter().chain(servers).collect()];
    for (row, cells) in ROWS.iter().zip(&matrix.cells) {
        rows.push(described(*row).into_iter().chain(cells.iter().map(brief)).collect());
    }
    let mut words: Vec<Vec<String>> = vec![["client", "server", "says"].map(str::to_owned).to_vec()];
    for (row, cells) in ROWS.iter().zip(&matrix.cells) {
        for (server, cell) in matrix.servers.iter().zip(cells) {
            if let Cell::Refused(says) = cell {
                words.push(vec![plain(row.client.package()), plain(server), quoted(says)]);
            }
        }
    }
    let mut refusals = vec![
        ["met with", "status"]
            .map(str::to_owned)
            .into_iter()
            .chain(CLIENTS.map(|client| plain(client.package())))
            .collect(),
    ];
    for Refused { what, status, says } in refused {
        refusals.push(
            [(*what).to_owned(), status.to_string()].into_iter().chain(says.iter().map(|says| quoted(says))).collect(),
        );
    }
    [HEAD, "\n", &table(&rows), MODES, REFUSED, "\n", &table(&words), REFUSALS, "\n", &table(&refusals)].concat()
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

fn described(row: Row) -> [String; 3] {
    let mode = match row.mode {
        None => "",
        Some(Mode::Legacy) => "legacy",
        Some(Mode::Auto) => "auto",
        Some(Mode::Modern) => "modern",
    };
    let header = match row.credential {
        Credential::Bearer => "`Authorization`",
        Credential::ApiKey => "`x-api-key`",
    };
    [plain(row.client.package()), mode.to_owned(), header.to_owned()]
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
    let says = error.split_once(": ").map_or(error, |(_, says)| says);
    says.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
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
