//! The operator is killed before and after each of its writes, and answers are lost: the end is the same.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mooring_contract::{Key, KeyRecord};
use mooring_tests::fault_proxy::{Fault, Request};
use mooring_tests::operator_process::OperatorProcess;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::world::{Children, SOON, World, entries, entry, full, patched};

const SERVER: &str = "weather";
/// The garbage collector looks for new kinds twice a minute, and the first server here is deleted soon after its kind came.
const GONE: Duration = Duration::from_secs(90);

fn changed(spec: &Value) -> Value {
    let patch = json!({
        "http": {"image": "example.com/server:2"},
        "hosts": ["other.example.com"],
        "limits": {"bodyBytes": 65536},
        "replicas": 2, // with a PodDisruptionBudget
        "auth": {"keys": [{"name": "laptop"}, {"name": "robot"}]},
    });
    patched(spec, &patch)
}

/// What the world is like in the end, and how many writes led there.
struct End {
    children: Children,
    replica_sets: usize,
    writes: usize,
}

async fn end(world: &World<'_>, mark: usize) -> Result<End> {
    world.at_rest(&[SERVER]).await?;
    let children = world.children(SERVER).await?;
    keys_fit(&children)?;
    let sets = world.kind("ReplicaSet").list(&kube::api::ListParams::default()).await?;
    let deployment = children.get(&format!("Deployment/{SERVER}"))?["metadata"]["uid"].clone();
    let own = sets
        .into_iter()
        .filter(|set| set.metadata.owner_references.iter().flatten().any(|owner| deployment == *owner.uid));
    Ok(End { children: children.without_chance(), replica_sets: own.count(), writes: world.proxy.writes(mark).len() })
}

/// Every declared key has one entry, made of its text, and there is no other.
fn keys_fit(children: &Children) -> Result<()> {
    let prefix = format!("Secret/{SERVER}.key.");
    let texts = children.0.iter().filter(|(name, _)| name.starts_with(&prefix));
    let stored = children.get(&format!("Secret/{SERVER}.keys"))?;
    let mut count = 0;
    for (name, secret) in texts {
        let key = Key::parse(std::str::from_utf8(&entry(secret, "key")?)?)?;
        let record = entry(stored, key.id()).with_context(|| format!("{name} has no entry"))?;
        ensure!(KeyRecord::parse(std::str::from_utf8(&record)?)?.key_hash == key.hash(), "{name}: another hash");
        count += 1;
    }
    ensure!(entries(stored).len() == count, "{count} keys, and the entries {:?}", entries(stored));
    Ok(())
}

/// The bytes of every Secret with random content that there is.
async fn random_bytes(world: &World<'_>) -> Result<Vec<(String, Value)>> {
    let secrets = world.kind("Secret").list(&kube::api::ListParams::default()).await?;
    let mine = secrets.into_iter().filter_map(|secret| {
        let name = secret.metadata.name.clone()?;
        let random = name.starts_with(&format!("{SERVER}.key.")) || name == format!("{SERVER}.session");
        random.then(|| (name, secret.data["data"].clone()))
    });
    Ok(mine.collect())
}

/// Applies the spec while write number `k` is broken, lets the operator recover, and checks that nothing random was made anew. Tells whether there
/// was a write `k`.
async fn broken(
    world: &World<'_>,
    operator: OperatorProcess,
    fault: &Fault,
    k: usize,
    spec: &Value,
) -> Result<(OperatorProcess, bool)> {
    world.proxy.inject(fault.clone(), k, 1, Request::is_counted);
    world.apply(SERVER, spec).await?;
    let mut operator = operator;
    until(&format!("write {k} to be broken"), SOON, || async {
        // A change has fewer writes than the reference where an earlier fault let the operator do part of it before.
        ensure!(world.proxy.fired() == 1 || world.is_settled(&[SERVER]).await.is_ok(), "not yet");
        Ok(())
    })
    .await?;
    let fired = world.proxy.clear() == 1;
    if fired && !matches!(fault, Fault::LoseAnswer) {
        let secrets = random_bytes(world).await?;
        let kept: Vec<_> = secrets.iter().filter(|(name, _)| name != &format!("{SERVER}.key.ci")).collect();
        operator = world.operator().await?;
        world.at_rest(&[SERVER]).await?;
        let after = random_bytes(world).await?;
        for secret in kept {
            ensure!(after.contains(secret), "{} was made anew", secret.0);
        }
    }
    Ok((operator, fired))
}

async fn matrix(namespace: &str, fault: Fault) -> Result<()> {
    let world = World::new(namespace).await?;
    let (first, second) = (full("weather.example.com"), changed(&full("weather.example.com")));
    let mut operator = world.operator().await?;
    let mark = world.proxy.mark();
    world.apply(SERVER, &first).await?;
    let made = end(&world, mark).await?;
    let mark = world.proxy.mark();
    world.apply(SERVER, &second).await?;
    let updated = end(&world, mark).await?;
    assert_eq!((made.replica_sets, updated.replica_sets), (1, 2));
    assert!(made.writes > 9 && updated.writes > 4, "{} writes, then {}", made.writes, updated.writes);
    remove(&world).await?;

    let mut fires = 0;
    for k in 0..made.writes {
        let mark = world.proxy.mark();
        let was_broken;
        (operator, was_broken) = broken(&world, operator, &fault, k, &first).await?;
        fires += usize::from(was_broken);
        let found = end(&world, mark).await.with_context(|| format!("{fault:?} at write {k} of the creation"))?;
        assert_eq!(found.children, made.children, "{fault:?} at write {k} of the creation");
        assert_eq!(found.replica_sets, made.replica_sets, "{fault:?} at write {k} of the creation");
        if k < updated.writes {
            let was_broken;
            (operator, was_broken) = broken(&world, operator, &fault, k, &second).await?;
            fires += usize::from(was_broken);
            let found = end(&world, mark).await.with_context(|| format!("{fault:?} at write {k} of the change"))?;
            assert_eq!(found.children, updated.children, "{fault:?} at write {k} of the change");
            assert_eq!(found.replica_sets, updated.replica_sets, "{fault:?} at write {k} of the change");
        }
        let versions = world.at_rest(&[SERVER]).await?;
        operator.kill();
        operator = world.operator().await?;
        assert_eq!(world.at_rest(&[SERVER]).await?, versions, "a restart moves nothing ({fault:?} at write {k})");
        remove(&world).await?;
    }
    // How often the status is written on the way depends on the pace of the cluster's own controllers.
    let least = made.writes + updated.writes - 3;
    assert!(fires >= least, "{fires} of {} writes were broken", made.writes + updated.writes);
    println!("{fault:?}: {fires} writes were broken");
    Ok(())
}

/// Deletes the server, and waits for the garbage collector to end its pods' owners, so that the next one begins afresh.
async fn remove(world: &World<'_>) -> Result<()> {
    world.delete("McpServer", SERVER).await?;
    until("the children to be gone", GONE, || async {
        let sets = world.kind("ReplicaSet").list(&kube::api::ListParams::default()).await?;
        let services = world.kind("Service").list(&kube::api::ListParams::default()).await?;
        let secrets = world.kind("Secret").list(&kube::api::ListParams::default()).await?;
        let all = [sets, services, secrets].into_iter().flatten();
        let left: Vec<_> = all.map(|object| (object.metadata.name, object.metadata.deletion_timestamp)).collect();
        ensure!(left.is_empty(), "there are {left:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_each_write() -> Result<()> {
    matrix("kill-before", Fault::KillBefore).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_after_each_write() -> Result<()> {
    matrix("kill-after", Fault::KillAfter).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_each_write_is_lost() -> Result<()> {
    matrix("lost", Fault::LoseAnswer).await
}
