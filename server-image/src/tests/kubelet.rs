//! A directory that is written as the kubelet writes a mounted Secret or ConfigMap.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A mount; gone when dropped.
pub struct Mount {
    directory: tempfile::TempDir,
    generation: AtomicU32,
}

impl Mount {
    /// An empty directory.
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), generation: AtomicU32::new(0) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Replaces all entries at once: a new directory, a swapped link, the user-visible links, the old directory gone.
    pub fn swap(&self, entries: &[(&str, &str)]) {
        let root = self.path();
        let name = format!("..2026_{}", self.generation.fetch_add(1, Ordering::Relaxed));
        std::fs::create_dir(root.join(&name)).unwrap();
        for (entry, text) in entries {
            std::fs::write(root.join(&name).join(entry), text).unwrap();
        }
        let old = std::fs::read_link(root.join("..data")).ok();
        symlink(&name, root.join("..data_tmp")).unwrap();
        std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        for (entry, _) in entries {
            let _ = symlink(Path::new("..data").join(entry), root.join(entry));
        }
        for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if !name.starts_with("..") && entries.iter().all(|(kept, _)| *kept != name) {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        if let Some(old) = old {
            std::fs::remove_dir_all(root.join(old)).unwrap();
        }
    }
}
