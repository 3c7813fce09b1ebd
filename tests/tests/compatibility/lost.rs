//! Sessions that are lost: front door and server of their pod are killed under the clients, and others of the same name and address, who remember
//! nothing, are there before the next call, which reaches another pod first. Who does not begin anew by itself hears of it with that call, and with
//! each further one; connecting anew works for all.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use mooring_tests::clients::{Client, Session, Transport};
use mooring_tests::front_door_process::{FrontDoorProcess, KEY, config, http};
use mooring_tests::process::free_port;
use mooring_tests::server_process::{Server, ServerProcess};
use mooring_tests::tap::Tap;
use tokio::net::TcpListener;

use crate::backends::{Tool, add, echo};

/// The clients that keep a session from call to call.
const CLIENTS: [Client; 7] = [
    Client::Python,
    Client::FastMcp,
    Client::TypeScript,
    Client::TypeScript2,
    Client::McpRemote,
    Client::Supergateway,
    Client::Rmcp,
];
/// Those of them that begin anew by themselves.
const RECOVER: [Client; 2] = [Client::McpRemote, Client::Rmcp];
/// Those that speak the older transport, too.
const OLDER: [Client; 5] =
    [Client::Python, Client::FastMcp, Client::TypeScript, Client::McpRemote, Client::Supergateway];

/// What a client made of it.
pub(crate) struct Lost {
    pub(crate) client: Client,
    pub(crate) transport: Transport,
    pub(crate) server: &'static str,
    /// What its next call said; absent where none failed.
    pub(crate) says: Option<String>,
}

/// Runs all of it.
pub(crate) async fn run() -> Result<Vec<Lost>> {
    let peer_port = free_port()?;
    let newer = CLIENTS.map(|client| (client, Transport::StreamableHttp));
    let older = OLDER.map(|client| (client, Transport::Sse));
    // One server answers 400 where it knows no session, the other 404.
    let mut lost = lose(Server::Everything, &echo(), &newer, [1, 2], peer_port).await?;
    lost.extend(lose(Server::FastMcp, &add(), &[newer.as_slice(), &older].concat(), [3, 4], peer_port).await?);
    Ok(lost)
}

/// One pod.
struct Pod {
    door: FrontDoorProcess,
    _server: ServerProcess,
}

impl Pod {
    async fn start(server: Server, number: u8, peer_port: u16) -> Result<Self> {
        let process = server.start().await?;
        let door = FrontDoorProcess::start_in_pod(&config(&http(process.port())), number, peer_port).await?;
        door.ready().await.with_context(|| process.log_text())?;
        Ok(Self { door, _server: process })
    }
}

async fn lose(
    server: Server,
    tool: &Tool,
    clients: &[(Client, Transport)],
    numbers: [u8; 2],
    peer_port: u16,
) -> Result<Vec<Lost>> {
    let start = |number| Pod::start(server, number, peer_port);
    let [first, second] = numbers;
    let (owner, other) = tokio::try_join!(start(first), start(second))?;
    let gate = TcpListener::bind("127.0.0.1:0").await?;
    let port = gate.local_addr()?.port();
    let taps = try_join_all(clients.iter().map(|_| Tap::start(owner.door.address()))).await?;
    let session = |transport, tap: &Tap| {
        let path = if transport == Transport::Sse { "sse" } else { "mcp" };
        tool.called(Session::new(format!("http://{}/{path}", tap.address())).key(KEY).legacy().over(transport))
    };
    let interrupted = clients.iter().zip(&taps).map(async |((client, transport), tap)| {
        let report = client.run(&session(*transport, tap).interrupted(port)).await;
        report.with_context(|| format!("{client:?} over {transport:?} before {server:?}"))
    });
    let lost = async {
        let mut waiting = Vec::new();
        for _ in clients {
            waiting.push(gate.accept().await?);
        }
        drop(owner); // SIGKILL, to both
        let anew = start(first).await?;
        for tap in &taps {
            tap.lead_to(other.door.address());
        }
        drop(waiting);
        anyhow::Ok(anew)
    };
    let (reports, _anew) = tokio::try_join!(try_join_all(interrupted), lost)?;
    let again = clients.iter().zip(&taps).map(async |((client, transport), tap)| {
        let report = client.run(&session(*transport, tap)).await;
        report.with_context(|| format!("{client:?} over {transport:?} before {server:?} cannot connect anew"))
    });
    for report in try_join_all(again).await?.iter().chain(&reports) {
        let text = report.text.join(" ");
        ensure!(!report.is_error && text.contains(tool.text), "{}: {text:?}", report.client);
    }
    let lost = clients.iter().zip(reports).map(|((client, transport), report)| {
        let failed: Vec<bool> = report.after.iter().map(Option::is_some).collect();
        let expected = match transport {
            Transport::StreamableHttp => failed == [!RECOVER.contains(client); 2],
            Transport::Sse => failed.first() == Some(&true), // afterwards its stream may be a new one
        };
        ensure!(expected, "{client:?} over {transport:?} before {server:?}: {:?}", report.after);
        let says = report.after.into_iter().next().flatten();
        Ok(Lost { client: *client, transport: *transport, server: server.package(), says })
    });
    lost.collect()
}
