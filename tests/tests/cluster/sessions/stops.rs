//! Pods that are told to stop while sessions have calls in flight: one that somebody deletes, then all in a rolling update.
//! Their sessions live on in them, and are reached through the new ones. Before that the session keys are rotated, so that
//! newer pods open what an older key sealed.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::ResourceExt;
use mooring_tests::sessions::Ways;
use mooring_tests::wait::until;
use serde_json::json;

use super::{NEWCOMERS, SESSIONS, SealedWith, begin_long_call, calls, newcomers, rotate, serve, slow, spread};
use crate::history;
use crate::room::{Room, is_ready};
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// How many seconds a call takes that is in flight in each pod, and goes on long after all pods were told to stop.
const LONG: usize = 120;
/// Sessions of each newcomer after the last pod was told to stop: longer than that pod still begins any.
const FURTHER: usize = 10;

async fn names(room: &Room) -> Result<Vec<String>> {
    Ok(room.pods("moving").await?.iter().map(ResourceExt::name_any).collect())
}

/// Waits until three pods serve, none of them one of these.
async fn only_others_serve(room: &Room, old: &[String]) -> Result<()> {
    until("three new pods to serve", PODS, || async {
        let pods = room.pods("moving").await?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let left = pods.iter().filter(|pod| old.contains(&pod.name_any())).count();
        ensure!((pods.len(), ready, left) == (3, 3, 0), "{ready} of {} are ready, {left} are old", pods.len());
        Ok(())
    })
    .await
}

pub(crate) async fn pods_that_stop_lose_no_call(room: Room) -> Result<()> {
    let mut spec = specs::everything(&room, "moving", 3);
    spec["limits"] = json!({"callTimeout": "3m"});
    spec["sessions"] = json!({"drain": "5m"});
    serve(&room, "moving", &spec).await?;
    let ways = room.entrances("moving", KEY).await?;
    let sessions = spread(&room.at_each_pod(&ways.next(), "moving").await?, &ways, SESSIONS).await?;
    let told = history::told(&room, "moving").await?;

    let running = calls(&sessions, &slow());
    let newcomers = newcomers(&ways);
    running.more(SESSIONS).await?;
    let (keys, start) = (SealedWith::now(&room, "moving").await?, Instant::now());
    rotate(&room, "moving").await?;
    keys.are_rotated(&room, "moving").await?;
    let rotated = start.elapsed();
    running.more(SESSIONS).await?;

    // The sessions began at each pod in turn: one of these calls is in flight in each.
    let long: Vec<_> = sessions.iter().take(3).map(|session| begin_long_call(session, LONG)).collect();
    running.more(SESSIONS).await?;
    let (first, start) = (names(&room).await?, Instant::now());
    room.kubectl(["delete", "pod", &first[0], "--wait=false"]).await?;
    only_others_serve(&room, &first[..1]).await?;
    let replaced = start.elapsed();
    let (second, start) = (names(&room).await?, Instant::now());
    room.kubectl(["rollout", "restart", "deployment/moving"]).await?;
    only_others_serve(&room, &[first, second].concat()).await?;
    let rolled_out = start.elapsed();

    // The pods of all these sessions are on their way out, and serve them all the same.
    newcomers.more(FURTHER * NEWCOMERS).await?;
    let (begun, _) = newcomers.all_answered().await.context("sessions that began meanwhile")?;
    for call in long {
        call.await?.context("a call that takes minutes")?;
    }
    let (answered, slowest) = running.all_answered().await.context("in sessions that were there")?;
    try_join_all(sessions.iter().map(Ways::end)).await?;
    let told = told.end().await?;
    ensure!(told == [[true, true]], "available and ready was told so: {told:?}");
    room.world.figure(
        format!("{SESSIONS} sessions and {NEWCOMERS} newcomers, pods told to stop: calls, the slowest; sessions begun meanwhile; none failed"),
        format!("{answered} of 3 s and 3 of {LONG} s, {}; {begun}", seconds(slowest)),
    );
    room.world.figure(
        "meanwhile: session keys rotated, a pod deleted and replaced, all pods rolled out",
        format!("{}, {}, {}", seconds(rotated), seconds(replaced), seconds(rolled_out)),
    );
    Ok(())
}
