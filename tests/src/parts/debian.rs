//! Debian packages as files, for what an image needs below its program.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{cache, command, preflight};

/// Unpacks packages of the machine's own Debian release into a folder, without what only people read.
pub(super) fn unpack(packages: &[&str], into: &Path) -> Result<()> {
    let work = into.with_extension("debs");
    cache::remove(&work)?;
    std::fs::create_dir_all(&work)?;
    std::fs::create_dir_all(into)?;
    preflight::apt_lists()?;
    // Without a sandbox user apt need not be able to write here as somebody else.
    let mut download = Command::new("apt-get");
    download.current_dir(&work).args(["-qq", "-o", "APT::Sandbox::User=root", "download"]).args(packages);
    command::run(&mut download)?;
    for entry in std::fs::read_dir(&work)? {
        command::run(Command::new("dpkg").arg("-x").arg(entry?.path()).arg(into))?;
    }
    cache::remove(&into.join("usr/share"))?;
    cache::remove(&work)
}
