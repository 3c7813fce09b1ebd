//! Binaries of this workspace for the debug profile, each built when it is first needed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

use crate::{command, product, progress};

/// The binary that is named like its package. Builds it once for each process. Blocks.
pub fn binary(package: &'static str) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = built.get(package) {
        return Ok(path.clone());
    }
    let path = progress::step(&format!("Building {package}"), || {
        let mut cargo = command::cargo();
        cargo.current_dir(product::workspace()).args(["build", "--package", package, "--bin", package]);
        cargo.args(["--message-format", "json-render-diagnostics"]);
        let output = cargo.stdin(Stdio::null()).output().context("cannot start cargo")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{package} does not build:\n{}", command::tail(&said, 40));
        let messages = String::from_utf8_lossy(&output.stdout);
        let executable = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let executable =
            executable.filter_map(|message| Some(message.get("executable")?.as_str()?.to_owned())).next_back();
        Ok(PathBuf::from(executable.with_context(|| format!("cargo named no executable of {package}"))?))
    })?;
    Ok(built.entry(package).or_insert(path).clone())
}
