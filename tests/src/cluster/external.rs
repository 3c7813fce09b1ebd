//! A cluster that somebody else runs: used, never changed beyond what a test applies, and left alone at the end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::{client, kubectl};

/// Names the ingress controller of such a cluster, as an address and port or as `namespace/service:port`.
const INGRESS: &str = "MOORING_TEST_INGRESS";

/// A cluster that somebody else runs.
pub struct External {
    kubeconfig: PathBuf,
    /// Running `kubectl port-forward`; each ends with this handle.
    forwards: Mutex<Vec<Child>>,
}

impl External {
    pub(super) async fn connect(kubeconfig: &Path) -> Result<Self> {
        let version = client(kubeconfig).await?.apiserver_version().await;
        version.with_context(|| format!("the cluster of {} does not answer", kubeconfig.display()))?;
        Ok(Self { kubeconfig: kubeconfig.to_owned(), forwards: Mutex::default() })
    }

    /// The kubeconfig that was given.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(super) async fn forward(&self, target: &str) -> Result<SocketAddr> {
        let target = match target {
            "traefik" | "traefik-https" => std::env::var(INGRESS).ok().filter(|set| !set.is_empty()).with_context(|| {
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
        let mut command = kubectl(&self.kubeconfig).await?;
        command.args([
            "-n",
            namespace,
            "port-forward",
            "--address=127.0.0.1",
            &format!("service/{service}"),
            &format!(":{port}"),
        ]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("a standard output")?).lines();
        let mut errors = BufReader::new(child.stderr.take().context("a standard error")?).lines();
        let said = match lines.next_line().await? {
            Some(line) => line,
            None => errors.next_line().await?.unwrap_or_default(),
        };
        // Forwarding from 127.0.0.1:40123 -> 8000
        let address = said.split_whitespace().nth(2).and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("kubectl port-forward to {target} said: {said}"))?;
        // It says a line for each connection, and would end if nobody listened.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        tokio::spawn(async move { while let Ok(Some(_)) = errors.next_line().await {} });
        self.forwards.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        Ok(address)
    }
}
