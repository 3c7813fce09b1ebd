//! A cluster for one test, as clean as it was after it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options, installed, product};
use serde_json::Value;
use tokio::sync::Mutex;

/// The definition belongs to the whole cluster, and the tests may share one: they take turns.
static TURN: Mutex<()> = Mutex::const_new(());

pub(crate) use mooring_tests::installed::DEFINITION;

/// Runs a test on a cluster without Mooring, and leaves none there.
pub(crate) async fn on_a_cluster(audit: bool, test: impl AsyncFnOnce(&Cluster) -> Result<()>) -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(Level::ControlPlane, Options { audit, ..Options::default() }).await?;
    let outcome = test(&cluster).await;
    // The tests put the definition there in several ways, and some take it away.
    if cluster.kubectl(["get", "customresourcedefinition", DEFINITION]).await.is_ok() {
        cluster.mark(&["customresourcedefinition", DEFINITION]).await?;
    }
    cluster.clear().await?;
    cluster.stop().await?;
    outcome
}

/// Makes namespaces.
pub(crate) async fn namespaces(cluster: &Cluster, names: &[&str]) -> Result<()> {
    for name in names {
        cluster.namespace(name, &[]).await?;
    }
    Ok(())
}

/// Runs `helm install` or `helm upgrade` with the chart of this workspace.
pub(crate) async fn helm(cluster: &Cluster, verb: &str, release: &str, more: &[&str]) -> Result<String> {
    let chart = product::workspace().join("charts/mooring").display().to_string();
    let namespace = format!("{release}-system");
    let mut arguments = vec![verb, release, &chart, "--namespace", &namespace];
    if verb == "install" {
        if matches!(cluster, Cluster::External(_)) {
            cluster.namespace(&namespace, &[]).await?;
        }
        arguments.push("--create-namespace");
    }
    arguments.extend(more);
    cluster.helm(arguments).await
}

/// The generated definition.
pub(crate) fn definition() -> String {
    product::workspace().join("crds/mcpservers.yaml").display().to_string()
}

/// Applies the README's first server in a namespace, as soon as the API server serves its kind.
pub(crate) async fn apply_hello(cluster: &Cluster, namespace: &str) -> Result<()> {
    let file = product::workspace().join("mcpserver.yaml").display().to_string();
    until("the API server to take an McpServer", Duration::from_secs(20), || async {
        cluster.kubectl(["apply", "--namespace", namespace, "--filename", &file]).await.map(drop)
    })
    .await
}

/// Everything about an object that changes with a write.
#[derive(Debug, PartialEq)]
pub(crate) struct Identity {
    uid: String,
    resource_version: String,
    content: Value,
}

/// The server `hello` as it is stored now.
pub(crate) async fn hello(cluster: &Cluster, namespace: &str) -> Result<Identity> {
    let server = installed::servers(cluster, namespace).await?.get("hello").await?;
    Ok(Identity {
        uid: server.metadata.uid.context("a uid")?,
        resource_version: server.metadata.resource_version.context("a resource version")?,
        content: server.data,
    })
}

/// The definition's uid, its `spec`, and the release that it belongs to.
pub(crate) async fn live_definition(cluster: &Cluster) -> Result<(String, Value, Option<String>)> {
    let text = cluster.kubectl(["get", "crd", DEFINITION, "--output", "json"]).await?;
    let mut live: Value = serde_json::from_str(&text)?;
    let uid = live["metadata"]["uid"].as_str().context("a uid")?.to_owned();
    let release = live["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str().map(str::to_owned);
    let kept = &live["metadata"]["annotations"]["helm.sh/resource-policy"];
    ensure!(release.is_none() || kept == "keep", "nothing keeps the definition: {kept}");
    Ok((uid, live["spec"].take(), release))
}

/// Writes a file of a test.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
