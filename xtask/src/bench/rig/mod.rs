//! What benches of the front door stand on: one tiny server and its callers on one processor, what is measured alone on another. Rounds go through all that
//! is compared in turn, and medians count, so that a busy moment of the machine touches all alike.

pub mod backend;
pub mod cost;
pub mod door;
pub mod load;
pub mod proxies;
pub mod running;
pub mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mooring_tests::process::free_port;
use mooring_tests::product::{self, Product};
use tokio::runtime::Runtime;

/// Processor of the callers and the backend.
const CALLERS: usize = 0;
/// Processor of what is measured.
const MEASURED: usize = 1;
/// How often everything is measured.
pub const ROUNDS: usize = 5;
/// How long one measurement takes.
pub const LENGTH: Duration = Duration::from_secs(1);
/// Calls a second where latency is measured: what every proxy can do.
pub const RATE: f64 = 1000.0;

/// The front door of the image, who calls it, and a place for files.
pub struct Room {
    /// The front door.
    pub door: Product,
    folder: PathBuf,
    /// Where the callers and the backend run.
    pub callers: Runtime,
}

impl Room {
    /// Builds the front door, which may take minutes the first time.
    pub async fn new() -> Result<Self> {
        ensure!(
            std::thread::available_parallelism()?.get() > MEASURED,
            "two processors are needed: one for the callers, one for what is measured"
        );
        let door = tokio::task::spawn_blocking(product::build).await??.front_door;
        let folder = std::env::temp_dir().join(format!("mooring-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self { door, folder, callers: on_processor(CALLERS)? })
    }

    /// A folder of this name.
    pub fn place(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Takes everything away.
    pub fn leave(self) -> Result<()> {
        self.callers.shutdown_background();
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }
}

/// A runtime of its own for one role, on one processor.
fn on_processor(processor: usize) -> Result<Runtime> {
    let pin = move || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(processor);
        // Without it the figures are less steady, not wrong.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().on_thread_start(pin).build().context("no runtime")
}

/// An address that nobody listens on.
pub fn free() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}

/// Writes a file and returns its path.
pub fn write(folder: &Path, name: &str, content: &str) -> Result<String> {
    let file = folder.join(name);
    std::fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(text(&file))
}

/// Arguments of a program.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}
