//! The real parts around Mooring, each from a package registry through its ordinary client, each made once and cached.

mod debian;
mod kubernetes;
pub mod node;
mod pause;
pub mod proxies;
pub mod python;
pub mod servers;
mod tools;
mod traefik;

pub use kubernetes::{cluster_binary, kube_router, metrics_server};
pub use pause::{PAUSE, pause};
pub use tools::{helm, kubectl};
pub use traefik::{TRAEFIK, traefik};

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{Level, clients, preflight};

/// Checks the machine and gets everything that the suites of this level use, so that no test waits for a build. It does nothing when all is there.
pub fn prepare(level: Level) -> Result<()> {
    preflight::check(level)?;
    cluster_binary()?;
    kubectl()?;
    if level == Level::Node {
        pause()?;
        traefik()?;
        kube_router()?;
        metrics_server()?;
        servers::everything()?;
        servers::fastmcp()?;
        for client in clients::Client::IN_CLUSTERS {
            client.install()?;
        }
    }
    Ok(())
}

/// A folder of this crate's own sources, such as the Go module.
fn source(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}
