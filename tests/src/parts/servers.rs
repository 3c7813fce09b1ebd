//! MCP servers that nobody here wrote, as images: what a team would bring.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::node::npm_install;
use super::{debian, source};
use crate::images::Image;
use crate::{cache, command};

/// The name of the image of `@modelcontextprotocol/server-everything`. It listens on port 3001 (`PORT`), path `/mcp`, when it is given
/// the argument `streamableHttp`.
pub const EVERYTHING: &str = "localhost/server-everything:2026.8.31";
/// The name of the image of a small FastMCP server. It listens on port 8000, path `/mcp`.
pub const FASTMCP: &str = "localhost/fastmcp:4.2.3";

/// The package of [`EVERYTHING`].
pub const EVERYTHING_PACKAGE: &str = "@modelcontextprotocol/server-everything@2026.8.31";
/// The package of [`FASTMCP`].
pub const FASTMCP_PACKAGE: &str = "fastmcp==4.2.3";
const NODE_LIBRARIES: [&str; 3] = ["libc6", "libgcc-s1", "libstdc++6"];
const PYTHON: [&str; 15] = [
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libsqlite3-0",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "python3.11-minimal",
    "zlib1g",
];

/// The archive of the image [`EVERYTHING`].
pub fn everything() -> Result<PathBuf> {
    let node = format!("node-linux-{}@22", if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" });
    let key = cache::key([EVERYTHING, EVERYTHING_PACKAGE, &node]);
    cache::made("images/everything", &key, "Making the image of server-everything", |out| {
        let root = fresh(out)?;
        debian::unpack(&NODE_LIBRARIES, &root)?;
        let app = root.join("app");
        npm_install(&app, &[EVERYTHING_PACKAGE, &node])?;
        let package = app.join("node_modules").join(node.trim_end_matches("@22"));
        fs::create_dir_all(root.join("usr/bin"))?;
        fs::rename(package.join("bin/node"), root.join("usr/bin/node")).context("the node package holds bin/node")?;
        cache::remove(&package)?;
        let start = "/app/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
        Image::new(EVERYTHING)
            .tree("/", &root)
            .directory("/tmp", 0o1777)
            .entrypoint(["/usr/bin/node", start])
            .command(["streamableHttp"])
            .write(out)?;
        cache::remove(&root)
    })
}

/// The archive of the image [`FASTMCP`].
pub fn fastmcp() -> Result<PathBuf> {
    let script = source("servers/fastmcp_server.py");
    let text = fs::read_to_string(&script).with_context(|| format!("cannot read {}", script.display()))?;
    let key = cache::key([FASTMCP, FASTMCP_PACKAGE, &text]);
    cache::made("images/fastmcp", &key, "Making the image of a FastMCP server", |out| {
        let root = fresh(out)?;
        debian::unpack(&PYTHON, &root)?;
        let mut install = Command::new("python3");
        install.args(["-m", "pip", "install", "--quiet", "--only-binary=:all:", "--python-version=3.11", "--target"]);
        command::run(install.arg(root.join("app")).arg(FASTMCP_PACKAGE))?;
        Image::new(FASTMCP)
            .tree("/", &root)
            .file("/app/server.py", &script, 0o644)
            .directory("/tmp", 0o1777)
            .env("PYTHONPATH", "/app")
            .env("PYTHONUNBUFFERED", "1")
            .env("HOME", "/tmp")
            .entrypoint(["/usr/bin/python3.11", "/app/server.py"])
            .write(out)?;
        cache::remove(&root)
    })
}

/// A server of an image as a plain Deployment, Service and Ingress for `<name>.example.com`, as a team would write it without Mooring. It keeps to the
/// *restricted* profile.
pub fn plain(name: &str, image: &str, port: u16) -> Value {
    let labels = json!({"app": name});
    let container = json!({
        "name": "server", "image": image, "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {
            "runAsUser": 65532, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    // Without this the kubelet sets FASTMCP_PORT and the like for each Service, and FastMCP takes that for its own setting.
    let pod = json!({"enableServiceLinks": false, "containers": [container]});
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let rule = json!({
        "host": format!("{name}.example.com"),
        "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
            "selector": labels, "ports": [{"port": 80, "targetPort": port}],
        }},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": {
            "ingressClassName": "traefik", "rules": [rule],
        }},
    ]})
}

fn fresh(out: &Path) -> Result<PathBuf> {
    let root = out.with_extension("root");
    cache::remove(&root)?;
    fs::create_dir_all(&root)?;
    Ok(root)
}
