//! How to reach the API server: a kubeconfig that is named, else the pod's own ServiceAccount or the usual places.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The configuration. Nothing is tried again behind our back: who calls knows better when.
pub async fn config(file: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = match file.filter(|file| !file.as_os_str().is_empty()) {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).with_context(|| format!("cannot read {}", file.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("cannot use {}", file.display()))?
        }
        None => {
            Config::infer().await.context("cannot tell how to reach the API server; name a file with --kubeconfig")?
        }
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    Ok(config)
}
