//! A new front-door image: kept, or moved to a few servers at a time.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use mooring_tests::wait::until;
use serde_json::json;

use crate::world::{World, left_out};

const OLD: &str = "localhost/mooring-server:1";
const NEW: &str = "localhost/mooring-server:2";

async fn images(world: &World<'_>) -> Result<Vec<String>> {
    let found = world.kind("Deployment").list(&ListParams::default()).await?;
    let image = |deployment: &kube::core::DynamicObject| {
        let containers = deployment.data.pointer("/spec/template/spec/containers")?.as_array()?;
        containers.iter().find(|container| container["name"] == "front-door")?["image"].as_str().map(str::to_owned)
    };
    found.iter().map(|deployment| image(deployment).context("a front door")).collect()
}

async fn count(world: &World<'_>, image: &str) -> Result<usize> {
    Ok(images(world).await?.iter().filter(|found| *found == image).count())
}

/// Plays the kubelet: says of every Deployment with this image that its pods run.
async fn roll(world: &World<'_>, image: &str) -> Result<()> {
    let pods = world.kind("Pod");
    for pod in pods.list(&ListParams::default()).await? {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let containers = pod.data["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let mine = containers.iter().any(|container| container["image"] == image);
        let ready =
            pod.data["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == "Ready"));
        if mine && !ready {
            let now = jiff::Timestamp::now().to_string();
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]}});
            pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        }
    }
    Ok(())
}

/// How many Deployments are on their way to the new image.
async fn moving(world: &World<'_>) -> Result<usize> {
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), &world.namespace);
    let moves = |deployment: &Deployment| {
        let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let new =
            spec.is_some_and(|spec| spec.containers.iter().any(|container| container.image.as_deref() == Some(NEW)));
        let status = deployment.status.clone().unwrap_or_default();
        let rolled = status.observed_generation == deployment.metadata.generation
            && [status.updated_replicas, status.available_replicas, status.replicas] == [Some(1); 3];
        new && !rolled
    };
    Ok(deployments.list(&ListParams::default()).await?.iter().filter(|deployment| moves(deployment)).count())
}

async fn make(world: &World<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        world.apply(name, &json!({"http": {"image": "a:1"}, "replicas": 1})).await?;
    }
    world.at_rest(names).await?;
    until("all to be rolled", Duration::from_secs(30), || async {
        roll(world, OLD).await?;
        for name in names {
            world
                .server(name)
                .await
                .and_then(|server| holds!(server["status"]["readyReplicas"] == 1, "{name}: {}", server["status"]))?;
        }
        Ok(())
    })
    .await?;
    world.at_rest(names).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manual_keeps_the_image_until_the_spec_changes() -> Result<()> {
    if left_out("it plays the kubelet, and here is one")? {
        return Ok(());
    }
    let world = World::new("manual").await?;
    let names = ["a", "b", "c"];
    let operator = world.operator_with(&["--front-door-image", OLD, "--upgrade-policy", "Manual"]).await?;
    make(&world, &names).await?;
    let before = world.at_rest(&names).await?;
    operator.kill();
    let _operator = world.operator_with(&["--front-door-image", NEW, "--upgrade-policy", "Manual"]).await?;
    assert_eq!(world.at_rest(&names).await?, before, "an upgrade of the operator moves nothing");
    assert_eq!(count(&world, OLD).await?, 3);
    world.apply("b", &json!({"http": {"image": "a:1"}, "replicas": 1, "origins": ["https://a.example.com"]})).await?;
    world.settled(&names).await?;
    assert_eq!((count(&world, OLD).await?, count(&world, NEW).await?), (2, 1), "a change of the spec takes the newest");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_moves_a_few_at_a_time() -> Result<()> {
    if left_out("it plays the kubelet, and here is one")? {
        return Ok(());
    }
    let world = World::new("auto").await?;
    let names = ["a", "b", "c", "d", "e"];
    let operator = world.operator_with(&["--front-door-image", OLD]).await?;
    make(&world, &names).await?;
    operator.kill();
    let flags = ["--front-door-image", NEW, "--upgrade-policy", "Auto", "--upgrade-parallelism", "2"];
    let operator = world.operator_with(&flags).await?;
    until("two to move", Duration::from_secs(20), || async { holds!(count(&world, NEW).await? == 2, "not yet") })
        .await?;
    world.at_rest(&names).await?;
    assert_eq!(count(&world, NEW).await?, 2, "no more until these have rolled");
    operator.kill();
    let _operator = world.operator_with(&flags).await?;
    world.at_rest(&names).await?;
    assert_eq!(count(&world, NEW).await?, 2, "a restart of the operator gives no further turns");
    let done = until("all to have moved", Duration::from_secs(60), || async {
        let moving = moving(&world).await?;
        if moving > 2 {
            return Ok(Err(anyhow!("{moving} move at once")));
        }
        roll(&world, NEW).await?;
        ensure!(count(&world, NEW).await? == 5, "not yet");
        Ok(Ok(()))
    });
    done.await?
}
