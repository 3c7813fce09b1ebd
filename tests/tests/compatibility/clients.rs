//! The rows of the matrix: each client in each of its modes and over each of its transports, with a key in one of the two headers.

use std::net::SocketAddr;

use mooring_tests::clients::{Client, Mode, Session, Transport};
use mooring_tests::front_door_process::KEY;

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) client: Client,
    /// Absent where the client knows legacy versions only, be it on this transport.
    pub(crate) mode: Option<Mode>,
    pub(crate) transport: Transport,
    pub(crate) credential: Credential,
}

/// Where the key travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    Bearer,
    ApiKey,
}

const fn row(client: Client, mode: Option<Mode>) -> Row {
    Row { client, mode, transport: Transport::StreamableHttp, credential: Credential::Bearer }
}

/// Over HTTP+SSE.
const fn older(client: Client, mode: Option<Mode>) -> Row {
    Row { transport: Transport::Sse, ..row(client, mode) }
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
    older(Client::Python, Some(Mode::Auto)),
    older(Client::FastMcp, None),
    older(Client::TypeScript, None),
    older(Client::McpRemote, None),
    older(Client::Supergateway, None),
];

impl Row {
    /// A session of this client with its key, through the front door at this address.
    pub(crate) fn session(self, door: SocketAddr) -> Session {
        let path = if self.transport == Transport::Sse { "sse" } else { "mcp" };
        let session = Session::new(format!("http://{door}/{path}")).over(self.transport);
        let session = session.mode(self.mode.unwrap_or(Mode::Legacy));
        match self.credential {
            Credential::Bearer => session.key(KEY),
            Credential::ApiKey => session.header("x-api-key", KEY),
        }
    }
}
