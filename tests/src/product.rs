//! Mooring's own images, built from this workspace: static binaries for the release profile, each in an image of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::images::{Image, Written};
use crate::{command, preflight, progress};

/// The operator's image.
pub const OPERATOR: &str = "localhost/mooring:dev";
/// The front door's image.
pub const FRONT_DOOR: &str = "localhost/mooring-server:dev";
/// The image of the API behind `examples/weather.yaml`.
pub const WEATHER_API: &str = "localhost/weather-api:dev";
/// The image of the MCP server that the official conformance suite asks; it listens on port 8000, path `/mcp`, and tells at
/// `/calls` how many requests came there.
pub const CONFORMANCE_SERVER: &str = "localhost/conformance-server:dev";

/// musl, because an image without a libc needs a binary without one.
const TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-musl" } else { "x86_64-unknown-linux-musl" };

/// One image of ours.
#[derive(Clone, Debug)]
pub struct Product {
    /// Its name in the clusters of tests and demo.
    pub name: &'static str,
    /// The static binary.
    pub binary: PathBuf,
    /// The archive.
    pub archive: PathBuf,
    /// What was written.
    pub written: Written,
}

/// The three images.
#[derive(Clone, Debug)]
pub struct Products {
    /// The operator.
    pub operator: Product,
    /// The front door.
    pub front_door: Product,
    /// The API behind the weather example.
    pub weather_api: Product,
}

impl Products {
    /// All archives, for loading into a cluster.
    pub fn archives(&self) -> Vec<PathBuf> {
        [&self.operator, &self.front_door, &self.weather_api].map(|product| product.archive.clone()).to_vec()
    }
}

/// Builds binaries and images. Cargo does nothing where nothing changed; the archives are the same bytes then.
pub fn build() -> Result<Products> {
    compile(&["mooring", "mooring-server", "weather-api"])?;
    Ok(Products {
        operator: product(OPERATOR, "mooring", &["operator"])?,
        front_door: product(FRONT_DOOR, "mooring-server", &["serve", "--kubernetes"])?,
        weather_api: product(WEATHER_API, "weather-api", &[])?,
    })
}

/// The same for [`CONFORMANCE_SERVER`], which only the conformance suite needs.
pub fn conformance_server() -> Result<Product> {
    compile(&["conformance-server"])?;
    product(CONFORMANCE_SERVER, "conformance-server", &[])
}

/// The static binary of another program of this workspace, built as those that ship.
pub fn program(package: &str) -> Result<PathBuf> {
    compile(&[package])?;
    Ok(target().join(TARGET).join("release").join(package))
}

fn compile(packages: &[&str]) -> Result<()> {
    toolchain()?;
    let what = format!("Building {} as static binaries (a few minutes the first time)", packages.join(", "));
    progress::step(&what, || {
        let mut cargo = command::cargo();
        cargo.current_dir(workspace()).args(["build", "--release", "--locked", "--target", TARGET]);
        for package in packages {
            cargo.args(["--package", package]);
        }
        command::run(&mut cargo).map(drop)
    })
}

fn product(name: &'static str, program: &str, arguments: &[&str]) -> Result<Product> {
    let folder = target().join(TARGET).join("release");
    let binary = folder.join(program);
    let archives = target().join("images");
    std::fs::create_dir_all(&archives).with_context(|| format!("cannot make {}", archives.display()))?;
    let archive = archives.join(format!("{program}.tar"));
    let written = Image::new(name)
        .file(program, &binary, 0o755)
        .entrypoint([format!("/{program}")])
        .command(arguments.iter().copied())
        .user("65532:65532")
        .label("org.opencontainers.image.title", program)
        .label("org.opencontainers.image.version", env!("CARGO_PKG_VERSION"))
        .label("org.opencontainers.image.licenses", "Apache-2.0")
        .compressed()
        .write(&archive)?;
    Ok(Product { name, binary, archive, written })
}

/// Brings what a static build needs and the machine does not have yet.
fn toolchain() -> Result<()> {
    if !preflight::has("musl-gcc") {
        preflight::install(&["musl-tools"])?;
    }
    let installed =
        command::run(Command::new("rustup").current_dir(workspace()).args(["target", "list", "--installed"])).context(
            "rustup brings the standard library for static binaries; install it, or the target by other means",
        )?;
    if installed.lines().any(|line| line.trim() == TARGET) {
        return Ok(());
    }
    let add = command::run(Command::new("rustup").current_dir(workspace()).args(["target", "add", TARGET]));
    if let Err(error) = add {
        bail!("the Rust target {TARGET} is missing and could not be added: {error:#}");
    }
    Ok(())
}

/// The clone.
pub fn workspace() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.parent().unwrap_or(folder).to_owned()
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}
