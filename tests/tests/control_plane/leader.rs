//! Of two operators one works, and the other takes over.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mooring_tests::fault_proxy::{FaultProxy, Request};
use mooring_tests::operator_process::OperatorProcess;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::world::World;

/// One of several operators, with a way to the API server of its own.
struct Replica {
    process: OperatorProcess,
    proxy: FaultProxy,
}

impl Replica {
    async fn start(world: &World<'_>) -> Result<Self> {
        let (proxy, kubeconfig): (FaultProxy, PathBuf) = world.second_proxy().await?;
        let process = world.start_bare(&kubeconfig, &["--namespaces", &world.namespace, "--leader-elect", "true"])?;
        Ok(Self { process, proxy })
    }

    fn writes(&self) -> usize {
        self.proxy.since(0).iter().filter(|record| record.request.is_counted()).count()
    }

    /// Waits until it has looked at the Lease, which another one holds.
    async fn stands_by(&self) -> Result<()> {
        until("the standby to look at the Lease", Duration::from_secs(20), || async {
            let records = self.proxy.since(0);
            let mut looks = records.iter().filter(|record| record.request.resource == "leases");
            holds!(looks.any(|look| look.code == Some(200)), "it has not")
        })
        .await
    }
}

fn spec(image: &str) -> Value {
    json!({"http": {"image": image}, "auth": {"keys": [{"name": "a"}]}})
}

async fn lease(world: &World<'_>) -> Result<Value> {
    let found = world.kind("Lease").list(&kube::api::ListParams::default()).await?;
    let lease = found.into_iter().next().context("there is no Lease")?;
    Ok(lease.data["spec"].clone())
}

/// Applies a change and measures how long it takes until it has its effect.
async fn takes_effect(world: &World<'_>, image: &str, limit: Duration) -> Result<Duration> {
    let start = Instant::now();
    world.apply("weather", &spec(image)).await?;
    until(&format!("image {image} to be deployed"), limit, || async {
        let deployment = world.kind("Deployment").get("weather").await?;
        let found = deployment.data.pointer("/spec/template/spec/initContainers/0/image").cloned();
        ensure!(found == Some(image.into()), "it is {found:?}");
        Ok(())
    })
    .await?;
    Ok(start.elapsed())
}

/// Waits until one of these leads, and gives it first.
async fn leader_first(a: Replica, b: Replica) -> Result<(Replica, Replica)> {
    until("one of two to lead", Duration::from_secs(30), || async {
        ensure!(a.writes() + b.writes() > 0, "nobody wrote");
        Ok(())
    })
    .await?;
    Ok(if a.writes() > 0 { (a, b) } else { (b, a) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_works_and_the_other_takes_over() -> Result<()> {
    let world = World::new("leader").await?;
    world.apply("weather", &spec("a:1")).await?;
    let (leader, standby) = leader_first(Replica::start(&world).await?, Replica::start(&world).await?).await?;
    takes_effect(&world, "a:2", Duration::from_secs(10)).await?;
    assert_eq!(standby.writes(), 0, "the standby writes nothing");
    let duration = lease(&world).await?["leaseDurationSeconds"].as_u64().context("a Lease has a duration")?;
    let duration = Duration::from_secs(duration);
    assert!(duration <= Duration::from_secs(15), "{duration:?}");

    // Killed: its Lease has to expire.
    leader.process.kill();
    let took = takes_effect(&world, "a:3", duration + Duration::from_secs(2)).await?;
    println!("a killed leader was replaced after {:.1} s", took.as_secs_f32());
    assert!(standby.writes() > 0);

    // Stopped as by the kubelet: it gives the Lease back.
    let (leader, standby) = (standby, Replica::start(&world).await?);
    standby.stands_by().await?;
    leader.process.terminate()?;
    let took = takes_effect(&world, "a:4", Duration::from_secs(3)).await?;
    println!("a leader that was stopped was replaced after {:.1} s", took.as_secs_f32());
    let status = leader.process.wait(Duration::from_secs(5)).await?;
    assert!(status.success(), "a graceful stop is no failure: {status}");

    // Held for twice the Lease's duration: when it comes back, it writes nothing and ends.
    let (leader, standby) = (standby, Replica::start(&world).await?);
    standby.stands_by().await?;
    leader.process.pause()?;
    takes_effect(&world, "a:5", duration + Duration::from_secs(3)).await?;
    let start = Instant::now();
    until("twice the Lease's duration to pass", duration * 2, || async {
        ensure!(start.elapsed() + Duration::from_secs(1) >= duration, "it has not");
        Ok(())
    })
    .await?;
    let mark = leader.proxy.mark();
    takes_effect(&world, "a:6", Duration::from_secs(10)).await?; // something that the old leader would like to do too
    leader.process.resume()?;
    let status = leader.process.wait(Duration::from_secs(10)).await?;
    assert!(!status.success(), "losing the Lease is told by the exit status: {status}");
    let writes: Vec<String> =
        leader.proxy.since(mark).iter().map(|r| &r.request).filter(|r| r.is_write()).map(Request::target).collect();
    assert!(writes.is_empty(), "the old leader wrote {writes:?}");
    Ok(())
}
