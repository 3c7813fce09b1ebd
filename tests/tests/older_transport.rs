//! HTTP+SSE, the transport of 2024-11-05, message by message before a server that nobody here wrote. The compatibility suite has clients that
//! nobody here wrote before such servers.

use anyhow::{Context as _, Result, ensure};
use mooring_tests::clients::Transport;
use mooring_tests::front_door_process::{FrontDoorProcess, config, http_sse};
use mooring_tests::mcp::Target;
use mooring_tests::server_process::Server;
use mooring_tests::wait::until;
use serde_json::{Value, json};

/// Progress and the answer of a call travel as the client asked, in the order in which the server said them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_streams_as_it_goes() -> Result<()> {
    let server = Server::FastMcp.start_over(Transport::Sse).await?;
    let door = FrontDoorProcess::start(&config(&http_sse(server.port()))).await?;
    door.ready().await.with_context(|| server.log_text())?;
    let message = |id: Value, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let client =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let target = door.target();
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
    assert_eq!(endpoint.len(), 36);
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
    assert!(!door.log_text().contains(&endpoint) && !door.log_text().contains(&session));
    Ok(())
}
