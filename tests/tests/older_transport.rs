//! HTTP+SSE, the transport of 2024-11-05, with servers and clients that nobody here wrote: each client over each
//! transport, through the front door, before each server over each transport.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use mooring_tests::clients::{Client, Session, Transport};
use mooring_tests::front_door_process::{FrontDoorProcess, KEY, config, http, http_sse};
use mooring_tests::mcp::Target;
use mooring_tests::server_process::{Server, ServerProcess};
use mooring_tests::wait::until;
use serde_json::{Value, json};

const TRANSPORTS: [Transport; 2] = [Transport::Sse, Transport::StreamableHttp];
const CLIENTS: [Client; 3] = [Client::Python, Client::FastMcp, Client::TypeScript];

/// A front door, and the server behind it.
struct Pair {
    door: FrontDoorProcess,
    server: ServerProcess,
}

impl Pair {
    async fn start(server: Server, transport: Transport) -> Result<Self> {
        let server = server.start_over(transport).await?;
        let source = match transport {
            Transport::Sse => http_sse(server.port()),
            Transport::StreamableHttp => http(server.port()),
        };
        let door = FrontDoorProcess::start(&config(&source)).await?;
        door.ready().await.with_context(|| server.log_text())?;
        Ok(Self { door, server })
    }

    /// A session of a client over a transport.
    async fn session(&self, client: Client, transport: Transport, (tool, arguments): (&str, &Value)) -> Result<String> {
        let url = match transport {
            Transport::Sse => self.door.url().replace("/mcp", "/sse"),
            Transport::StreamableHttp => self.door.url(),
        };
        let session = Session::new(url).key(KEY).over(transport).call(tool, arguments.clone());
        let report = client.run(&session).await;
        let report = report.with_context(|| format!("{client:?} over {transport:?}\n{}", self.door.log_text()))?;
        ensure!(!report.is_error && report.tools.iter().any(|listed| listed == tool), "{report:?}");
        Ok(report.text.join(" "))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_servers_meet_whatever_transport_each_knows() -> Result<()> {
    let (hello, sum) = (json!({"message": "hello"}), json!({"a": 2, "b": 3}));
    let servers = [(Server::Everything, ("echo", &hello), "Echo: hello"), (Server::FastMcp, ("add", &sum), "5")];
    for (server, call, expected) in servers {
        for behind in TRANSPORTS {
            let pair = Pair::start(server, behind).await?;
            for client in CLIENTS {
                let sessions = TRANSPORTS.map(|before| pair.session(client, before, call));
                for (before, text) in TRANSPORTS.iter().zip(try_join_all(sessions).await?) {
                    assert_eq!(text, expected, "{client:?} over {before:?} before {server:?} over {behind:?}");
                }
            }
            // All of them have left, and so did the sessions that the front door kept for them.
            until("no session to be left", mooring_tests::process::PATIENCE, || async {
                for name in ["mooring_server_sessions", "mooring_server_event_streams", "mooring_server_in_flight"] {
                    let left = pair.door.metric(name, "").await?;
                    ensure!(left < 0.5, "{name} is {left}\n{}", pair.server.log_text());
                }
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

/// Progress and the answer of a call travel as the client asked, in the order in which the server said them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_streams_as_it_goes() -> Result<()> {
    let pair = Pair::start(Server::FastMcp, Transport::Sse).await?;
    let message = |id: Value, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let client =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let target = pair.door.target();
    let begun = target.send("POST", message(json!("i"), "initialize", client.clone())).await?;
    let session = begun.headers.get("mcp-session-id").context("a session")?.to_str()?.to_owned();
    let in_session = target.with_header("mcp-session-id", &session);
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(in_session.send("POST", initialized.clone()).await?.status, 202);
    let arguments = json!({"name": "count", "arguments": {"to": 3, "pause": 0.05}, "_meta": {"progressToken": "p"}});
    let call = message(json!(7), "tools/call", arguments);
    let mut streaming = in_session.open("POST", call.clone()).await?;
    let mut said = Vec::new();
    while let Some(event) = streaming.event().await? {
        said.push(event);
    }
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said.iter().take(3).all(|event| event["params"]["progressToken"] == "p"), "{said:?}");
    assert_eq!(said[3]["id"], 7);
    assert_eq!(in_session.with_key(Some("nobody's")).send("DELETE", "").await?.status, 401);
    assert_eq!(in_session.send("DELETE", "").await?.status, 204);
    assert_eq!(in_session.send("POST", call).await?.status, 404);

    // The same over the older transport: the endpoint is ours, and a wrong one is nobody's.
    let stream = Target { path: "/sse".into(), ..target.clone() };
    let mut older = stream.open("GET", "").await?;
    let endpoint = older.text().await?.context("an event")?;
    let endpoint = endpoint.strip_prefix("/messages?s=").context("the address for messages")?.to_owned();
    assert_eq!(endpoint.len(), 43);
    let to = |token: &str| Target { path: format!("/messages?s={token}"), ..target.clone() };
    assert_eq!(to("wrong").send("POST", initialized.clone()).await?.status, 404);
    assert_eq!(to(&endpoint).send("POST", message(json!("i"), "initialize", client)).await?.status, 202);
    assert_eq!(older.event().await?.context("an answer")?["id"], "i");
    drop(older);
    until("the session to end with its stream", mooring_tests::process::PATIENCE, || async {
        let answer = to(&endpoint).send("POST", initialized.clone()).await?;
        ensure!(answer.status == 404, "{}", answer.status);
        Ok(())
    })
    .await?;
    assert!(!pair.door.log_text().contains(&endpoint) && !pair.door.log_text().contains(&session));
    Ok(())
}
