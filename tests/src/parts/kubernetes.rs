//! Kubernetes and what is built with Go. A first build takes minutes and about 3 GB of Go's own caches.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::source;
use crate::{cache, command};

/// The release that the Go module pins; `kubectl version` and Helm read it from the binary.
const VERSION: (&str, &str, &str) = ("v1.36.3", "1", "36");
const KUBE_ROUTER: &str = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0";
const METRICS_SERVER: &str = "sigs.k8s.io/metrics-server/cmd/metrics-server@v0.9.0";

/// The one binary that holds every component of Kubernetes and the guard of a cluster.
pub fn cluster_binary() -> Result<PathBuf> {
    let folder = source("cluster");
    let mut inputs = vec![VERSION.0.as_bytes().to_vec()];
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "go" || e == "mod" || e == "sum"))
        .collect();
    files.sort();
    for file in files {
        inputs.push(std::fs::read(&file)?);
    }
    let (version, major, minor) = VERSION;
    let at = "k8s.io/component-base/version";
    let flags = format!("-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor}");
    let what = "Building Kubernetes from its Go modules (6 to 12 minutes the first time)";
    cache::made("bin/kubernetes", &cache::key(inputs), what, |out| {
        let mut build = go();
        build.current_dir(&folder).args(["build", "-trimpath", "-ldflags", &flags, "-o"]).arg(out).arg(".");
        command::run(&mut build)?;
        Ok(())
    })
}

/// kube-router, which enforces NetworkPolicy.
pub fn kube_router() -> Result<PathBuf> {
    installed("kube-router", KUBE_ROUTER)
}

/// metrics-server, which measures what pods use and serves it as the resource metrics API.
pub fn metrics_server() -> Result<PathBuf> {
    installed("metrics-server", METRICS_SERVER)
}

/// A program of a Go module that stands alone.
fn installed(program: &str, module: &str) -> Result<PathBuf> {
    let what = format!("Building {program} from its Go module (2 to 4 minutes the first time)");
    let folder = cache::made(&format!("bin/{program}"), &cache::key([module]), &what, |out| {
        std::fs::create_dir_all(out)?;
        command::run(go().env("GOBIN", out).args(["install", "-trimpath", "-ldflags", "-s -w", module]))?;
        Ok(())
    })?;
    Ok(folder.join(program))
}

fn go() -> Command {
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0");
    go
}
