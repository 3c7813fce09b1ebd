//! A rolling update under sessions: they live on in the pods that stop, and are reached through the new ones.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use mooring_tests::sessions::{Tool, Ways};
use mooring_tests::wait::until;
use tokio::sync::Mutex;

use super::serve;
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// Sessions at the same time.
const SESSIONS: usize = 30;
/// Calls of each after the last pod was replaced.
const CALLS: usize = 5;

pub(crate) async fn a_rollout_loses_no_session(room: Room) -> Result<()> {
    serve(&room, "moving", &specs::everything(&room, "moving", 3)).await?;
    let target = room.entrance("moving", KEY).await?;
    let (ways, tool) = (Ways::new(&target, &[target.address]), Tool::echo());
    let before = room.identities("moving").await?;
    let sessions = try_join_all((0..SESSIONS).map(|_| ways.begin())).await?;
    let call = async |session: &Ways| tool.call(&session.next()).await;
    let start = Instant::now();
    room.kubectl(["rollout", "restart", "deployment/moving"]).await?;
    let answers = Mutex::new(Vec::new());
    until("new pods alone", PODS, || async {
        let answered = join_all(sessions.iter().map(call)).await;
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
        answers.extend(join_all(sessions.iter().map(call)).await);
        ways.whole(&tool).await.context("a new session")?;
    }
    let calls = answers.into_iter().collect::<Result<Vec<_>>>()?.len();
    try_join_all(sessions.iter().map(Ways::end)).await?;
    room.world.figure(
        "a rollout under sessions, none lost",
        format!("{SESSIONS} sessions, {calls} calls, {}", seconds(start.elapsed())),
    );
    Ok(())
}
