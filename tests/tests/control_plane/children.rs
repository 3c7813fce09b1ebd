//! Children: what a new server costs, what it has, and that whatever is deleted comes back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::api::{DeleteParams, Patch, PatchParams};
use mooring_contract::{Key, KeyMetadata, KeyRecord};
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::world::{World, entries, entry, full, full_children, left_out, text};

/// How soon a deleted child must be back.
const BACK: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_costs_its_children_and_two_status_writes_and_leaves_nothing() -> Result<()> {
    if left_out("it reads the API server's audit log")? {
        return Ok(());
    }
    let world = World::new("cost").await?;
    let _operator = world.operator().await?;
    let before = (world.everything().await?, world.audited_writes()?.len());
    world.apply("weather", &full("weather.cost.example.com")).await?;
    world.at_rest(&["weather"]).await?;
    let children = world.children("weather").await?;
    assert_eq!(children.names(), full_children("weather"));
    let writes = world.audited_writes()?;
    let writes: Vec<String> = writes
        .iter()
        .skip(before.1)
        .map(|event| format!("{} {} {}", event.code(), event.verb, event.request_uri))
        .collect();
    let allowed = children.names().len() + 2;
    assert!(writes.len() <= allowed, "{} writes, {allowed} are allowed:\n{}", writes.len(), writes.join("\n"));
    assert!(writes.iter().all(|write| write.starts_with('2')), "no write fails:\n{}", writes.join("\n"));

    world.delete("McpServer", "weather").await?;
    until("everything of the server to be gone", Duration::from_secs(60), || async {
        let after = world.everything().await?;
        ensure!(after == before.0, "there is {after:?}, there was {:?}", before.0);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_deleted_child_is_back_with_the_same_content() -> Result<()> {
    let world = World::new("back").await?;
    let _operator = world.operator().await?;
    world.apply("weather", &full("weather.back.example.com")).await?;
    world.at_rest(&["weather"]).await?;
    let before = world.children("weather").await?.canonical();
    for child in full_children("weather") {
        let (kind, name) = child.split_once('/').context("a child has kind and name")?;
        if kind == "Secret" {
            continue; // the keys' own rules, below
        }
        let api = world.kind(kind);
        let uid = api.get(name).await?.metadata.uid;
        api.delete(name, &DeleteParams::background()).await?;
        until(&format!("{child} to be back"), BACK, || async {
            let found = api.get_opt(name).await?.context("it is away")?;
            ensure!(found.metadata.uid != uid, "it is being deleted");
            Ok(())
        })
        .await?;
        world.settled(&["weather"]).await?;
        assert_eq!(world.children("weather").await?.canonical(), before, "after {child} was deleted");
    }
    Ok(())
}

/// The key in a Secret of a declared key, and its principal.
async fn declared(world: &World<'_>, name: &str) -> Result<(Key, String)> {
    let secret = serde_json::to_value(world.kind("Secret").get(name).await?)?;
    let key = Key::parse(std::str::from_utf8(&entry(&secret, "key")?)?)?;
    Ok((key, text(&secret["metadata"]["annotations"], "mooring.dev/subject").to_owned()))
}

/// The records of `<name>.keys`.
async fn records(world: &World<'_>) -> Result<Vec<(String, KeyRecord)>> {
    let secret = serde_json::to_value(world.kind("Secret").get("weather.keys").await?)?;
    let record = |id: &str| Ok((id.to_owned(), KeyRecord::parse(std::str::from_utf8(&entry(&secret, id)?)?)?));
    entries(&secret).into_iter().map(record).collect()
}

/// Waits until the declared keys are the two of the spec, each with one entry that fits its text, and nothing else is there but `others`.
async fn keys_agree(world: &World<'_>, others: &[&str]) -> Result<()> {
    until("the entries to fit the keys", BACK, || async {
        let records = records(world).await?;
        for name in ["laptop", "ci"] {
            let (key, subject) = declared(world, &format!("weather.key.{name}")).await?;
            let fits = |(id, record): &&(String, KeyRecord)| id == key.id() && record.key_hash == key.hash();
            let found = records.iter().find(fits).with_context(|| format!("{name} has no entry: {records:?}"))?;
            ensure!(
                found.1.metadata.name == name && found.1.metadata.subject == subject,
                "{found:?}, wanted {subject}"
            );
        }
        ensure!(records.len() == 2 + others.len(), "there are {records:?}");
        ensure!(others.iter().all(|other| records.iter().any(|(id, _)| id == other)), "{others:?} in {records:?}");
        Ok(())
    })
    .await?;
    world.settled(&["weather"]).await
}

/// What `mooring keys create` stores.
fn handmade(seed: u8, name: &str) -> Result<(String, Value)> {
    let key = Key::from_entropy(&[seed; 40]);
    let metadata = KeyMetadata {
        name: name.to_owned(),
        subject: format!("subject-{seed}"),
        created: "2026-11-29T00:00:00Z".parse()?,
        expires: None,
    };
    let record = KeyRecord::of(&key, metadata).to_json()?;
    Ok((key.id().to_owned(), json!({"data": {key.id(): BASE64_STANDARD.encode(record)}})))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_keys_follow_their_own_rules() -> Result<()> {
    let world = World::new("keyrules").await?;
    let _operator = world.operator().await?;
    world.apply("weather", &full("weather.keyrules.example.com")).await?;
    world.settled(&["weather"]).await?;
    keys_agree(&world, &[]).await?;
    let secrets = world.kind("Secret");
    let user = PatchParams { field_manager: Some("mooring-cli".to_owned()), ..PatchParams::default() };

    // A key that somebody made by hand lives beside the declared ones.
    let (mine, patch) = handmade(7, "by-hand")?;
    secrets.patch("weather.keys", &user, &Patch::Merge(&patch)).await?;
    world.settled(&["weather"]).await?;
    keys_agree(&world, &[&mine]).await?;

    // Deleting the Secret of a declared key rotates it, for the same principal.
    let (old, subject) = declared(&world, "weather.key.laptop").await?;
    let ci = declared(&world, "weather.key.ci").await?;
    world.delete("Secret", "weather.key.laptop").await?;
    keys_agree(&world, &[&mine]).await?;
    let (new, same) = declared(&world, "weather.key.laptop").await?;
    assert_ne!(new.id(), old.id());
    assert_eq!(same, subject);
    assert_eq!(declared(&world, "weather.key.ci").await?, ci, "another key is not concerned");

    // Deleting its entry rotates it too, and the old text is gone.
    secrets.patch("weather.keys", &user, &Patch::Merge(json!({"data": {new.id(): null}}))).await?;
    until("the key to be another", BACK, || async {
        let (newest, same) = declared(&world, "weather.key.laptop").await?;
        ensure!(newest.id() != new.id(), "it is the same");
        ensure!(same == subject, "the principal is {same}, was {subject}");
        Ok(())
    })
    .await?;
    keys_agree(&world, &[&mine]).await?;

    // Deleting all entries restores the declared ones and ends all others.
    let laptop = declared(&world, "weather.key.laptop").await?;
    world.delete("Secret", "weather.keys").await?;
    keys_agree(&world, &[]).await?;
    assert_eq!(declared(&world, "weather.key.laptop").await?, laptop, "a declared key is restored, not rotated");
    assert_eq!(declared(&world, "weather.key.ci").await?, ci);

    // Deleting the session Secret makes a new one.
    let token = entry(&serde_json::to_value(secrets.get("weather.session").await?)?, "status-token")?;
    world.delete("Secret", "weather.session").await?;
    until("another session Secret", BACK, || async {
        let secret = serde_json::to_value(secrets.get("weather.session").await?)?;
        ensure!(entry(&secret, "status-token")? != token, "the token is the same");
        Ok(())
    })
    .await?;

    // A key that is no longer declared is revoked, and its text is gone.
    let mut spec = full("weather.keyrules.example.com");
    spec["auth"]["keys"] = json!([{"name": "ci"}]);
    world.apply("weather", &spec).await?;
    until("the key to be revoked", BACK, || async {
        ensure!(secrets.get_opt("weather.key.laptop").await?.is_none(), "its text is there");
        let records = records(&world).await?;
        ensure!(records.len() == 1 && records[0].0 == ci.0.id(), "the entries are {records:?}");
        Ok(())
    })
    .await
}
