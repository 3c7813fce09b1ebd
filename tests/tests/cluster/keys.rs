//! Keys in running pods: revoked, rotated, restored, managed by others. No pod restarts for any of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http::StatusCode;
use mooring_tests::mcp::Target;
use mooring_tests::parts::servers;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::seconds;

/// Until a change of keys must hold. The aim is a second; a machine that is busy with builds gets more.
const SOON: Duration = Duration::from_secs(5);
/// Refusals in a row that are waited for: what was refused stays refused.
const REFUSALS: usize = 20;

fn list() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string()
}

/// Whether a key opens this way; anything but 200 and 401 is an error.
async fn opens(target: &Target, key: &str) -> Result<bool> {
    let answer = target.with_key(Some(key)).send("POST", list()).await?;
    match answer.status {
        StatusCode::OK => Ok(true),
        StatusCode::UNAUTHORIZED => Ok(false),
        other => bail!("{other}: {}", answer.text()),
    }
}

/// Waits until a key opens every pod, or none.
async fn all(pods: &[Target], key: &str, open: bool) -> Result<Duration> {
    let start = Instant::now();
    until(if open { "the key to open every pod" } else { "every pod to refuse the key" }, SOON, || async {
        for (index, pod) in pods.iter().enumerate() {
            ensure!(opens(pod, key).await? == open, "pod {index} does not");
        }
        Ok(())
    })
    .await?;
    Ok(start.elapsed())
}

/// Calls one pod without a pause until it has refused often enough; the moment of the last call that it served.
async fn last_served(pod: Target, key: String) -> Result<Instant> {
    let (mut last, mut refusals) = (Instant::now(), 0);
    let begun = Instant::now();
    while refusals < REFUSALS {
        if opens(&pod, &key).await? {
            last = Instant::now();
            ensure!(refusals == 0, "served again after {refusals} refusals");
            ensure!(begun.elapsed() < Duration::from_secs(60), "the key still works");
        } else {
            refusals += 1;
        }
    }
    Ok(last)
}

pub(crate) async fn a_revoked_key_stops_on_every_pod(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, "keyed");
    spec["replicas"] = 3.into();
    room.serve("keyed", &spec).await?;
    let target = room.entrance("keyed", KEY).await?;
    let pods = room.at_each_pod(&target, "keyed").await?;
    assert_eq!(pods.len(), 3);
    let before = room.identities("keyed").await?;
    let declared = target.key.clone().unwrap_or_default();

    let (mut slowest, mut minted) = (Duration::ZERO, Duration::ZERO);
    for round in 0..3 {
        let name = format!("laptop-{round}");
        let start = Instant::now();
        let key = room.mint("keyed", &name).await?;
        all(&pods, &key, true).await?;
        minted = minted.max(start.elapsed());

        let listed = room.mooring(&["keys", "list", "keyed"]).await?;
        ensure!(listed.contains(&name) && !listed.contains(&key), "{listed}");
        let calls: Vec<_> = pods.iter().map(|pod| tokio::spawn(last_served(pod.clone(), key.clone()))).collect();
        let start = Instant::now();
        room.mooring(&["keys", "revoke", "keyed", "--name", &name]).await?;
        for call in calls {
            slowest = slowest.max(call.await??.saturating_duration_since(start));
        }
        ensure!(opens(&target, &declared).await?, "the other keys go on");
    }
    room.world.figure("key revoked, 3 pods: the last served call after the command began", seconds(slowest));
    room.world.figure("key minted, 3 pods: every pod accepts it after the command began", seconds(minted));
    ensure!(slowest < SOON, "a revoked key was served for {slowest:?}");
    assert_eq!(room.identities("keyed").await?, before, "no pod was restarted");
    Ok(())
}

pub(crate) async fn an_open_stream_ends_with_its_key(room: Room) -> Result<()> {
    let http = json!({"image": room.image(servers::FASTMCP), "port": 8000});
    room.serve("listened", &json!({"http": http, "auth": {"keys": [{"name": KEY}]}})).await?;
    room.ready("listened").await?;
    let declared = room.service("listened", "/mcp", KEY).await?;
    let key = room.mint("listened", "laptop").await?;
    let target = declared.with_key(Some(&key));
    until("the key to be known", SOON, || async {
        // What comes of it is the server's affair: it insists on a session.
        ensure!(target.send("POST", list()).await?.status != StatusCode::UNAUTHORIZED, "401");
        Ok(())
    })
    .await?;

    let mut streams = Vec::new();
    for target in [&target, &declared] {
        let stream = target.begin_session().await?.open("GET", "").await?;
        ensure!(stream.status == StatusCode::OK, "{}", stream.status);
        streams.push(stream);
    }
    let mut others = streams.pop().context("two streams")?;
    let mut revoked = streams.pop().context("two streams")?;
    let still_open = tokio::time::timeout(Duration::from_millis(500), revoked.event()).await;
    ensure!(still_open.is_err(), "the stream is open and silent: {still_open:?}");

    let start = Instant::now();
    room.mooring(&["keys", "revoke", "listened", "--name", "laptop"]).await?;
    let ended = tokio::time::timeout(SOON, revoked.event()).await.context("the stream outlives its key")??;
    ensure!(ended.is_none(), "{ended:?}");
    room.world.figure("key revoked: its open stream ended after the command began", seconds(start.elapsed()));
    let open = tokio::time::timeout(Duration::from_millis(500), others.event()).await;
    ensure!(open.is_err(), "another key's stream goes on: {open:?}");
    Ok(())
}

pub(crate) async fn declared_keys_rotate_and_come_back(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, "keyed");
    spec["replicas"] = 2.into();
    spec["auth"]["keys"] = json!([{"name": KEY}, {"name": "second"}]);
    room.serve("keyed", &spec).await?;
    let target = room.entrance("keyed", KEY).await?;
    let pods = room.at_each_pod(&target, "keyed").await?;
    let before = room.identities("keyed").await?;
    let (first, second) = (room.key("keyed", KEY).await?, room.key("keyed", "second").await?);

    // Deleting a declared key's Secret rotates it, and no other.
    room.kubectl(["delete", "secret", &format!("keyed.key.{KEY}")]).await?;
    let rotated = room.key("keyed", KEY).await?;
    assert_ne!(rotated, first);
    all(&pods, &rotated, true).await?;
    all(&pods, &first, false).await?;
    all(&pods, &second, true).await?;

    // Deleting all records restores what is declared and ends what was made by hand.
    let by_hand = room.mint("keyed", "laptop").await?;
    all(&pods, &by_hand, true).await?;
    room.kubectl(["delete", "secret", "keyed.keys"]).await?;
    all(&pods, &by_hand, false).await?;
    all(&pods, &rotated, true).await?;
    all(&pods, &second, true).await?;
    assert_eq!(room.key("keyed", KEY).await?, rotated, "the texts stay");

    // A key that is no longer declared stops, its Secret goes.
    room.change("keyed", &json!({"auth": {"keys": [{"name": KEY}]}})).await?;
    all(&pods, &second, false).await?;
    all(&pods, &rotated, true).await?;
    until("the Secret to be gone", SOON, || async {
        let gone = room.kubectl(["get", "secret", "keyed.key.second", "--ignore-not-found"]).await?;
        ensure!(gone.trim().is_empty(), "{gone}");
        Ok(())
    })
    .await?;
    assert_eq!(room.identities("keyed").await?, before, "no pod was restarted");
    Ok(())
}

pub(crate) async fn keys_that_somebody_else_manages(room: Room) -> Result<()> {
    const UUID: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";
    let mut spec = specs::tools(&room, "keyed");
    spec["auth"]["keySecrets"] = json!([{"name": "from-vault"}]);
    room.serve("keyed", &spec).await?;
    room.told("keyed", "Accepted", ("False", "KeySecretNotFound"), &["from-vault"]).await?;
    room.told("keyed", "Ready", ("False", "KeySecretNotFound"), &["from-vault"]).await?;

    let secret = |entries: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "from-vault"}, "stringData": entries});
    room.apply(secret(json!({"robot": UUID, "weak": "hunter2"}))).await?;
    let target = room.entrance("keyed", KEY).await?;
    let pods = room.at_each_pod(&target, "keyed").await?;
    all(&pods, UUID, true).await?;
    all(&pods, "hunter2", false).await?;
    room.told("keyed", "Accepted", ("True", "KeyRefused"), &["from-vault", "weak", "32"]).await?;
    let said = room.condition("keyed", "Accepted").await?;
    ensure!(!said.message.contains("hunter2"), "{}", said.message);
    let before = room.identities("keyed").await?;

    // A change of theirs takes effect like one of ours.
    let newer = "c56a4180-65aa-42ec-a945-5fd21dec0538";
    room.kubectl(["delete", "secret", "from-vault"]).await?;
    room.apply(secret(json!({"robot": newer}))).await?;
    all(&pods, newer, true).await?;
    all(&pods, UUID, false).await?;
    room.told("keyed", "Accepted", ("True", "Accepted"), &[]).await?;
    assert_eq!(room.identities("keyed").await?, before, "no pod was restarted");
    Ok(())
}
