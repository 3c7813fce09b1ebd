//! The image that holds a pod's namespaces open.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::source;
use crate::images::Image;
use crate::{cache, command};

/// The name that containerd is configured with.
pub const PAUSE: &str = "localhost/pause:1";

/// The archive of the pause image.
pub fn pause() -> Result<PathBuf> {
    let program = source("cluster/pause/pause.c");
    let key = cache::key([std::fs::read(&program)?, PAUSE.into()]);
    cache::made("images/pause", &key, "Making the pause image", |out| {
        let binary = out.with_extension("bin");
        command::run(Command::new("cc").args(["-static", "-Os", "-s", "-o"]).arg(&binary).arg(&program))?;
        Image::new(PAUSE).file("/pause", &binary, 0o755).entrypoint(["/pause"]).write(out)?;
        cache::remove(&binary)
    })
}
