//! Others write to the same objects: what is theirs stays, what is ours is restored.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::world::{World, full, full_children, patched};

fn somebody() -> PatchParams {
    PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_foreign_metadata_and_an_autoscalers_replicas_survive() -> Result<()> {
    let world = World::new("foreign").await?;
    let operator = world.operator().await?;
    let mut spec = full("weather.foreign.example.com");
    world.apply("weather", &spec).await?;
    world.at_rest(&["weather"]).await?;

    world.cluster.kubectl(["rollout", "restart", "deployment/weather", "-n", "foreign"]).await?;
    world.cluster.kubectl(["scale", "deployment/weather", "--replicas=4", "-n", "foreign"]).await?;
    let mark = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"example.com/note": "b"}}});
    for child in full_children("weather") {
        let (kind, name) = child.split_once('/').context("a child has kind and name")?;
        world.kind(kind).patch(name, &somebody(), &Patch::Merge(&mark)).await?;
    }
    let sidecar = json!({"spec": {"template": {"metadata": {"annotations": {"mesh/injected": "yes"}}, "spec": {"containers": [{"name": "mesh", "image": "mesh"}]}}}});
    world.kind("Deployment").patch("weather", &somebody(), &Patch::Strategic(&sidecar)).await?;

    let survives = async || {
        let children = world.children("weather").await?;
        for child in full_children("weather") {
            let metadata = &children.get(&child)?["metadata"];
            ensure!(
                metadata["labels"]["team"] == "a" && metadata["annotations"]["example.com/note"] == "b",
                "{child}: {metadata}"
            );
        }
        let deployment = children.get("Deployment/weather")?;
        ensure!(deployment["spec"]["replicas"] == 4, "replicas are {}", deployment["spec"]["replicas"]);
        let template = &deployment["spec"]["template"];
        ensure!(
            template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string(),
            "the restart is reverted: {template}"
        );
        ensure!(template["metadata"]["annotations"]["mesh/injected"] == "yes", "{template}");
        let containers = template["spec"]["containers"].as_array().context("containers")?;
        ensure!(containers.iter().any(|container| container["name"] == "mesh"), "the injected container is gone");
        Ok(())
    };
    world.settled(&["weather"]).await?;
    survives().await?;
    for origin in ["https://a.example.com", "https://b.example.com", "https://c.example.com"] {
        spec["origins"] = json!([origin]);
        world.apply("weather", &spec).await?;
        world.settled(&["weather"]).await?;
        let config = serde_json::to_value(world.kind("ConfigMap").get("weather.config").await?)?;
        assert!(config["data"]["config.json"].as_str().is_some_and(|config| config.contains(origin)), "{config}");
        survives().await?;
    }
    operator.kill();
    let _operator = world.operator().await?;
    world.settled(&["weather"]).await?;
    survives().await?;

    // Who says replicas in the spec gets them; who takes it out leaves the number to a scaler, and does not fall back to 1.
    let replicas = async || {
        Ok::<_, anyhow::Error>(world.kind("Deployment").get("weather").await?.data["spec"]["replicas"].clone())
    };
    spec["replicas"] = json!(3);
    world.apply("weather", &spec).await?;
    world.settled(&["weather"]).await?;
    assert_eq!(replicas().await?, 3);
    spec.as_object_mut().context("a spec")?.remove("replicas");
    world.apply("weather", &spec).await?;
    world.settled(&["weather"]).await?;
    assert_eq!(replicas().await?, 3, "taken out of the spec, the number stays");
    world.cluster.kubectl(["scale", "deployment/weather", "--replicas=2", "-n", "foreign"]).await?;
    world.settled(&["weather"]).await?;
    assert_eq!(replicas().await?, 2, "and is the scaler's");
    Ok(())
}

/// Who decides how many pods there are changes, and the number with it, never by way of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_pods_is_handed_over_between_spec_autoscaler_and_others() -> Result<()> {
    let world = World::new("scale").await?;
    let _operator = world.operator().await?;
    let spec = |scale: Value| {
        let base =
            json!({"http": {"image": "a:1", "resources": {"requests": {"cpu": "10m"}}}, "auth": {"anonymous": true}});
        patched(&base, &scale)
    };
    let deployment = async || Ok::<_, anyhow::Error>(world.kind("Deployment").get("weather").await?);
    let replicas = async |wanted: i64| {
        let found = deployment().await?.data["spec"]["replicas"].as_i64();
        ensure!(found == Some(wanted), "there are {found:?} replicas, wanted {wanted}");
        Ok(())
    };
    let autoscaler = async || Ok::<_, anyhow::Error>(world.kind("HorizontalPodAutoscaler").get_opt("weather").await?);
    // As the Deployment's controller tells it in Events.
    let fell = async || {
        let events = world.events("weather").await?;
        let fell = events.iter().filter(|event| event.contains("Scaled down") && event.contains("to 1"));
        Ok::<_, anyhow::Error>(fell.cloned().collect::<Vec<_>>())
    };

    world.apply("weather", &spec(json!({"replicas": 3}))).await?;
    world.at_rest(&["weather"]).await?;
    replicas(3).await?;
    world.apply("weather", &spec(json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 5}}))).await?;
    world.settled(&["weather"]).await?;
    replicas(3).await.context("to our autoscaler")?;
    assert!(autoscaler().await?.is_some());

    // Ours decides.
    world.apply("weather", &spec(json!({"autoscaling": {"minReplicas": 4, "maxReplicas": 5}}))).await?;
    until("the autoscaler to see its minimum", Duration::from_secs(60), || replicas(4)).await?;
    // To somebody else's, and by hand.
    world.apply("weather", &spec(json!({}))).await?;
    world.settled(&["weather"]).await?;
    assert!(autoscaler().await?.is_none(), "ours is gone");
    replicas(4).await.context("to somebody else")?;
    world.cluster.kubectl(["scale", "deployment/weather", "--replicas=5", "-n", "scale"]).await?;
    world.settled(&["weather"]).await?;
    replicas(5).await.context("by hand")?;
    world.apply("weather", &spec(json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 6}}))).await?;
    world.settled(&["weather"]).await?;
    replicas(5).await.context("from hand to our autoscaler")?;
    world.apply("weather", &spec(json!({"replicas": 2}))).await?;
    world.settled(&["weather"]).await?;
    replicas(2).await.context("back to the spec")?;
    assert_eq!(fell().await?, Vec::<String>::new());

    // No pods at all are none to scale by: an autoscaler begins with one.
    world.apply("weather", &spec(json!({"replicas": 0}))).await?;
    world.settled(&["weather"]).await?;
    world.apply("weather", &spec(json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 6}}))).await?;
    until("the autoscaler to begin", Duration::from_secs(60), || replicas(2)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_owned_field_is_restored() -> Result<()> {
    let world = World::new("drift").await?;
    let _operator = world.operator().await?;
    world.apply("weather", &full("weather.drift.example.com")).await?;
    world.at_rest(&["weather"]).await?;
    let before = world.children("weather").await?.canonical();
    let drifts: [(&str, &str, Value); 8] = [
        ("Service", "weather", json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 1}]}})),
        ("Service", "weather", json!({"metadata": {"labels": {"app.kubernetes.io/instance": "other"}}})),
        ("Service", "weather", json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})),
        ("Deployment", "weather", json!({"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}})),
        ("NetworkPolicy", "weather", json!({"spec": {"ingress": [{}]}})),
        ("Ingress", "weather", json!({"spec": {"rules": [{"host": "evil.example.com"}]}})),
        ("ConfigMap", "weather.config", json!({"data": {"config.json": "{}"}})),
        ("ConfigMap", "weather.config", json!({"data": {"more.json": "{}"}})),
    ];
    for (kind, name, drift) in drifts {
        world.kind(kind).patch(name, &somebody(), &Patch::Merge(&drift)).await?;
        let foreign = drift["data"].get("more.json").is_some();
        until(&format!("{kind} {name} to be restored after {drift}"), Duration::from_secs(10), || async {
            let mut now = world.children("weather").await?.canonical();
            if foreign
                && let Some(data) =
                    now.0.get_mut("ConfigMap/weather.config").and_then(|config| config["data"].as_object_mut())
            {
                data.remove("more.json"); // somebody else's entry is theirs
            }
            for (child, wanted) in &before.0 {
                let found = now.0.get(child);
                ensure!(found == Some(wanted), "{child} is {found:?}");
            }
            Ok(())
        })
        .await?;
    }
    world.settled(&["weather"]).await
}
