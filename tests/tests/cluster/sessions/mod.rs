//! Sessions of servers that keep them in their memory, in three pods behind ingress controllers that know nothing of
//! sessions, whatever happens to the pods.

mod kills;
mod named;
mod right;
mod still;
mod stops;

pub(crate) use kills::a_killed_process_ends_only_its_own;
pub(crate) use named::what_clients_say_of_sessions_is_checked;
pub(crate) use right::each_is_right_to_its_end;
pub(crate) use still::a_pod_that_stands_still_is_waited_for;
pub(crate) use stops::pods_that_stop_lose_no_call;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use mooring_plan::names;
use mooring_tests::mcp::{Target, text_of};
use mooring_tests::sessions::{Tool, Ways};
use mooring_tests::wait::until;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::calls::Calls;
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::PODS;

/// Sessions at the same time, under which something happens.
pub(crate) const SESSIONS: usize = 50;
/// Clients that do nothing but begin sessions, use them and end them.
pub(crate) const NEWCOMERS: usize = 2;
/// Between two calls of a session, and two sessions of a newcomer.
const PAUSE: Duration = Duration::from_secs(1);

/// Applies a server of three pods, and waits until each of them is ready.
async fn serve(room: &Room, name: &str, spec: &Value) -> Result<()> {
    room.serve(name, spec).await?;
    room.ready(name).await?;
    room.rolled_out(name).await
}

/// Sessions that began at each of these pods in turn, and are reached by other ways.
pub(crate) async fn spread(pods: &[Target], ways: &Ways, count: usize) -> Result<Vec<Ways>> {
    let begun = pods.iter().cycle().take(count).map(Target::begin_session);
    Ok(try_join_all(begun).await?.into_iter().map(|session| ways.of(session)).collect())
}

/// A server of three pods, to the first of which something will happen, and sessions of each in turn. They are reached by
/// the other two, as through an ingress controller that knows already: what it does before is its own affair.
struct Trio {
    first: Pod,
    ways: Ways,
    sessions: Vec<Ways>,
}

impl Trio {
    async fn start(room: &Room, name: &str) -> Result<Self> {
        let mut spec = specs::everything(room, name, 3);
        spec["limits"] = json!({"callTimeout": "3m"});
        serve(room, name, &spec).await?;
        let (target, pods) = (room.entrance(name, KEY).await?, room.pods(name).await?);
        let at_each = room.at_each_pod(&target, name).await?;
        let ([first, ..], [_, others @ ..]) = (&pods[..], &at_each[..]) else { bail!("no pods") };
        let others: Vec<_> = others.iter().map(|pod| pod.address).collect();
        let ways = Ways::new(&target, &others);
        let sessions = spread(&at_each, &ways, SESSIONS).await?;
        Ok(Self { first: first.clone(), ways, sessions })
    }
}

/// Calls of a tool in each session.
pub(crate) fn calls(sessions: &[Ways], tool: &Tool) -> Calls {
    let caller = |session: &Ways| {
        let (session, tool) = (session.clone(), tool.clone());
        move || {
            let (session, tool) = (session.clone(), tool.clone());
            async move { tool.call(&session.next()).await }
        }
    };
    Calls::each(PAUSE, sessions.iter().map(caller).collect::<Vec<_>>())
}

/// A call that takes a while: nearly always one is in flight in each session.
pub(crate) fn slow() -> Tool {
    let says = "Long running operation completed. Duration: 3 seconds, Steps: 1.";
    Tool { name: "trigger-long-running-operation", arguments: json!({"duration": 3, "steps": 1}), says }
}

/// Whole sessions of newcomers, one after the other.
pub(crate) fn newcomers(ways: &Ways) -> Calls {
    let newcomer = |_| {
        let ways = ways.clone();
        move || {
            let ways = ways.clone();
            async move { ways.whole(&Tool::echo()).await }
        }
    };
    Calls::each(PAUSE, (0..NEWCOMERS).map(newcomer))
}

/// One call in each session.
async fn all_answer(sessions: &[Ways]) -> Result<()> {
    let tool = Tool::echo();
    try_join_all(sessions.iter().map(|session| async { tool.call(&session.next()).await })).await.map(drop)
}

/// Begins a call that runs for so many seconds, and tells of its progress all the while.
pub(crate) fn begin_long_call(session: &Ways, seconds: usize) -> JoinHandle<Result<()>> {
    tokio::spawn(long_call(session.next(), seconds))
}

async fn long_call(session: Target, seconds: usize) -> Result<()> {
    let arguments = json!({"duration": seconds, "steps": seconds});
    let params =
        json!({"name": "trigger-long-running-operation", "arguments": arguments, "_meta": {"progressToken": "long"}});
    // An id of its own: shorter calls run in the session meanwhile.
    let message = json!({"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": params});
    let mut stream = session.open("POST", message.to_string()).await?;
    ensure!(stream.status == StatusCode::OK, "{}", stream.status);
    let mut steps = 0;
    while let Some(event) = stream.event().await? {
        if event["id"] == "long" {
            let said = text_of(&event["result"])?;
            ensure!(said.contains("completed") && steps == seconds, "{said} after {steps} steps");
            return Ok(());
        }
        steps += 1;
        ensure!(event["params"]["progress"] == steps, "step {steps}: {event}");
    }
    bail!("its answer broke off after {steps} of {seconds} steps")
}

/// The sum of a metric over the pods of a server.
async fn sum(room: &Room, server: &str, metric: &str) -> Result<f64> {
    let pods = room.pods(server).await?;
    Ok(try_join_all(pods.iter().map(|pod| room.metric(pod, metric))).await?.iter().sum())
}

/// The key that seals the sessions of a server, as its Secret holds it.
#[derive(PartialEq, Eq)]
struct SealedWith(String);

impl SealedWith {
    async fn now(room: &Room, server: &str) -> Result<Self> {
        Self::slot(room, server, "current").await
    }

    async fn slot(room: &Room, server: &str, slot: &str) -> Result<Self> {
        let path = format!("jsonpath={{.data.{slot}}}");
        Ok(Self(room.kubectl(["get", "secret", &names::session(server), "-o", &path]).await?))
    }

    /// Waits until another seals, and this one opens what it sealed.
    async fn are_rotated(&self, room: &Room, server: &str) -> Result<()> {
        until("the session keys to be rotated", PODS, || async {
            ensure!(Self::now(room, server).await? != *self, "not yet");
            ensure!(Self::slot(room, server, "previous").await? == *self, "what it sealed cannot be opened any more");
            Ok(())
        })
        .await
    }
}

/// Asks for new session keys.
async fn rotate(room: &Room, server: &str) -> Result<()> {
    room.kubectl(["annotate", "mcpserver", server, &format!("{}=now", names::ANNOTATION_ROTATE)]).await.map(drop)
}
