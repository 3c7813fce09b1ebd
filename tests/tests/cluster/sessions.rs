//! Sessions of a server that keeps them in its memory, in three pods behind an ingress controller that knows nothing of
//! sessions.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use http::StatusCode;
use mooring_tests::mcp::Target;
use mooring_tests::wait::until;
use serde_json::json;
use tokio::sync::Mutex;

use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// Sessions at the same time.
const SESSIONS: usize = 30;
const CALLS: usize = 5;

async fn echo(session: &Target, message: &str) -> Result<()> {
    let said = session.call("echo", json!({"message": message})).await?;
    ensure!(said == format!("Echo: {message}"), "{said}");
    Ok(())
}

/// Whether a session is over, as clients are told.
async fn is_over(session: &Target) -> Result<bool> {
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
    let answer = session.send("POST", ping).await?;
    let over = answer.status == StatusCode::NOT_FOUND;
    ensure!(over || answer.status == StatusCode::OK, "{}: {}", answer.status, answer.text());
    Ok(over)
}

/// From its begin to its end, and what comes after it.
async fn whole(target: &Target) -> Result<()> {
    let session = target.begin_session().await?;
    for number in 0..CALLS {
        echo(&session, &number.to_string()).await?;
    }
    let stream = session.open("GET", "").await?;
    ensure!(stream.status == StatusCode::OK, "GET: {}", stream.status);
    drop(stream);
    let end = session.send("DELETE", "").await?;
    ensure!(end.status.is_success(), "DELETE: {} {}", end.status, end.text());
    ensure!(is_over(&session).await?, "it goes on after its end");
    Ok(())
}

/// How many requests the pods passed on to each other.
async fn passed_on(room: &Room, server: &str) -> Result<f64> {
    let pods = room.pods(server).await?;
    let each = pods.iter().map(|pod| room.metric(pod, "mooring_server_forwards_total"));
    Ok(try_join_all(each).await?.iter().sum())
}

pub(crate) async fn a_session_stays_on_its_pod_until_that_is_gone(room: Room) -> Result<()> {
    room.serve("sticky", &specs::everything(&room, "sticky", 3)).await?;
    let target = room.entrance("sticky", KEY).await?;
    let ended = join_all((0..SESSIONS).map(|_| whole(&target))).await;
    let failures: Vec<_> =
        ended.iter().filter_map(|ended| ended.as_ref().err()).map(|error| format!("{error:#}")).collect();
    ensure!(failures.is_empty(), "{} of {SESSIONS} sessions failed: {failures:?}", failures.len());
    let passed_on = passed_on(&room, "sticky").await?;
    ensure!(passed_on > 1.0, "nothing was passed on: each request met its pod by chance?");
    room.world.figure(
        "sessions of server-everything in 3 pods behind Traefik: right, requests passed on",
        format!("{SESSIONS} of {SESSIONS}, {passed_on}"),
    );

    // Sessions that began at each pod, reached through the ingress controller like all others.
    let pods = room.pods("sticky").await?;
    let mut sessions = Vec::new();
    for at_pod in room.at_each_pod(&target, "sticky").await? {
        let session = at_pod.begin_session().await?;
        sessions.push(Target { address: target.address, ..session });
    }
    try_join_all(sessions.iter().map(|session| echo(session, "before"))).await?;
    let gone = pods.first().and_then(|pod| pod.metadata.name.clone()).context("no pod")?;
    room.kubectl(["delete", "pod", &gone, "--grace-period=0", "--force"]).await?;
    let (lost, kept) = sessions.split_first().context("three sessions")?;
    until("the lost session to be over", PODS, || async {
        ensure!(is_over(lost).await?, "it goes on");
        Ok(())
    })
    .await?;
    try_join_all(kept.iter().map(|session| echo(session, "after"))).await?;
    whole(&target).await.context("a client that begins anew")
}

pub(crate) async fn a_rollout_loses_no_session(room: Room) -> Result<()> {
    room.serve("moving", &specs::everything(&room, "moving", 3)).await?;
    let target = room.entrance("moving", KEY).await?;
    let before = room.identities("moving").await?;
    let sessions = try_join_all((0..SESSIONS).map(|_| target.begin_session())).await?;
    let start = Instant::now();
    room.kubectl(["rollout", "restart", "deployment/moving"]).await?;
    let answers = Mutex::new(Vec::new());
    until("new pods alone", PODS, || async {
        let answered = join_all(sessions.iter().map(|session| echo(session, "meanwhile"))).await;
        answers.lock().await.extend(answered);
        let condition = room.condition("moving", "Ready").await?;
        ensure!(condition.status == "True", "not Ready during a rollout: {condition:?}");
        let now = room.identities("moving").await?;
        ensure!(now.len() == 3 && now.iter().all(|pod| !before.iter().any(|old| old.name == pod.name)), "{now:?}");
        Ok(())
    })
    .await?;
    // The pods of the sessions are on their way out, and serve them all the same.
    let mut answers = answers.into_inner();
    for _ in 0..CALLS {
        answers.extend(join_all(sessions.iter().map(|session| echo(session, "after"))).await);
        whole(&target).await.context("a new session")?;
    }
    let calls = answers.into_iter().collect::<Result<Vec<_>>>()?.len();
    for session in &sessions {
        let end = session.send("DELETE", "").await?;
        ensure!(end.status.is_success(), "DELETE: {} {}", end.status, end.text());
    }
    room.world.figure(
        "a rollout under sessions, none lost",
        format!("{SESSIONS} sessions, {calls} calls, {}", seconds(start.elapsed())),
    );
    Ok(())
}
