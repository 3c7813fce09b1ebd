//! A refusal stays a refusal: clients that probe the newer era first take most errors for the sign of an old server, try
//! the older one, and must meet the same refusal there, say so, and stop.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use mooring_tests::clients::{Client, Session};
use mooring_tests::front_door_process::{FrontDoorProcess, KEY, config, http};
use mooring_tests::process::free_port;
use mooring_tests::server_process::Server;
use mooring_tests::tap::Tap;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The clients that probe.
pub(crate) const CLIENTS: [Client; 2] = [Client::Python, Client::TypeScript2];
/// Most requests that a client may make of a refusal.
const REQUESTS: usize = 8;
/// Largest body of the front door that refuses a larger one: enough for everything but the call.
const BODY_BYTES: u64 = 2000;

/// What one of [`CLIENTS`] says when it is refused.
pub(crate) struct Refused {
    pub(crate) what: &'static str,
    pub(crate) status: u16,
    pub(crate) says: [String; 2],
}

struct Case {
    what: &'static str,
    status: u16,
    door: FrontDoorProcess,
    session: fn(SocketAddr) -> Session,
}

/// Runs every case.
pub(crate) async fn run() -> Result<Vec<Refused>> {
    let server = Server::FastMcp.start().await?;
    let behind = Tap::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await?;
    let backend = http(behind.address().port());
    let (broken, silent) = (Faulty::start(false).await?, Faulty::start(true).await?);
    let mut small = config(&backend);
    small["limits"]["bodyBytes"] = BODY_BYTES.into();
    let mut hasty = config(&http(silent.port));
    hasty["limits"]["callTimeoutMs"] = 1000.into();

    let case = async |what, status, config: &Value, session| {
        anyhow::Ok(Case { what, status, door: FrontDoorProcess::start(config).await?, session })
    };
    let whole = config(&backend);
    let cases = [
        case("a wrong key", 401, &whole, |tap| with(tap).key("5f0c1d8e-2f7b-4c3f-9a44-7d1e6b0f9c22")).await?,
        case("a foreign `Host`", 421, &whole, |tap| {
            let url = format!("http://mcp.example.org:{}/mcp", tap.port());
            called(Session::new(url).resolve_to(tap.ip()).key(KEY))
        })
        .await?,
        case("a foreign `Origin`", 403, &whole, |tap| with(tap).key(KEY).header("Origin", "https://example.org"))
            .await?,
        case("a path that is not the endpoint", 404, &whole, |tap| {
            called(Session::new(format!("http://{tap}/nothing")).key(KEY))
        })
        .await?,
        case("a body above `limits.bodyBytes`", 413, &small, |tap| {
            Session::new(url(tap)).key(KEY).call("add", json!({"a": 1, "b": 2, "note": "x".repeat(4000)}))
        })
        .await?,
        case("a server that is away", 503, &config(&http(free_port()?)), |tap| with(tap).key(KEY)).await?,
        case("a server that breaks off", 502, &config(&http(broken.port)), |tap| with(tap).key(KEY)).await?,
        case("a server that does not answer in time", 504, &hasty, |tap| with(tap).key(KEY)).await?,
    ];
    for case in &cases {
        if case.status < 500 {
            case.door.ready().await?;
        }
    }
    let before = behind.seen().len();
    let mut refused = Vec::new();
    for case in &cases {
        let mut says = Vec::new();
        for client in CLIENTS {
            says.push(refuse(case, client).await.map_err(|error| error.context(format!("{client:?}, {}", case.what)))?);
        }
        let says = says.try_into().unwrap_or_default();
        refused.push(Refused { what: case.what, status: case.status, says });
    }
    // Only the session whose call was too large reached the server at all, and the call did not.
    let reached: Vec<_> = behind.seen().into_iter().skip(before).map(|seen| seen.rpc().to_owned()).collect();
    ensure!(reached.iter().all(|method| method == "server/discover" || method == "tools/list"), "{reached:?}");
    Ok(refused)
}

async fn refuse(case: &Case, client: Client) -> Result<String> {
    let tap = Tap::start(case.door.address()).await?;
    let outcome = client.run(&(case.session)(tap.address())).await;
    let seen = tap.seen();
    let statuses: Vec<_> = seen.iter().filter_map(|seen| seen.status).map(|status| status.as_u16()).collect();
    ensure!(seen.len() <= REQUESTS, "{} requests: {statuses:?}", seen.len());
    ensure!(statuses.last() == Some(&case.status), "the last of {statuses:?} is not {}", case.status);
    match outcome {
        Ok(report) => anyhow::bail!("it says that all is well: {report:?}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

fn url(tap: SocketAddr) -> String {
    format!("http://{tap}/mcp")
}

fn with(tap: SocketAddr) -> Session {
    called(Session::new(url(tap)))
}

fn called(session: Session) -> Session {
    session.call("add", json!({"a": 2, "b": 3}))
}

/// A server that accepts every connection, and then breaks it off, or is silent for ever.
struct Faulty {
    port: u16,
    _connections: JoinSet<()>,
}

impl Faulty {
    async fn start(silent: bool) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                if silent {
                    held.push(stream);
                }
            }
        });
        Ok(Self { port, _connections: connections })
    }
}
