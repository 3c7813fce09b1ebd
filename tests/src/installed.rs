//! Mooring in a cluster, as a platform team would have it: the chart installed by Helm, resources applied by kubectl.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};

use crate::product::{self, Products};
use crate::wait::until;
use crate::{Cluster, progress};

/// The namespace of the operator.
pub const NAMESPACE: &str = "mooring-system";
/// The definition that the chart brings.
pub const DEFINITION: &str = "mcpservers.mooring.dev";

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
    for value in image_values(cluster, products).into_iter().chain(values.iter().map(|value| (*value).to_owned())) {
        arguments.extend(["--set".to_owned(), value]);
    }
    cluster.namespace(NAMESPACE, &[]).await?;
    cluster.helm(arguments).await?;
    cluster.mark(&["customresourcedefinition", DEFINITION]).await?;
    let client = cluster.client().await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let available = until("the operator to be available", Duration::from_secs(90), || async {
        if let Some(missing) = missing_image(&pods).await? {
            return Ok(Err(anyhow!(missing)));
        }
        let status = deployments.get("mooring").await?.status.context("no status yet")?;
        ensure!(status.available_replicas.is_some_and(|count| count > 0), "no available replica");
        Ok(Ok(()))
    });
    available.await.and_then(|available| available)
}

/// The images of this workspace as values of the chart.
pub fn image_values(cluster: &Cluster, products: &Products) -> [String; 4] {
    let (operator, door) = (cluster.with_images(products.operator.name), cluster.with_images(products.front_door.name));
    let ((repository, tag), (door_repository, door_tag)) = (split(&operator), split(&door));
    [
        format!("image.repository={repository}"),
        format!("image.tag={tag}"),
        format!("frontDoor.image.repository={door_repository}"),
        format!("frontDoor.image.tag={door_tag}"),
    ]
}

/// What a node says that cannot get an image, with what to do about it.
async fn missing_image(pods: &Api<Pod>) -> Result<Option<String>> {
    let pods = pods.list(&ListParams::default()).await?;
    let statuses = pods.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
    let mut waiting = statuses.filter_map(|status| Some((&status.image, status.state.as_ref()?.waiting.as_ref()?)));
    let gone = ["ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"];
    let found = waiting.find(|(_, waiting)| waiting.reason.as_deref().is_some_and(|reason| gone.contains(&reason)));
    Ok(found.map(|(image, waiting)| {
        let said = waiting.message.as_deref().unwrap_or("no reason given");
        format!(
            "the cluster's nodes cannot get the image {image} ({said}): load it into them, or push it to a registry and name that; \
             tests/README.md says how"
        )
    }))
}

/// Applies `mcpserver.yaml` and `examples/` with kubectl, as the README says. Returns what kubectl said.
pub async fn apply_examples(cluster: &Cluster, namespace: &str) -> Result<String> {
    let mut files = vec![product::workspace().join("mcpserver.yaml")];
    for entry in std::fs::read_dir(product::workspace().join("examples"))? {
        files.push(entry?.path());
    }
    // kubectl looks into no folder below the one that it is given.
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut said = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        said += &cluster.apply_text(namespace, &cluster.with_images(&text)).await?;
    }
    Ok(said)
}

/// Makes a namespace in which the *restricted* Pod Security profile is enforced.
pub async fn restricted_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.namespace(name, &[("pod-security.kubernetes.io/enforce", "restricted")]).await
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
