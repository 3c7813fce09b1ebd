//! Many sessions from their begin to their end, through two replicas of the ingress controller in turn; and a pod that is
//! gone at once.

use std::time::Instant;

use anyhow::{Context as _, Result};
use mooring_tests::sessions::{Tool, all_right, were_passed_on};
use mooring_tests::wait::until;

use super::{all_answer, serve, spread, sum};
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// Sessions of each of two servers, and how many of them at once.
const SESSIONS: usize = 250;
const AT_ONCE: usize = 8;
/// Sessions over the transport of 2024-11-05.
const OLDER: usize = 50;

pub(crate) async fn each_is_right_to_its_end(room: Room) -> Result<()> {
    let (everything, fastmcp) = (specs::everything(&room, "everything", 3), specs::fastmcp(&room, "fastmcp", 3));
    tokio::try_join!(serve(&room, "everything", &everything), serve(&room, "fastmcp", &fastmcp))?;
    for (server, tool) in [("everything", Tool::echo()), ("fastmcp", Tool::add())] {
        let ways = room.entrances(server, KEY).await?;
        let start = Instant::now();
        all_right(SESSIONS, AT_ONCE, || ways.whole(&tool)).await.with_context(|| server.to_owned())?;
        let took = start.elapsed();
        let passed_on = sum(&room, server, "mooring_server_forwards_total").await?;
        were_passed_on(passed_on, SESSIONS)?;
        room.world.figure(
            format!("sessions of {server} in 3 pods behind 2 Traefiks: right, requests passed on, all in"),
            format!("{SESSIONS} of {SESSIONS}, {passed_on}, {}", seconds(took)),
        );
    }
    let (ways, echo) = (room.entrances("everything", KEY).await?, Tool::echo());
    let start = Instant::now();
    all_right(OLDER, AT_ONCE, || ways.older(&echo)).await.context("over HTTP+SSE")?;
    room.world.figure(
        "sessions over HTTP+SSE, messages through other pods: right, all in",
        format!("{OLDER} of {OLDER}, {}", seconds(start.elapsed())),
    );

    // A pod that is gone without a word takes its own sessions along, and no other.
    let target = ways.next();
    let pods = room.pods("everything").await?;
    let sessions = spread(&room.at_each_pod(&target, "everything").await?, &ways, 3).await?;
    all_answer(&sessions).await?;
    let gone = pods.first().and_then(|pod| pod.metadata.name.clone()).context("no pod")?;
    room.kubectl(["delete", "pod", &gone, "--grace-period=0", "--force"]).await?;
    let (lost, kept) = sessions.split_first().context("three sessions")?;
    until("the lost session to be over", PODS, || lost.is_over()).await?;
    all_answer(kept).await?;
    ways.whole(&echo).await.context("a client that begins anew")
}
