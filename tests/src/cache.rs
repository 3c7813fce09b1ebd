//! Where the harness keeps what is slow to make: outside the clone, keyed by what it is made from, made once and whole even
//! when two processes want it at once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::progress;

/// `$MOORING_CACHE`, else `mooring` below the user's cache directory.
pub fn root() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("MOORING_CACHE").unwrap_or_else(|| {
        let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        user.unwrap_or_else(std::env::temp_dir).join("mooring")
    })
}

/// A key for what is made from these parts, in this order.
pub fn key<I: IntoIterator<Item: AsRef<[u8]>>>(parts: I) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The path of `name` made from what `key` stands for. When it is not there yet, `make` writes it to the path that it is given (a file or a
/// directory), and it appears under its own name only once it is whole.
pub fn made(name: &str, key: &str, what: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let root = root();
    let path = root.join(format!("{name}-{key}"));
    if path.exists() {
        return Ok(path);
    }
    let folder = path.parent().context("a cache entry has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file_name = path.file_name().context("a cache entry has a name")?.to_string_lossy().into_owned();
    let lock = File::create(folder.join(format!(".{file_name}.lock")))?;
    if lock.try_lock().is_err() {
        progress::say(format!("{what}: another process is at it, waiting"));
        lock.lock()?;
    }
    if path.exists() {
        return Ok(path);
    }
    let unfinished = folder.join(format!(".{file_name}.unfinished"));
    remove(&unfinished)?;
    progress::step(what, || make(&unfinished))?;
    fs::rename(&unfinished, &path).with_context(|| format!("{what} left nothing at {}", unfinished.display()))?;
    Ok(path)
}

/// Removes a file or a directory; that there is none is no error.
pub fn remove(path: &Path) -> Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    gone.with_context(|| format!("cannot remove {}", path.display()))
}
