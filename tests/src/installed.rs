//! Mooring in a cluster, as a platform team would have it: the chart installed by Helm, resources applied by kubectl.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};

use crate::product::{self, Products};
use crate::wait::until;
use crate::{Cluster, progress};

/// The namespace of the operator.
pub const NAMESPACE: &str = "mooring-system";

/// Installs the chart with the images of this workspace and waits until the operator is available.
pub async fn install(cluster: &Cluster, products: &Products, values: &[&str]) -> Result<()> {
    let chart = product::workspace().join("charts/mooring");
    let mut arguments: Vec<String> = [
        "upgrade",
        "--install",
        "mooring",
        &chart.display().to_string(),
        "--namespace",
        NAMESPACE,
        "--create-namespace",
    ]
    .map(str::to_owned)
    .to_vec();
    let (repository, tag) = split(products.operator.name);
    let (door_repository, door_tag) = split(products.front_door.name);
    let images = [
        format!("image.repository={repository}"),
        format!("image.tag={tag}"),
        format!("frontDoor.image.repository={door_repository}"),
        format!("frontDoor.image.tag={door_tag}"),
    ];
    for value in images.into_iter().chain(values.iter().map(|value| (*value).to_owned())) {
        arguments.extend(["--set".to_owned(), value]);
    }
    cluster.helm(arguments).await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client().await?, NAMESPACE);
    until("the operator to be available", Duration::from_secs(90), || async {
        let status = deployments.get("mooring").await?.status.context("no status yet")?;
        ensure!(status.available_replicas.is_some_and(|count| count > 0), "no available replica");
        Ok(())
    })
    .await
}

/// Makes a namespace in which the *restricted* Pod Security profile is enforced.
pub async fn restricted_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.kubectl(["create", "namespace", name]).await?;
    cluster.kubectl(["label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted"]).await?;
    Ok(())
}

/// The McpServers of a namespace.
pub async fn servers(cluster: &Cluster, namespace: &str) -> Result<Api<DynamicObject>> {
    let kind = GroupVersionKind::gvk("mooring.dev", "v1alpha1", "McpServer");
    let resource = ApiResource::from_gvk_with_plural(&kind, "mcpservers");
    Ok(Api::namespaced_with(cluster.client().await?, namespace, &resource))
}

/// Waits until an McpServer is Ready, or fails with what its condition says. Returns its URL.
pub async fn ready(cluster: &Cluster, namespace: &str, name: &str, limit: Duration) -> Result<String> {
    let servers = servers(cluster, namespace).await?;
    until(&format!("McpServer {name} to be Ready"), limit, || async {
        let server = servers.get(name).await?;
        let generation = server.metadata.generation;
        let status = server.data.get("status").context("it has no status yet")?;
        let conditions = status.get("conditions").and_then(serde_json::Value::as_array).context("no conditions yet")?;
        let field = |condition: &serde_json::Value, name: &str| {
            condition.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
        };
        let ready = conditions.iter().find(|condition| field(condition, "type") == "Ready").context("no Ready yet")?;
        ensure!(field(ready, "status") == "True", "{}: {}", field(ready, "reason"), field(ready, "message"));
        let observed = status.get("observedGeneration").and_then(serde_json::Value::as_i64);
        ensure!(observed == generation, "the status is of an older spec");
        Ok(status.get("url").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned())
    })
    .await
}

/// The text of a declared key, from the Secret that the operator made for it.
pub async fn key(cluster: &Cluster, namespace: &str, server: &str, key: &str) -> Result<String> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client().await?, namespace);
    let name = format!("{server}.key.{key}");
    until(&format!("the Secret {name}"), Duration::from_secs(30), || async {
        let secret = secrets.get(&name).await?;
        let text = secret.data.unwrap_or_default().remove("key").context("it has no entry `key`")?;
        Ok(String::from_utf8(text.0)?)
    })
    .await
}

/// Says which server is waited for, and waits.
pub async fn await_servers(cluster: &Cluster, namespace: &str, names: &[&str]) -> Result<Vec<String>> {
    let mut urls = Vec::new();
    for name in names {
        progress::say(format!("Waiting for {name} to be Ready"));
        urls.push(ready(cluster, namespace, name, Duration::from_secs(120)).await?);
    }
    Ok(urls)
}

fn split(image: &str) -> (&str, &str) {
    image.rsplit_once(':').unwrap_or((image, "latest"))
}
