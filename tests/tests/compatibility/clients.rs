//! The rows of the matrix: each client in each of its modes, with a key in one of the two headers.

use mooring_tests::clients::{Client, Mode, Session};
use mooring_tests::front_door_process::KEY;

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) client: Client,
    /// Absent where the client knows legacy versions only.
    pub(crate) mode: Option<Mode>,
    pub(crate) credential: Credential,
}

/// Where the key travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    Bearer,
    ApiKey,
}

const fn row(client: Client, mode: Option<Mode>) -> Row {
    Row { client, mode, credential: Credential::Bearer }
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
    Row { credential: Credential::ApiKey, ..row(Client::TypeScript, None) },
    row(Client::TypeScript2, Some(Mode::Legacy)),
    row(Client::TypeScript2, Some(Mode::Auto)),
    Row { credential: Credential::ApiKey, ..row(Client::TypeScript2, Some(Mode::Auto)) },
    row(Client::TypeScript2, Some(Mode::Modern)),
    row(Client::Inspector, Some(Mode::Legacy)),
    row(Client::Inspector, Some(Mode::Auto)),
    row(Client::Inspector, Some(Mode::Modern)),
    row(Client::McpRemote, None),
    row(Client::Supergateway, None),
    row(Client::Rmcp, Some(Mode::Legacy)),
    row(Client::Rmcp, Some(Mode::Auto)),
    row(Client::Rmcp, Some(Mode::Modern)),
];

impl Row {
    /// A session of this client with its key.
    pub(crate) fn session(self, url: String) -> Session {
        let session = Session::new(url).mode(self.mode.unwrap_or(Mode::Legacy));
        match self.credential {
            Credential::Bearer => session.key(KEY),
            Credential::ApiKey => session.header("x-api-key", KEY),
        }
    }
}
