//! What all scenarios share: the cluster with Mooring installed by its chart, the way in, and the examples once applied.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use mooring_tests::clients::Client;
use mooring_tests::cluster::somebody_elses;
use mooring_tests::product::{self, Products};
use mooring_tests::{Cluster, Level, Options, conformance, installed, parts, progress};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::room::Room;

/// The namespace of the examples.
const DEMO: &str = "demo";
/// The servers of `mcpserver.yaml` and `examples/`.
const EXAMPLES: [&str; 4] = ["hello", "weather", "everything", "notes"];

/// The cluster and what is in it.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) products: Products,
    /// Where the ingress controller listens for this machine.
    pub(crate) ingress: SocketAddr,
    second_ingress: OnceCell<SocketAddr>,
    examples: OnceCell<()>,
    figures: Mutex<Vec<(String, String)>>,
}

impl World {
    /// Builds what is missing, starts the cluster and installs the chart.
    pub(crate) async fn start() -> Result<Self> {
        let external = somebody_elses()?.is_some();
        let (products, images) = tokio::task::spawn_blocking(move || {
            let products = product::build()?;
            for client in Client::IN_CLUSTERS {
                client.install()?;
            }
            let mut images = products.archives();
            // Somebody else's cluster has them already.
            if !external {
                conformance::install()?;
                images.push(product::conformance_server()?.archive);
                images.extend([parts::servers::everything()?, parts::servers::fastmcp()?]);
            }
            anyhow::Ok((products, images))
        })
        .await??;
        let world = Self::of(products, Options { images, ..Options::default() }).await?;
        if let Cluster::Local(local) = &world.cluster {
            progress::say(format!("Kubernetes is ready after {:.1} s", local.ready_after().as_secs_f64()));
        }
        Ok(world)
    }

    /// A further cluster, of several nodes, for what cannot be done in the one that all share. server-everything is in it.
    pub(crate) async fn of_nodes(products: &Products, nodes: u8) -> Result<Self> {
        let mut images = products.archives();
        images.push(tokio::task::spawn_blocking(parts::servers::everything).await??);
        Self::of(products.clone(), Options { nodes, images, metrics: false, ..Options::default() }).await
    }

    /// The cluster with the chart installed.
    async fn of(products: Products, options: Options) -> Result<Self> {
        let cluster = Cluster::start(Level::Node, options).await?;
        cluster.clear().await?; // what a run before this one left that was killed
        let ingress = cluster.forward("traefik").await?;
        let world = Self {
            cluster,
            products,
            ingress,
            second_ingress: OnceCell::new(),
            examples: OnceCell::new(),
            figures: Mutex::default(),
        };
        if let Err(error) = installed::install(&world.cluster, &world.products, &[]).await {
            let log = world.operator_log().await;
            return Err(error.context(format!("Mooring could not be installed; its log ends with\n{log}")));
        }
        Ok(world)
    }

    /// Where two replicas of the ingress controller listen, each by itself; of a cluster that somebody else runs, the one way
    /// in that we know.
    pub(crate) async fn ingresses(&self) -> Result<Vec<SocketAddr>> {
        if self.cluster.own("another ingress controller").is_err() {
            return Ok(vec![self.ingress]);
        }
        let second = self.second_ingress.get_or_try_init(|| self.another_traefik()).await?;
        Ok(vec![self.ingress, *second])
    }

    /// A pod like the one that the cluster's Traefik has, in which no Service sees a replica of it.
    async fn another_traefik(&self) -> Result<SocketAddr> {
        let system = ["--namespace", "kube-system"];
        let traefik = ["get", "deployment", "traefik", "-o", "jsonpath={.spec.template.spec}"];
        let spec = self.cluster.kubectl(system.into_iter().chain(traefik)).await?;
        let spec: serde_json::Value = serde_json::from_str(&spec).with_context(|| spec.clone())?;
        let metadata = json!({"name": "another-traefik", "namespace": "kube-system"});
        self.cluster.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await?;
        let wait = ["wait", "--for=condition=Ready", "pod/another-traefik", "--timeout=60s"];
        self.cluster.kubectl(system.into_iter().chain(wait)).await?;
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().await?, "kube-system");
        self.cluster.forward_to_pod(&pods.get("another-traefik").await?, 8000).await
    }

    /// The namespace of the examples, applied as the README says, each server Ready.
    pub(crate) async fn demo(self: &Arc<Self>) -> Result<Room> {
        self.examples.get_or_try_init(|| self.apply_examples()).await?;
        Ok(Room::of(self, DEMO))
    }

    async fn apply_examples(self: &Arc<Self>) -> Result<()> {
        let room = Room::make(self, DEMO).await?;
        installed::apply_examples(&self.cluster, DEMO).await?;
        for name in EXAMPLES {
            if let Err(error) = room.ready(name).await {
                return Err(error.context(room.describe().await));
            }
        }
        Ok(())
    }

    /// Whether the examples were applied.
    pub(crate) fn has_demo(&self) -> bool {
        self.examples.initialized()
    }

    /// Keeps a figure for the end of the output.
    pub(crate) fn figure(&self, what: impl Into<String>, value: impl Into<String>) {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).push((what.into(), value.into()));
    }

    pub(crate) fn figures(&self) -> Vec<(String, String)> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What every operator said last.
    pub(crate) async fn operator_log(&self) -> String {
        let selector = "app.kubernetes.io/component=operator";
        let mut log = String::new();
        for namespace in [installed::NAMESPACE, "second-system", "narrow-system"] {
            for more in [&["--tail=60"][..], &["--tail=30", "--previous"]] {
                let logs =
                    ["logs", "-n", namespace, "-l", selector, "--prefix"].into_iter().chain(more.iter().copied());
                log += &self.cluster.kubectl(logs).await.unwrap_or_default();
            }
        }
        log
    }

    /// Removes what would stay in a cluster that somebody else runs, and ends one of our own.
    pub(crate) async fn stop(self) -> Result<()> {
        self.cluster.clear().await?;
        self.cluster.stop().await
    }
}

/// How long anything may take to come about that needs new pods, on a machine that is busy with builds.
pub(crate) const PODS: Duration = Duration::from_secs(120);

/// Seconds, for a figure.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

/// The text of a JSON pointer.
pub(crate) fn text<'a>(value: &'a serde_json::Value, pointer: &str) -> Result<&'a str> {
    value.pointer(pointer).and_then(serde_json::Value::as_str).with_context(|| format!("no {pointer} in {value}"))
}
