//! Processes of one pod that are killed while sessions have calls in flight.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use mooring_plan::names;
use mooring_tests::cluster::Signal;
use mooring_tests::mcp::Refused;
use mooring_tests::sessions::{Tool, Ways};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{PAUSE, SESSIONS, Trio, all_answer, begin_long_call, calls};
use crate::calls::{Calls, Tally};
use crate::room::Room;

/// How many seconds a call takes that is in flight in each pod whenever a process is killed.
const LONG: usize = 120;

/// A client that begins a new session when it is told that its own is over, as the specification has it.
fn recovering(
    ways: &Ways,
    session: &Ways,
) -> impl Fn() -> futures::future::BoxFuture<'static, Result<()>> + Send + use<> {
    let (ways, session) = (ways.clone(), Arc::new(Mutex::new(session.clone())));
    move || {
        let (ways, session) = (ways.clone(), Arc::clone(&session));
        Box::pin(async move {
            let mut session = session.lock().await;
            let said = Tool::echo().call(&session.next()).await;
            if said.as_ref().is_err_and(|error| Refused::status(error) == Some(StatusCode::NOT_FOUND)) {
                *session = ways.begin().await?;
            }
            said
        })
    }
}

/// The tallies of the sessions of the first pod, and those of all others, whom nothing may have failed.
fn of_the_first(tallies: Vec<Tally>) -> Result<Vec<Tally>> {
    let (first, others): (Vec<_>, Vec<_>) = tallies.into_iter().enumerate().partition(|(index, _)| index % 3 == 0);
    for (index, other) in others {
        ensure!(other.failures.is_empty(), "session {index} is another pod's, and yet {:?}", other.words());
    }
    Ok(first.into_iter().map(|(_, tally)| tally).collect())
}

/// An error when one of the long calls is over.
fn in_flight(calls: &[JoinHandle<Result<()>>]) -> Result<()> {
    ensure!(calls.iter().all(|call| !call.is_finished()), "a call of {LONG} s is over before a process is killed");
    Ok(())
}

/// What ends with its process does so at once, and its client sees it.
async fn breaks_off(call: JoinHandle<Result<()>>) -> Result<()> {
    let ended = timeout(Duration::from_secs(1), call).await.context("a call goes on whose process was killed")?;
    ensure!(ended?.is_err(), "a call was answered whose process was killed");
    Ok(())
}

pub(crate) async fn a_killed_process_ends_only_its_own(room: Room) -> Result<()> {
    let Trio { first, ways, sessions } = Trio::start(&room, "struck").await?;
    let its_own = sessions.iter().step_by(3).count();

    // The front door: what is in flight in its pod fails, and the sessions live on.
    let running = calls(&sessions, &Tool::echo());
    let mut long: Vec<_> = sessions.iter().take(3).map(|session| begin_long_call(session, LONG)).collect();
    running.more(2 * SESSIONS).await?;
    in_flight(&long)?;
    room.signal(&first, names::FRONT_DOOR, Signal::Kill).await?;
    room.runs_anew(&first, names::FRONT_DOOR).await?;
    running.more(2 * SESSIONS).await?;
    let mut broken = 0;
    for tally in of_the_first(running.stop().await?)? {
        let failed = tally.failures.len();
        ensure!(failed <= 1 && tally.count(StatusCode::BAD_GATEWAY) == failed, "{:?}", tally.words());
        broken += failed;
    }
    breaks_off(long.remove(0)).await?;
    all_answer(&sessions).await?;
    room.world.figure(
        format!("front door killed, {SESSIONS} sessions, {its_own} of them its own: calls broken off, sessions lost"),
        format!("{} (one of {LONG} s among them), 0", broken + 1),
    );

    // The server: its own sessions are over, each client is told so once.
    long.insert(0, begin_long_call(&sessions[3], LONG));
    let running = Calls::each(PAUSE, sessions.iter().map(|session| recovering(&ways, session)));
    running.more(2 * SESSIONS).await?;
    in_flight(&long)?;
    room.signal(&first, names::SERVER, Signal::Kill).await?;
    room.runs_anew(&first, names::SERVER).await?;
    running.more(4 * SESSIONS).await?;
    let (mut over, mut away) = (0, 0);
    for tally in of_the_first(running.stop().await?)? {
        let once = tally.count(StatusCode::NOT_FOUND);
        let meanwhile = tally.count(StatusCode::BAD_GATEWAY) + tally.count(StatusCode::SERVICE_UNAVAILABLE);
        ensure!(once == 1 && once + meanwhile == tally.failures.len(), "{:?}", tally.words());
        over += once;
        away += meanwhile;
    }
    breaks_off(long.remove(0)).await?;
    for call in long {
        call.await?.context("a long call in another pod")?;
    }
    room.world.figure(
        format!(
            "server killed, {SESSIONS} sessions, {its_own} of them its own: 404, and 502 or 503 until it ran again"
        ),
        format!("{over}, {away}; meanwhile in the other pods 2 calls of {LONG} s, whole"),
    );
    Ok(())
}
