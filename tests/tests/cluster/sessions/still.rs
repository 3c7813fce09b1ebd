//! A front door that stands still while the session keys are rotated: what waits for it is bounded or says so, what does not
//! goes on, and so do its sessions once it goes on itself, or is started anew.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use http::StatusCode;
use mooring_plan::names;
use mooring_tests::cluster::Signal;
use mooring_tests::mcp::Refused;
use mooring_tests::sessions::{Tool, Ways};
use mooring_tests::wait::until;

use super::{SealedWith, Trio, all_answer, calls, rotate};
use crate::room::Room;
use crate::world::{PODS, seconds};

/// Longest wait of a request for a pod that stands still, beyond which it is no bound.
const BOUND: Duration = Duration::from_secs(15);

/// A call in a session whose pod stands still: how long it took, and what was said.
async fn bounded(session: &Ways) -> Result<(Duration, StatusCode)> {
    let start = Instant::now();
    let said = tokio::time::timeout(BOUND, Tool::echo().call(&session.next())).await.context("no end of waiting")?;
    let Err(error) = said else { bail!("a pod that stands still has answered") };
    let status = Refused::status(&error).with_context(|| format!("{error:#}"))?;
    ensure!([StatusCode::BAD_GATEWAY, StatusCode::NOT_FOUND].contains(&status), "{error:#}");
    Ok((start.elapsed(), status))
}

pub(crate) async fn a_pod_that_stands_still_is_waited_for(room: Room) -> Result<()> {
    let Trio { first, ways, sessions } = Trio::start(&room, "still").await?;
    let name = first.metadata.name.clone().unwrap_or_default();
    let its_own: Vec<_> = sessions.iter().step_by(3).cloned().collect();
    let others: Vec<_> =
        sessions.iter().enumerate().filter(|(index, _)| index % 3 != 0).map(|(_, session)| session.clone()).collect();
    all_answer(&sessions).await?;
    let before = SealedWith::now(&room, "still").await?;

    let running = calls(&others, &Tool::echo());
    running.more(others.len()).await?;
    // The kubelet starts a container anew whose probe had no answer for half a minute: it is quick from here.
    room.signal(&first, names::FRONT_DOOR, Signal::Pause).await?;
    let start = Instant::now();
    rotate(&room, "still").await?;
    let (waits, told) = tokio::try_join!(try_join_all(its_own.iter().map(bounded)), async {
        room.told("still", "Accepted", ("True", "SessionKeysWaiting"), &[&name]).await?;
        anyhow::Ok(start.elapsed())
    })?;
    let meanwhile = SealedWith::now(&room, "still").await?;
    running.more(others.len()).await?;
    room.signal(&first, names::FRONT_DOOR, Signal::Resume).await?;
    let (stood, went_on) = (start.elapsed(), Instant::now());
    ensure!(meanwhile == before, "a key seals that one pod does not know");
    until("its sessions to go on", PODS, || all_answer(&its_own)).await?;
    let found = went_on.elapsed();
    before.are_rotated(&room, "still").await?;
    let rotated = went_on.elapsed();
    // That the pod could not be reached may be told for some minutes yet.
    until("nothing to be waited for", PODS, || async {
        let accepted = room.condition("still", "Accepted").await?;
        ensure!(accepted.reason != "SessionKeysWaiting", "{accepted:?}");
        Ok(())
    })
    .await?;
    running.more(others.len()).await?;
    let (answered, slowest) = running.all_answered().await.context("in sessions of other pods")?;
    all_answer(&sessions).await.context("sessions of before the rotation")?;

    // Left alone it is started anew, and goes on with its sessions.
    let hangs = &room.pods("still").await?[0];
    room.signal(hangs, names::FRONT_DOOR, Signal::Pause).await?;
    let start = Instant::now();
    room.runs_anew(hangs, names::FRONT_DOOR).await?;
    let anew = start.elapsed();
    until("its sessions to go on", PODS, || all_answer(&its_own)).await?;
    try_join_all(sessions.iter().map(Ways::end)).await?;
    ways.whole(&Tool::echo()).await?;

    let longest = waits.iter().map(|(wait, _)| *wait).max().unwrap_or_default();
    let broken = waits.iter().filter(|(_, status)| *status == StatusCode::BAD_GATEWAY).count();
    room.world.figure(
        format!("a front door stood still for {}: calls to it, 502, 404, the longest", seconds(stood)),
        format!("{}, {broken}, {}, {}", waits.len(), waits.len() - broken, seconds(longest)),
    );
    room.world.figure(
        "meanwhile: calls in other sessions, none failed, the slowest; afterwards its sessions found again after",
        format!("{answered}, {}; {}", seconds(slowest), seconds(found)),
    );
    room.world.figure(
        "session keys rotated meanwhile: told whom it waits for after, done after it went on",
        format!("{}, {}", seconds(told), seconds(rotated)),
    );
    room.world.figure(
        "a front door stood still for good: started anew after, its sessions lost",
        format!("{}, 0", seconds(anew)),
    );
    Ok(())
}
