//! A Kubernetes to test against: one that the harness brings up and ends, or one that is there already.
//!
//! The harness's own comes in two levels from the same binary. Nothing in it is global: several run side by side, and each ends with its handle,
//! also when this process is killed.

mod audit;
mod components;
mod external;
mod guard;
mod local;
mod pki;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::process::Command;

pub use audit::{AuditEvent, AuditObject, AuditStatus, AuditUser};
pub use external::External;
pub use guard::Signal;
pub use local::Local;

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
    /// Whether Traefik runs as ingress controller (level node).
    pub traefik: bool,
    /// Archives of images to load during the start (level node).
    pub images: Vec<PathBuf>,
    /// Whether the data directory, with all logs, stays when the cluster ends.
    pub keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { audit: false, network_policy: true, traefik: true, images: Vec::new(), keep: false }
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
        match std::env::var_os("MOORING_TEST_KUBECONFIG").filter(|path| !path.is_empty()) {
            Some(path) => Self::external(Path::new(&path)).await,
            None => Self::local(level, options).await,
        }
    }

    /// Starts a cluster of this level.
    pub async fn local(level: Level, options: Options) -> Result<Self> {
        Ok(Self::Local(Box::new(Local::start(level, options).await?)))
    }

    /// Uses a cluster that is there already.
    pub async fn external(kubeconfig: &Path) -> Result<Self> {
        Ok(Self::External(External::connect(kubeconfig).await?))
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

    /// Runs the real Helm and returns what it printed.
    pub async fn helm<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut helm = Command::new(tokio::task::spawn_blocking(parts::helm).await??);
        helm.env("KUBECONFIG", self.kubeconfig()).args(arguments);
        command::run_async(helm).await
    }

    /// Loads an image archive into the node.
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
