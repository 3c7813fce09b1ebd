//! `mooring keys`, the declared keys beside it, and that no key's text is anywhere but where it belongs.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mooring_contract::Key;
use mooring_tests::operator_process::{OperatorProcess, binary};
use mooring_tests::wait::until;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::world::{SOON, World, entries, entry, text};

/// Runs `mooring keys` with the administrator's rights, as a person would.
async fn keys(world: &World<'_>, arguments: &[&str]) -> Result<Output> {
    let (verb, rest) = arguments.split_first().context("a verb")?;
    let mut command = Command::new(binary()?);
    command.args(["keys", verb, "weather", "--namespace", &world.namespace]).args(rest);
    command.env("KUBECONFIG", world.cluster.kubeconfig()).kill_on_drop(true);
    Ok(command.output().await?)
}

async fn succeeds(world: &World<'_>, arguments: &[&str]) -> Result<String> {
    let output = keys(world, arguments).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mooring keys {arguments:?}: {}: {said}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Every key in a text.
fn found(text: &str) -> Vec<Key> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !word(c)).filter_map(|word| Key::parse(word).ok()).collect()
}

fn spec(names: &[String]) -> Value {
    let keys: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    json!({"http": {"image": "a:1"}, "auth": {"keys": keys}})
}

async fn stored(world: &World<'_>, secret: &str) -> Result<Value> {
    Ok(serde_json::to_value(world.kind("Secret").get(secret).await?)?)
}

/// Looks for secrets in everything that the operator says and writes, but for the Secrets themselves.
async fn nowhere_else(world: &World<'_>, operator: &OperatorProcess, secrets: &[String]) -> Result<()> {
    let mut places = vec![("the log", operator.log_text()), ("the metrics", operator.get("/metrics").await?.1)];
    places.push(("the events", world.events("weather").await?.join("\n")));
    let server = world.server("weather").await?;
    places.push(("the McpServer", json!([server["status"], server["metadata"]]).to_string()));
    for (name, child) in world.children("weather").await?.0 {
        let mut child = child;
        if name.starts_with("Secret/") {
            child["data"] = Value::Null;
        }
        places.push(("a child", child.to_string()));
    }
    assert!(places[0].1.len() > 10_000, "trace says a lot");
    for (place, said) in &places {
        let leaked = secrets.iter().filter(|secret| said.contains(secret.as_str())).count();
        assert_eq!(leaked, 0, "secrets in {place}");
    }
    Ok(())
}

/// By an annotation of the McpServer. There are no pods to wait for here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_keys_are_rotated_on_demand() -> Result<()> {
    let world = World::new("rotation").await?;
    let _operator = world.operator().await?;
    world.apply("weather", &json!({"http": {"image": "a:1"}, "auth": {"anonymous": true}})).await?;
    world.settled(&["weather"]).await?;
    let secret = async || world.children("weather").await?.get("Secret/weather.session").cloned();
    let before = secret().await?;
    assert_eq!(entries(&before), ["current", "status-token"]);
    let ask = async |value: &str| {
        let rotate = format!("mooring.dev/rotate-session-keys={value}");
        world.cluster.kubectl(["annotate", "mcps/weather", &rotate, "--overwrite", "-n", "rotation"]).await
    };
    ask("1").await?;
    until("the keys to be rotated", SOON, || async {
        let now = secret().await?;
        ensure!(entries(&now) == ["current", "previous", "status-token"], "there are {:?}", entries(&now));
        ensure!(now["data"]["previous"] == before["data"]["current"], "the old one opens");
        ensure!(now["data"]["status-token"] == before["data"]["status-token"], "the token stays");
        Ok(())
    })
    .await?;
    world.settled(&["weather"]).await?;
    let once = secret().await?;
    ask("2").await?;
    world.condition("weather", "Accepted", "True", "SessionKeysWaiting", "were rotated not long ago").await?;
    world.settled(&["weather"]).await?;
    ensure!(secret().await? == once, "sessions of before live on");
    assert_eq!(world.forbidden()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_people_and_declared_keys_at_once_lose_nothing_and_leak_nothing() -> Result<()> {
    let world = World::new("keys").await?;
    let operator = world.operator_with(&["--log-level", "trace"]).await?;
    let mut declared = vec!["declared-0".to_owned()];
    world.apply("weather", &spec(&declared)).await?;
    world.settled(&["weather"]).await?;

    // Twenty people make keys while the spec gains and loses some.
    let names: Vec<String> = (0..20).map(|n| format!("person-{n}")).collect();
    let people = futures::future::try_join_all(
        names.iter().map(async |name| succeeds(&world, &["create", "--name", name]).await),
    );
    let edits = async {
        for n in 1..8 {
            declared.push(format!("declared-{n}"));
            if n % 3 == 0 {
                declared.remove(0);
            }
            world.apply("weather", &spec(&declared)).await?;
        }
        anyhow::Ok(())
    };
    let (printed, edited) = tokio::join!(people, edits);
    edited?;
    let printed = printed?;
    let mut texts = Vec::new();
    for output in &printed {
        let keys = found(output);
        assert_eq!(keys.len(), 1, "a key is printed once: {output}");
        texts.extend(keys);
    }
    until("every entry to be there", Duration::from_secs(20), || async {
        let secret = stored(&world, "weather.keys").await?;
        ensure!(
            entries(&secret).len() == 20 + declared.len(),
            "there are {}, of 20 people and of {declared:?}",
            entries(&secret).len()
        );
        for key in &texts {
            let record: Value = serde_json::from_slice(&entry(&secret, key.id())?)?;
            ensure!(record["keyHash"] == key.hash().to_string(), "another hash for {}", key.id());
        }
        Ok(())
    })
    .await?;
    world.settled(&["weather"]).await?;
    for name in &declared {
        let secret = stored(&world, &format!("weather.key.{name}")).await?;
        texts.push(Key::parse(std::str::from_utf8(&entry(&secret, "key")?)?)?);
    }

    // Listed by name, hint and date, never by text.
    let list = succeeds(&world, &["list"]).await?;
    for name in names.iter().chain(&declared) {
        assert!(list.contains(name.as_str()), "{name} is not in\n{list}");
    }
    assert!(texts.iter().all(|key| list.contains(key.hint())), "every hint is in\n{list}");
    assert!(found(&list).is_empty(), "{list}");

    // Revoked by name: its entry goes, and no other.
    succeeds(&world, &["revoke", "--name", "person-3"]).await?;
    world.settled(&["weather"]).await?;
    let secret = stored(&world, "weather.keys").await?;
    assert_eq!(entries(&secret).len(), 19 + declared.len());
    assert!(!entries(&secret).contains(&texts[3].id()));
    let unknown = keys(&world, &["revoke", "--name", "nobody"]).await?;
    assert!(!unknown.status.success());
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(said.contains("nobody"), "{said}");

    // With a date, and with one that is none.
    let dated = succeeds(&world, &["create", "--name", "dated", "--expires", "2031-01-01T00:00:00Z"]).await?;
    let id = found(&dated).first().context("a key")?.id().to_owned();
    let record: Value = serde_json::from_slice(&entry(&stored(&world, "weather.keys").await?, &id)?)?;
    assert_eq!(
        (&record["metadata"]["name"], &record["metadata"]["expires"]),
        (&"dated".into(), &"2031-01-01T00:00:00Z".into())
    );
    assert!(!keys(&world, &["create", "--name", "other", "--expires", "soon"]).await?.status.success());
    world.settled(&["weather"]).await?;

    // A plain key of somebody else, good and weak, whose bytes the operator reads.
    let canaries = ["canary-b7d61f5e-2f0e-4f43-9e58-000000000001", "canary-weak"];
    let plain = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vault"}, "stringData": {"good": canaries[0], "weak": canaries[1]}});
    world.put(&plain).await?;
    let mut with_secret = spec(&declared);
    with_secret["auth"]["keySecrets"] = json!([{"name": "vault"}]);
    world.apply("weather", &with_secret).await?;
    world.condition("weather", "Accepted", "True", "KeyRefused", "weak").await?;

    assert_eq!(world.forbidden()?, Vec::<String>::new(), "the chart's rights suffice");

    // Nowhere else.
    let session = String::from_utf8(entry(&stored(&world, "weather.session").await?, "status-token")?)?;
    let mut secrets: Vec<String> = texts.iter().map(|key| key.expose().to_owned()).collect();
    secrets.extend(found(&dated).iter().map(|key| key.expose().to_owned()));
    secrets.extend([session, canaries[0].to_owned(), canaries[1].to_owned()]);
    nowhere_else(&world, &operator, &secrets).await?;
    let keys_secret = stored(&world, "weather.keys").await?;
    for id in entries(&keys_secret) {
        let record = String::from_utf8(entry(&keys_secret, id)?)?;
        assert!(secrets.iter().all(|secret| !record.contains(secret.as_str())), "only a hash is at rest");
    }
    let server = world.server("weather").await?;
    let status = &server["status"]["keys"];
    let laptop = status
        .as_array()
        .and_then(|keys| keys.iter().find(|key| key["name"] == declared[0].as_str()))
        .context("a key in the status")?;
    assert_eq!(text(laptop, "hint").len(), 6, "{laptop}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_key_is_no_error_and_the_status_says_so() -> Result<()> {
    let world = World::new("expiry").await?;
    let _operator = world.operator().await?;
    let soon = jiff::Timestamp::now() + Duration::from_secs(6);
    let spec = json!({"http": {"image": "a:1"}, "auth": {"keys": [
        {"name": "past", "expires": "2001-01-01T00:00:00Z"}, {"name": "soon", "expires": soon.to_string()}, {"name": "never"}]}});
    world.apply("weather", &spec).await?;
    world.condition("weather", "Accepted", "True", "Accepted", "").await?;
    let expired = async |name: &str| {
        let server = world.server("weather").await?;
        let keys = server["status"]["keys"].as_array().cloned().unwrap_or_default();
        Ok::<_, anyhow::Error>(keys.iter().any(|key| key["name"] == name && key["expired"] == true))
    };
    world.settled(&["weather"]).await?;
    assert!(expired("past").await? && !expired("never").await?);
    until("the status to say that the key has expired", Duration::from_secs(12), || async {
        holds!(expired("soon").await?, "not yet")
    })
    .await?;
    assert!(jiff::Timestamp::now() >= soon, "not before its time");
    assert!(!expired("never").await?);
    Ok(())
}
