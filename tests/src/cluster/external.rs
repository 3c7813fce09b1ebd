//! A cluster that somebody else runs: used as it is, and left as it was. What the harness makes at its top level carries a
//! mark, so that it can be told apart and taken away, also by the run after one that was killed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::{client, helm, kubectl};
use crate::command::run_async;
use crate::installed::DEFINITION;

/// Names the kubeconfig of such a cluster.
const KUBECONFIG: &str = "MOORING_TEST_KUBECONFIG";
/// Names the ingress controller of such a cluster, as an address and port or as `namespace/service:port`.
const INGRESS: &str = "MOORING_TEST_INGRESS";
/// Names where such a cluster gets our images from; `localhost`, the name that they are built with, when it is not set.
const IMAGES: &str = "MOORING_TEST_IMAGES";

/// The label of all that the harness makes at the top level of a cluster.
pub(super) const MARK: &str = "mooring.dev/harness";

/// The kubeconfig that `MOORING_TEST_KUBECONFIG` names, if it does. An error in CI, where nothing may be left out.
pub fn somebody_elses() -> Result<Option<PathBuf>> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let kubeconfig = set(KUBECONFIG).map(PathBuf::from);
    let ci = set("CI").is_some_and(|value| value != "false" && value != "0");
    ensure!(
        kubeconfig.is_none() || !ci,
        "{KUBECONFIG} is set in CI: on somebody else's cluster some tests are left out, and CI runs all of them"
    );
    Ok(kubeconfig)
}

/// Where somebody else's cluster gets our images from, by the environment.
pub(super) fn images_by_environment() -> Option<String> {
    std::env::var(IMAGES).ok().filter(|prefix| !prefix.is_empty())
}

/// A cluster that somebody else runs.
pub struct External {
    kubeconfig: PathBuf,
    /// Stands in names of images in the place of `localhost`.
    images: Option<String>,
    /// Running `kubectl port-forward`; each ends with this handle.
    forwards: Mutex<Vec<Child>>,
}

impl External {
    pub(super) async fn connect(kubeconfig: &Path, images: Option<String>) -> Result<Self> {
        let client = client(kubeconfig).await?;
        let version = client.apiserver_version().await;
        version.with_context(|| format!("the cluster of {} does not answer", kubeconfig.display()))?;
        let found = Api::<CustomResourceDefinition>::all(client).get_metadata_opt(DEFINITION).await?;
        ensure!(
            found.is_none_or(|definition| definition.labels().contains_key(MARK)),
            "this cluster has Mooring already ({DEFINITION}): tests and demo install their own and remove it; use another cluster"
        );
        let kubeconfig = std::path::absolute(kubeconfig)?;
        Ok(Self { kubeconfig, images, forwards: Mutex::default() })
    }

    /// The kubeconfig that was given.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A text with each name of an image as this cluster knows it.
    pub(super) fn with_images(&self, text: &str) -> String {
        match &self.images {
            Some(prefix) => text.replace("localhost/", &format!("{}/", prefix.trim_end_matches('/'))),
            None => text.to_owned(),
        }
    }

    /// Takes away all that carries the mark, and waits until it is gone.
    pub(super) async fn clear(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(client(&self.kubeconfig).await?);
        let marked = namespaces.list_metadata(&kube::api::ListParams::default().labels(MARK)).await?;
        let marked: Vec<String> = marked.iter().map(ResourceExt::name_any).collect();
        for namespace in &marked {
            let releases = self.helm(&["list", "--short", "--namespace", namespace]).await?;
            for release in releases.lines().map(str::trim).filter(|release| !release.is_empty()) {
                self.helm(&["uninstall", release, "--namespace", namespace, "--ignore-not-found"]).await?;
            }
        }
        // Nobody waits for the answers of these pods, and a server that ignores SIGTERM would stay for all of its grace period,
        // which the kubelet does not shorten once it has begun. So the pods go first, and nothing makes them anew.
        for namespace in &marked {
            let makers = ["delete", "deployments,replicasets", "--all", "--cascade=orphan", "--namespace", namespace];
            self.kubectl(&makers).await?;
            let pods = ["delete", "pods", "--all", "--grace-period=1", "--wait=false", "--namespace", namespace];
            self.kubectl(&pods).await?;
        }
        for kind in ["namespaces", "customresourcedefinitions", "clusterroles", "clusterrolebindings", "ingressclasses"]
        {
            let delete = ["delete", kind, "--selector", MARK, "--timeout=180s"];
            self.kubectl(&delete).await.with_context(|| format!("what stays carries the label {MARK}"))?;
        }
        Ok(())
    }

    async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut kubectl = kubectl(&self.kubeconfig).await?;
        kubectl.args(arguments);
        run_async(kubectl).await
    }

    async fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut helm = helm(&self.kubeconfig).await?;
        helm.args(arguments);
        run_async(helm).await
    }

    pub(super) async fn forward(&self, target: &str) -> Result<SocketAddr> {
        let target = match target {
            "traefik" => std::env::var(INGRESS).ok().filter(|set| !set.is_empty()).with_context(|| {
                format!("set {INGRESS} to where the ingress controller listens: an address and port, or namespace/service:port")
            })?,
            named => named.to_owned(),
        };
        if let Ok(address) = target.parse() {
            return Ok(address);
        }
        let Some(((namespace, service), port)) = super::service(&target) else {
            bail!(
                "`{target}` is not namespace/service:port, the only target that is reached in somebody else's cluster"
            );
        };
        self.port_forward(namespace, &format!("service/{service}"), port).await
    }

    /// Opens a port on 127.0.0.1 that leads to a port of a pod, or of one pod of a Service.
    pub(super) async fn port_forward(&self, namespace: &str, object: &str, port: u16) -> Result<SocketAddr> {
        let mut command = kubectl(&self.kubeconfig).await?;
        command.args(["-n", namespace, "port-forward", "--address=127.0.0.1", object, &format!(":{port}")]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("a standard output")?).lines();
        let mut errors = BufReader::new(child.stderr.take().context("a standard error")?).lines();
        let said = match lines.next_line().await? {
            Some(line) => line,
            None => errors.next_line().await?.unwrap_or_default(),
        };
        // Forwarding from 127.0.0.1:40123 -> 8000
        let address = said.split_whitespace().nth(2).and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("kubectl port-forward to {object} said: {said}"))?;
        // It says a line for each connection, and would end if nobody listened.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        tokio::spawn(async move { while let Ok(Some(_)) = errors.next_line().await {} });
        self.forwards.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        Ok(address)
    }
}
