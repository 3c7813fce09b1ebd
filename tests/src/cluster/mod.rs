//! A Kubernetes to test against: one that the harness brings up and ends, or one that is there already.
//!
//! The harness's own comes in two levels from the same binary. Nothing in it is global: several run side by side, and each ends with its handle,
//! also when this process is killed.

mod audit;
mod components;
mod guard;
mod local;
mod pki;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};

pub use audit::{AuditEvent, AuditObject, AuditStatus, AuditUser};
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

/// A cluster that somebody else runs.
pub struct External {
    kubeconfig: PathBuf,
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
        let cluster = Self::External(External { kubeconfig: kubeconfig.to_owned() });
        let version = cluster.client().await?.apiserver_version().await;
        version.with_context(|| format!("the cluster of {} does not answer", kubeconfig.display()))?;
        Ok(cluster)
    }

    /// The administrator's kubeconfig, for kubectl, Helm and libraries outside the cluster.
    pub fn kubeconfig(&self) -> &Path {
        match self {
            Self::Local(local) => local.kubeconfig(),
            Self::External(external) => &external.kubeconfig,
        }
    }

    /// A client with the administrator's rights. It belongs to the runtime that it was made in.
    pub async fn client(&self) -> Result<kube::Client> {
        client(self.kubeconfig()).await
    }

    /// Runs the real kubectl and returns what it printed.
    pub async fn kubectl<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut kubectl = tokio::process::Command::new(tokio::task::spawn_blocking(parts::kubectl).await??);
        kubectl.env("KUBECONFIG", self.kubeconfig()).args(arguments);
        command::run_async(kubectl).await
    }

    /// Runs the real Helm and returns what it printed.
    pub async fn helm<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut helm = tokio::process::Command::new(tokio::task::spawn_blocking(parts::helm).await??);
        helm.env("KUBECONFIG", self.kubeconfig()).args(arguments);
        command::run_async(helm).await
    }

    /// Loads an image archive into the node.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        self.own("loading an image archive")?.import_image(archive).await
    }

    /// Opens a port on 127.0.0.1 that leads to an address and port inside, or to `traefik` or `traefik-https`, for as long as the cluster lives.
    pub async fn forward(&self, target: &str) -> Result<SocketAddr> {
        self.own("forwarding a port")?.forward(target).await
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
