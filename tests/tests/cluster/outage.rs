//! Without the operator, and without the API server, the front doors serve; afterwards everything goes on.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mooring_tests::cluster::Signal;
use mooring_tests::installed;
use mooring_tests::wait::until;
use serde_json::json;

use crate::calls::Calls;
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// How long the API server is held: longer than an operator's lease lives.
const HELD: Duration = Duration::from_secs(25);

/// Scales the operator and waits until it is so.
async fn operators(room: &Room, count: usize) -> Result<()> {
    let cluster = &room.world.cluster;
    let namespace = installed::NAMESPACE;
    let replicas = format!("--replicas={count}");
    cluster.kubectl(["scale", "-n", namespace, "deployment/mooring", &replicas]).await?;
    until("the operator to be scaled", PODS, || async {
        let path = "jsonpath={.status.replicas}/{.status.availableReplicas}";
        let said = cluster.kubectl(["get", "-n", namespace, "deployment/mooring", "-o", path]).await?;
        let pods = cluster.kubectl(["get", "pods", "-n", namespace, "-o", "name"]).await?;
        let wanted = if count == 0 { "/".to_owned() } else { format!("{count}/{count}") };
        ensure!(said == wanted && pods.lines().count() == count, "{said} with {pods}");
        Ok(())
    })
    .await
}

/// Waits until a change of a server's spec is in force, and says how long it took.
async fn obeyed(room: &Room, server: &str, origin: &str) -> Result<Duration> {
    let start = Instant::now();
    let target = room.entrance(server, KEY).await?.with_header("origin", origin);
    until("the change to be in force", PODS, || async { target.tools().await.map(drop) }).await?;
    Ok(start.elapsed())
}

pub(crate) async fn without_the_operator_servers_serve(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, "steady");
    spec["replicas"] = 2.into();
    room.serve("steady", &spec).await?;
    let target = room.entrance("steady", KEY).await?;
    let calls = Calls::begin(&target, "health");
    calls.more(10).await?;
    operators(&room, 0).await?;
    calls.more(50).await?;

    // A pod that comes up now finds all it needs.
    let before = room.identities("steady").await?;
    room.kubectl(["delete", "pod", &before[0].name, "--wait=false"]).await?;
    until("another pod to be ready", PODS, || async {
        let path = "jsonpath={.status.readyReplicas}";
        let ready = room.kubectl(["get", "deployment", "steady", "-o", path]).await?;
        let now = room.identities("steady").await?;
        ensure!(ready == "2" && now.len() == 2 && now.iter().all(|pod| pod.uid != before[0].uid), "{now:?}");
        Ok(())
    })
    .await?;
    room.change("steady", &json!({"origins": ["https://app.example.test"]})).await?;
    calls.more(50).await?;
    operators(&room, 1).await?;
    obeyed(&room, "steady", "https://app.example.test").await?;
    let (answered, _) = calls.all_answered().await?;
    room.world.figure("operator away, then back: calls, none failed", answered.to_string());
    Ok(())
}

pub(crate) async fn without_the_api_server_servers_serve(room: Room) -> Result<()> {
    let local = room.world.cluster.own("holding the API server")?;
    room.serve("steady", &specs::tools(&room, "steady")).await?;
    let target = room.entrance("steady", KEY).await?;
    let before = room.identities("steady").await?;
    let calls = Calls::begin(&target, "health");
    calls.more(10).await?;

    local.signal("kube-apiserver", Signal::Pause).await?;
    let held = Instant::now();
    let mut outcome = Ok(());
    while outcome.is_ok() && held.elapsed() < HELD {
        outcome = calls.more(20).await;
    }
    local.signal("kube-apiserver", Signal::Resume).await?;
    outcome.context("while the API server was held")?;
    local.api_server_ready().await?;

    let (answered, _) = calls.all_answered().await?;
    room.change("steady", &json!({"origins": ["https://app.example.test"]})).await?;
    let after = obeyed(&room, "steady", "https://app.example.test").await?;
    room.world.figure(
        format!("API server held for {} s: calls, none failed; a change in force after its return", HELD.as_secs()),
        format!("{answered} calls; {}", seconds(after)),
    );
    assert_eq!(room.identities("steady").await?, before, "no pod was restarted");
    Ok(())
}
