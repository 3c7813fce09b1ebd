//! A refusal stays a refusal: clients that probe the newer era first take most errors for the sign of an old server, try
//! the older one, and must meet the same refusal there, say so, and stop. What they do next, when nothing is wrong any more, works.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use mooring_tests::clients::{Client, Session};
use mooring_tests::front_door_process::{FrontDoorProcess, KEY, config, http};
use mooring_tests::mcp::Target;
use mooring_tests::process::{PATIENCE, free_port};
use mooring_tests::server_process::{Server, ServerProcess};
use mooring_tests::tap::Tap;
use mooring_tests::wait::until;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::matrix::MODERN;

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
    held: Held,
    /// What a client asks, and is answered, before what is refused.
    before: &'static [&'static str],
    session: fn(SocketAddr) -> Session,
}

/// What somebody else holds of the front door meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// The only event stream.
    Stream,
    /// Every place for a request.
    Calls,
}

/// What comes before a call, or before a stream for changes of the tools.
const BEGINNING: &[&str] = &["server/discover", "tools/list"];

/// Places for requests where they are held. The last request of a client may still be counted when its next one comes, so one alone would
/// refuse a client that does nothing wrong.
const PLACES: u64 = 2;

/// Runs every case.
pub(crate) async fn run() -> Result<Vec<Refused>> {
    let (server, notifying) = (Server::FastMcp.start().await?, Server::Rmcp.start().await?);
    let (behind, notifying) = (before(&server).await?, before(&notifying).await?);
    let backend = http(behind.address().port());
    let (broken, silent) = (Faulty::start(false).await?, Faulty::start(true).await?);
    let limited = |limit: &str, value: u64, backend: &Value| {
        let mut config = config(backend);
        config["limits"][limit] = value.into();
        config
    };
    let case = async |what, status, config: &Value, held, before, session| {
        anyhow::Ok(Case { what, status, door: FrontDoorProcess::start(config).await?, held, before, session })
    };
    let (whole, away) = (config(&backend), config(&http(free_port()?)));
    let (small, busy) = (limited("bodyBytes", BODY_BYTES, &backend), limited("requests", PLACES, &backend));
    let (crowded, hasty) = (
        limited("streamsPerPrincipal", 1, &http(notifying.address().port())),
        limited("callTimeoutMs", 1000, &http(silent.port)),
    );
    let cases = [
        case("a wrong key", 401, &whole, Held::Nothing, &[], |tap| {
            with(tap).key("5f0c1d8e-2f7b-4c3f-9a44-7d1e6b0f9c22")
        })
        .await?,
        case("a foreign `Host`", 421, &whole, Held::Nothing, &[], |tap| {
            let url = format!("http://mcp.example.org:{}/mcp", tap.port());
            called(Session::new(url).resolve_to(tap.ip()).key(KEY))
        })
        .await?,
        case("a foreign `Origin`", 403, &whole, Held::Nothing, &[], |tap| {
            good(tap).header("Origin", "https://example.org")
        })
        .await?,
        case("a path that is not the endpoint", 404, &whole, Held::Nothing, &[], |tap| {
            called(Session::new(format!("http://{tap}/nothing")).key(KEY))
        })
        .await?,
        case("a body above `limits.bodyBytes`", 413, &small, Held::Nothing, BEGINNING, |tap| {
            Session::new(url(tap)).key(KEY).call("add", json!({"a": 1, "b": 2, "note": "x".repeat(4000)}))
        })
        .await?,
        case("a body that is said to be compressed", 415, &whole, Held::Nothing, &[], |tap| {
            good(tap).header("Content-Encoding", "gzip")
        })
        .await?,
        case("a head above `limits.headerBytes`", 431, &whole, Held::Nothing, &[], |tap| {
            good(tap).header("X-Note", &"x".repeat(20_000))
        })
        .await?,
        case("a stream above `limits.streamsPerPrincipal`", 429, &crowded, Held::Stream, BEGINNING, |tap| {
            Session::new(url(tap)).key(KEY).listen().call("test_simple_text", json!({}))
        })
        .await?,
        case("a request above `limits.requests`", 503, &busy, Held::Calls, &[], good).await?,
        case("a server that is away", 503, &away, Held::Nothing, &[], good).await?,
        case("a server that breaks off", 502, &config(&http(broken.port)), Held::Nothing, &[], good).await?,
        case("a server that does not answer in time", 504, &hasty, Held::Nothing, &[], good).await?,
    ];
    // None of them asks the server once it is ready.
    for case in cases.iter().filter(|case| case.served()) {
        case.door.ready().await?;
    }
    let mut refused = Vec::new();
    for case in &cases {
        let mut says = Vec::new();
        let behind = if case.held == Held::Stream { &notifying } else { &behind };
        for client in CLIENTS {
            says.push(meet(case, client, behind).await.with_context(|| format!("{client:?}, {}", case.what))?);
        }
        let says = says.try_into().unwrap_or_default();
        refused.push(Refused { what: case.what, status: case.status, says });
    }
    Ok(refused)
}

/// Writes down what reaches a server.
async fn before(server: &ServerProcess) -> Result<Tap> {
    Tap::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await
}

impl Case {
    /// Whether there is a server that answers.
    fn served(&self) -> bool {
        self.status < 500 || self.held != Held::Nothing
    }
}

/// A client in a case, and then, where that is no fault of the server, the same client when nothing is wrong.
async fn meet(case: &Case, client: Client, behind: &Tap) -> Result<String> {
    let holding = hold(case, behind).await?;
    let before = behind.seen().len();
    let says = refuse(case, client).await?;
    // Whatever was refused did not reach the server: at most what came before it did.
    let reached: Vec<_> = behind.seen().into_iter().skip(before).map(|seen| seen.rpc().to_owned()).collect();
    ensure!(reached.iter().all(|method| case.before.contains(&method.as_str())), "the server was asked {reached:?}");
    drop(holding);
    if case.served() {
        case.door.idle().await?;
        let tap = Tap::start(case.door.address()).await?;
        // What was refused for want of room is wrong no longer.
        let next = if case.held == Held::Nothing { good } else { case.session };
        let report = client.run(&next(tap.address())).await.context("afterwards")?;
        ensure!(!report.text.is_empty() && !report.is_error, "afterwards it gets {report:?}");
    }
    Ok(says)
}

/// Takes what the case wants to be held, until it is dropped.
async fn hold(case: &Case, behind: &Tap) -> Result<JoinSet<Result<()>>> {
    let mut holding = JoinSet::new();
    match case.held {
        Held::Nothing => {}
        Held::Stream => {
            let stream = Target { path: "/sse".into(), ..case.door.target() };
            let mut stream = stream.open("GET", "").await?;
            stream.text().await?.context("no stream to hold")?;
            holding.spawn(async move { stream.text().await.map(drop) });
        }
        Held::Calls => {
            let arguments = json!({"to": 6000, "pause": 0.01});
            let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}});
            let params = json!({"name": "count", "arguments": arguments, "_meta": meta});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
            let target = case.door.target().with_header("mcp-protocol-version", MODERN);
            let target = target.with_header("mcp-method", "tools/call").with_header("mcp-name", "count");
            let before = behind.seen().len();
            for _ in 0..PLACES {
                let (target, call) = (target.clone(), call.clone());
                holding.spawn(async move { target.send("POST", call).await.map(drop) });
            }
            until("the calls to reach the server", PATIENCE, || async {
                let held = behind.seen().into_iter().skip(before).filter(|seen| seen.rpc() == "tools/call").count();
                ensure!(held as u64 == PLACES, "{held} did");
                Ok(())
            })
            .await?;
        }
    }
    Ok(holding)
}

async fn refuse(case: &Case, client: Client) -> Result<String> {
    let tap = Tap::start(case.door.address()).await?;
    let outcome = client.run(&(case.session)(tap.address())).await;
    let seen = tap.seen();
    let statuses: Vec<_> = seen.iter().filter_map(|seen| seen.status).map(|status| status.as_u16()).collect();
    ensure!(seen.len() <= REQUESTS, "{} requests: {statuses:?}", seen.len());
    ensure!(statuses.last() == Some(&case.status), "the last of {statuses:?} is not {}", case.status);
    let others = seen.iter().filter(|seen| seen.status.is_none_or(|status| status.as_u16() != case.status));
    let others: Vec<_> = others.map(|seen| (seen.method.as_str(), seen.rpc(), seen.status)).collect();
    let are_before = others
        .iter()
        .all(|(_, method, status)| case.before.contains(method) && status.is_some_and(|status| status.is_success()));
    ensure!(are_before, "beside {}, {others:?}", case.status);
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

/// A session in which nothing is wrong.
fn good(tap: SocketAddr) -> Session {
    with(tap).key(KEY)
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
