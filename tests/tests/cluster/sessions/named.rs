//! What clients say of sessions, through an ingress controller and through another pod: a second stream, an id of the
//! server's own, two ids in one request, and whose the request is.

use anyhow::{Context as _, Result, bail, ensure};
use http::StatusCode;
use mooring_tests::mcp::Target;
use mooring_tests::sessions::{Tool, Ways};
use mooring_tests::wait::until;
use serde_json::json;

use super::serve;
use crate::refusals::seen;
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, text};

/// Whom a client claims to speak for, as one pod tells another.
const CLAIM: (&str, &str) = ("mooring-client", "10.6.6.6");

pub(crate) async fn what_clients_say_of_sessions_is_checked(room: Room) -> Result<()> {
    room.apply(specs::recorder_program()).await?;
    let (everything, mut recorder) =
        (specs::everything(&room, "everything", 2), specs::recorder(&room, "recorder", "recorded"));
    recorder["replicas"] = 2.into();
    recorder["http"]["args"] = json!(["/program/recorder.mjs", "recorded", "sessions"]);
    tokio::try_join!(serve(&room, "everything", &everything), serve(&room, "recorder", &recorder))?;
    streams_and_ids(&room).await?;
    claims(&room).await
}

/// A session of the first pod: the way there, through the other pod, and through the ingress controllers.
async fn session(room: &Room, server: &str) -> Result<(Target, Target, Ways)> {
    let ways = room.entrances(server, KEY).await?;
    let [owner, other] = &room.at_each_pod(&ways.next(), server).await?[..] else { bail!("two pods") };
    let session = owner.begin_session().await?;
    let through = Target { address: other.address, ..session.clone() };
    Ok((session.clone(), through, ways.of(session)))
}

async fn streams_and_ids(room: &Room) -> Result<()> {
    let (session, through, ways) = session(room, "everything").await?;
    let first = through.open("GET", "").await?;
    ensure!(first.status == StatusCode::OK, "GET: {}", first.status);
    // The server says so, which allows one stream of its own for each session.
    for way in [&session, &through, &ways.next(), &ways.next()] {
        way.send("GET", "").await?.expect(StatusCode::CONFLICT).context("a second stream")?;
        Tool::echo().call(way).await.context("a call beside it")?;
    }
    drop(first);
    until("another stream to be possible", PODS, || async {
        let again = ways.next().open("GET", "").await?;
        ensure!(again.status == StatusCode::OK, "GET: {}", again.status);
        Ok(())
    })
    .await?;

    // A session that the server has, and that began without a front door.
    let pods = room.pods("everything").await?;
    let address = room.pod_port(pods.first().context("no pod")?, 3001).await?;
    let server = Target { address, host: "localhost".into(), path: "/mcp".into(), key: None, headers: Vec::new() };
    let raw = server.begin_session().await?;
    let named = |way: Target| Target { headers: raw.headers.clone(), ..way };
    for way in [&session, &through, &ways.next(), &ways.next()].map(|way| named(way.clone())) {
        all_are_told(&way, StatusCode::NOT_FOUND, "-32001").await.context("the server's own id")?;
    }
    Tool::echo().call(&raw).await.context("at the server itself")?;

    let another = session.initialize().await?;
    let (name, id) = another.headers.iter().find(|(name, _)| name == "mcp-session-id").context("no id")?;
    for way in [&session, &through, &ways.next(), &ways.next()] {
        all_are_told(&way.with_header(name, id), StatusCode::BAD_REQUEST, name).await.context("two ids")?;
        Tool::echo().call(way).await?;
    }
    ways.end().await
}

/// One request of each kind: all are told the same.
async fn all_are_told(way: &Target, status: StatusCode, word: &str) -> Result<()> {
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
    for (method, body) in [("POST", ping.as_str()), ("GET", ""), ("DELETE", "")] {
        let answer = way.send(method, body.to_owned()).await?.expect(status).context(method)?;
        ensure!(answer.text().to_lowercase().contains(word), "{method}: {status} with {}", answer.text());
    }
    Ok(())
}

async fn claims(room: &Room) -> Result<()> {
    let (session, through, ways) = session(room, "recorder").await?;
    let (name, value) = CLAIM;
    for way in [&session, &through, &ways.next(), &ways.next()] {
        way.with_header(name, value).call("record", json!({})).await?;
    }
    let pods = room.pods("recorder").await?;
    let seen = seen(room, pods.first().context("no pod")?).await?;
    let [here, passed_on, ..] = &seen[..] else { bail!("{seen:?}") };
    ensure!(seen.len() == 4, "its pod was sent {seen:?}");
    let client = |request| text(request, "/headers/x-forwarded-for");
    ensure!(client(here)? == client(passed_on)?, "the client of one is another's: {seen:?}");
    for request in &seen {
        ensure!(!request.to_string().contains(value) && request["headers"].get(name).is_none(), "{request}");
        ensure!(request["headers"]["mcp-session-id"] == here["headers"]["mcp-session-id"], "{seen:?}");
    }
    Ok(())
}
