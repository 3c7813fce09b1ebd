//! A Kubernetes to test against: one that the harness brings up and ends, or one that is there already.
//!
//! The harness's own comes in two levels from the same binary. Nothing in it is global: several run side by side, and each ends with its handle,
//! also when this process is killed.

mod audit;
mod components;
mod external;
mod guard;
mod local;
mod node;
mod pki;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::process::Command;

pub use audit::{AuditEvent, AuditObject, AuditStatus, AuditUser};
pub use external::{External, somebody_elses};
pub use guard::Signal;
pub use local::Local;

use self::external::MARK;
use crate::{command, parts};

/// How much of a cluster there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// etcd, API server and controller manager: objects live, pods stay pending. Ready in seconds.
    ControlPlane,
    /// All of it: pods run, Services route, NetworkPolicy holds, Traefik serves Ingresses.
    Node,
}

/// What a cluster is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the API server writes an audit log; see [`Cluster::audit`].
    pub audit: bool,
    /// Whether kube-router enforces NetworkPolicy (level node).
    pub network_policy: bool,
    /// Whether metrics-server measures what pods use, for `kubectl top` and autoscalers (level node).
    pub metrics: bool,
    /// Whether Traefik runs as ingress controller (level node).
    pub traefik: bool,
    /// How many nodes there are (level node). The first one holds the control plane, too.
    pub nodes: u8,
    /// Archives of images to load into each node during the start (level node).
    pub images: Vec<PathBuf>,
    /// Whether the data directory, with all logs, stays when the cluster ends.
    pub keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            audit: false,
            network_policy: true,
            metrics: true,
            traefik: true,
            nodes: 1,
            images: Vec::new(),
            keep: false,
        }
    }
}

/// A running Kubernetes.
pub enum Cluster {
    /// The harness's own.
    Local(Box<Local>),
    /// One that somebody else runs.
    External(External),
}

impl Cluster {
    /// Uses the cluster that `MOORING_TEST_KUBECONFIG` names, else starts one of this level.
    pub async fn start(level: Level, options: Options) -> Result<Self> {
        match somebody_elses()? {
            Some(path) => Self::external(&path, None).await,
            None => Self::local(level, options).await,
        }
    }

    /// Starts a cluster of this level.
    pub async fn local(level: Level, options: Options) -> Result<Self> {
        Ok(Self::Local(Box::new(Local::start(level, options).await?)))
    }

    /// Uses a cluster that is there already and has no Mooring. Its nodes get our images from `images`, such as
    /// `registry.example.com/team`; where that is not given, from what `MOORING_TEST_IMAGES` names, else as `localhost/...`.
    pub async fn external(kubeconfig: &Path, images: Option<String>) -> Result<Self> {
        let images = images.or_else(external::images_by_environment);
        Ok(Self::External(External::connect(kubeconfig, images).await?))
    }

    /// The administrator's kubeconfig, for kubectl, Helm and libraries outside the cluster.
    pub fn kubeconfig(&self) -> &Path {
        match self {
            Self::Local(local) => local.kubeconfig(),
            Self::External(external) => external.kubeconfig(),
        }
    }

    /// A client with the administrator's rights. It belongs to the runtime that it was made in.
    pub async fn client(&self) -> Result<kube::Client> {
        client(self.kubeconfig()).await
    }

    /// Runs the real kubectl and returns what it printed.
    pub async fn kubectl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut kubectl = kubectl(self.kubeconfig()).await?;
        kubectl.args(arguments);
        command::run_async(kubectl).await
    }

    /// Applies objects with the real kubectl, as a person would: a single one, or a `List`.
    pub async fn apply(&self, objects: &Value) -> Result<String> {
        let mut kubectl = kubectl(self.kubeconfig()).await?;
        kubectl.args(["apply", "-f", "-"]);
        command::run_with_input(kubectl, &serde_json::to_vec(objects)?).await
    }

    /// The same with a text of YAML or JSON whose objects name no namespace.
    pub async fn apply_text(&self, namespace: &str, text: &str) -> Result<String> {
        let mut kubectl = kubectl(self.kubeconfig()).await?;
        kubectl.args(["apply", "--namespace", namespace, "-f", "-"]);
        command::run_with_input(kubectl, text.as_bytes()).await
    }

    /// Runs the real Helm and returns what it printed.
    pub async fn helm<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut helm = helm(self.kubeconfig()).await?;
        helm.args(arguments);
        command::run_async(helm).await
    }

    /// Makes a namespace with these further labels; one that the harness has made already serves as well.
    pub async fn namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client().await?);
        if let Some(found) = namespaces.get_metadata_opt(name).await? {
            ensure!(found.labels().contains_key(MARK), "the namespace {name} is there already, and somebody else's");
            return Ok(());
        }
        let labels: Value = labels.iter().copied().chain([(MARK, "true")]).collect();
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
        Ok(())
    }

    /// Marks what kubectl finds by these arguments as made by the harness, so that [`Cluster::clear`] takes it away.
    pub async fn mark(&self, what: &[&str]) -> Result<()> {
        let mark = format!("{MARK}=true");
        let arguments = ["label", "--overwrite"].into_iter().chain(what.iter().copied()).chain([mark.as_str()]);
        self.kubectl(arguments).await.map(drop)
    }

    /// Leaves somebody else's cluster as it was: takes away all that the harness has made in it. One of our own just ends.
    pub async fn clear(&self) -> Result<()> {
        match self {
            Self::Local(_) => Ok(()),
            Self::External(external) => external.clear().await,
        }
    }

    /// The text with each name of one of our images as this cluster knows it.
    pub fn with_images(&self, text: &str) -> String {
        match self {
            Self::Local(_) => text.to_owned(),
            Self::External(external) => external.with_images(text),
        }
    }

    /// Loads an image archive into every node.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        self.own("loading an image archive")?.import_image(archive).await
    }

    /// Opens a port on 127.0.0.1 for as long as the cluster lives. It leads to `namespace/service:port`, to the ingress controller as
    /// `traefik` or `traefik-https`, or, in a cluster of the harness's own, to any address and port inside.
    pub async fn forward(&self, target: &str) -> Result<SocketAddr> {
        match self {
            Self::Local(local) => local.forward(target).await,
            Self::External(external) => external.forward(target).await,
        }
    }

    /// Opens a port on 127.0.0.1 that leads to a port of this pod, around Services and policies, for as long as the cluster lives.
    pub async fn forward_to_pod(&self, pod: &Pod, port: u16) -> Result<SocketAddr> {
        match self {
            Self::Local(local) => local.forward_to_pod(pod, port).await,
            Self::External(external) => {
                let namespace = pod.metadata.namespace.as_deref().context("a pod has a namespace")?;
                external.port_forward(namespace, &format!("pod/{}", pod.name_any()), port).await
            }
        }
    }

    /// What was asked of the API server so far. Needs [`Options::audit`].
    pub fn audit(&self) -> Result<Vec<AuditEvent>> {
        self.own("reading the audit log")?.audit()
    }

    /// The handle of the harness's own cluster; an error that names what needs it, where the cluster is somebody else's.
    pub fn own(&self, what: &str) -> Result<&Local> {
        match self {
            Self::Local(local) => Ok(local),
            Self::External(_) => {
                bail!("{what} needs a cluster of the harness's own, and MOORING_TEST_KUBECONFIG names another")
            }
        }
    }

    /// Ends the cluster and waits until nothing is left of it. A cluster that somebody else runs is left alone.
    pub async fn stop(self) -> Result<()> {
        match self {
            Self::Local(local) => local.stop().await,
            Self::External(_) => Ok(()),
        }
    }
}

/// Takes `namespace/service:port` apart.
fn service(target: &str) -> Option<((&str, &str), u16)> {
    let (name, port) = target.rsplit_once(':')?;
    Some((name.split_once('/')?, port.parse().ok()?))
}

async fn helm(kubeconfig: &Path) -> Result<Command> {
    let mut helm = Command::new(tokio::task::spawn_blocking(parts::helm).await??);
    helm.env("KUBECONFIG", kubeconfig);
    Ok(helm)
}

async fn kubectl(kubeconfig: &Path) -> Result<Command> {
    let mut kubectl = Command::new(tokio::task::spawn_blocking(parts::kubectl).await??);
    kubectl.env("KUBECONFIG", kubeconfig);
    Ok(kubectl)
}

/// A client for the current context of a kubeconfig.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Somebody else may have chosen one before: any will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
