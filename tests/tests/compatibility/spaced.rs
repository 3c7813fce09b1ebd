//! Calls that come when the server behind is just closing its idle connection: node and uvicorn keep one for 5 s. Each caller has a front door
//! of its own, so that nobody else's call keeps its connection busy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mooring_tests::front_door_process::{FrontDoorProcess, config, http};
use mooring_tests::server_process::Server;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Callers of each of the two servers.
const CALLERS: u32 = 50;
/// Calls of each caller.
const CALLS: u32 = 10;
/// The shortest pause before a call.
const SHORTEST: Duration = Duration::from_millis(4900);
/// What is added to it, less for some and more for others.
const SPREAD: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_call_after_five_silent_seconds_is_answered() -> Result<()> {
    let servers = [
        (Server::Everything, json!({"name": "echo", "arguments": {"message": "ahoy"}})),
        (Server::FastMcp, json!({"name": "add", "arguments": {"a": 2, "b": 3}})),
    ];
    let mut behind = Vec::new();
    let mut callers = JoinSet::new();
    for (server, call) in servers {
        let process = server.start().await?;
        let config = config(&http(process.port()));
        behind.push(process);
        for caller in 0..CALLERS {
            let door = FrontDoorProcess::start(&config).await?;
            let call = call.clone();
            callers.spawn(async move { calls(door, caller, call).await.with_context(|| format!("{server:?}")) });
        }
    }
    let mut answered = 0;
    for outcome in callers.join_all().await {
        answered += outcome?;
    }
    assert_eq!(answered, 1000);
    Ok(())
}

/// How many calls were answered, one after another in one session.
async fn calls(door: FrontDoorProcess, caller: u32, call: Value) -> Result<u32> {
    door.ready().await?;
    let target = door.target().begin_session().await?;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).to_string();
    let mut answered = 0;
    for round in 0..CALLS {
        // Before the first, too: the session has just begun on the same connection.
        tokio::time::sleep(SHORTEST + SPREAD * ((caller + round) % CALLERS) / (CALLERS - 1)).await;
        let answer = target.send("POST", request.clone()).await?;
        let content = &answer.message()?["result"]["content"];
        ensure!(answer.status == 200 && content.is_array(), "{}: {}", answer.status, answer.text());
        answered += 1;
    }
    Ok(answered)
}
