//! Reading a mounted directory as the kubelet writes it: the files are links through `..data`, a link that is swapped
//! for a whole new directory at once. A reading is of one generation, never of two.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use mooring_contract::revision::revision;

/// The link that the kubelet swaps.
const DATA: &str = "..data";
/// How often a reading begins anew when the directory is swapped under it.
const ATTEMPTS: usize = 10;

/// A file or directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} cannot be read: {reason}")]
pub struct Unreadable {
    path: String,
    reason: String,
}

impl Unreadable {
    /// What is at `path`, and why.
    pub fn new(path: &Path, reason: impl Display) -> Self {
        Self { path: path.display().to_string(), reason: reason.to_string() }
    }
}

/// The entries of one directory: file name and bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    readable: BTreeMap<String, Vec<u8>>,
    /// Why the others are not.
    unreadable: BTreeMap<String, String>,
}

impl<const N: usize> From<[(String, Vec<u8>); N]> for Entries {
    fn from(entries: [(String, Vec<u8>); N]) -> Self {
        Self { readable: BTreeMap::from(entries), ..Self::default() }
    }
}

impl Entries {
    /// All entries that can be read, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.readable.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// The others, each with the reason.
    pub fn unreadable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unreadable.iter().map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    /// One entry.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.readable.get(name).map(Vec::as_slice)
    }

    /// Digest that the operator computes from what it wrote.
    pub fn revision(&self) -> String {
        revision(self.iter())
    }

    fn insert(&mut self, name: String, content: Content) {
        match content {
            Content::Bytes(bytes) => drop(self.readable.insert(name, bytes)),
            Content::None(reason) => drop(self.unreadable.insert(name, reason)),
            Content::Directory => {}
        }
    }
}

/// What is behind a name.
enum Content {
    Bytes(Vec<u8>),
    Directory,
    /// Nothing that can be read, and will not be without a change.
    None(String),
}

/// Reads a directory. One that is absent is empty, because the mounts are optional.
pub fn read(directory: &Path) -> Result<Entries, Unreadable> {
    // Secrets and ConfigMaps have no entries that begin so; the kubelet's own do.
    read_named(directory, |name| !name.starts_with(".."))
}

/// The entries of some names.
fn read_named(directory: &Path, is_entry: impl Fn(&str) -> bool) -> Result<Entries, Unreadable> {
    let mut result = Ok(Entries::default());
    for _ in 0..ATTEMPTS {
        let generation = std::fs::read_link(directory.join(DATA)).ok();
        result = read_once(&data(directory, generation.as_deref()), &is_entry);
        let swapped = std::fs::read_link(directory.join(DATA)).ok() != generation;
        if result.is_ok() && !swapped {
            break;
        }
    }
    result
}

/// Reads one file, if it is there.
pub fn read_file(file: &Path) -> Result<Option<Vec<u8>>, Unreadable> {
    match content(file) {
        Ok(Content::Bytes(bytes)) => Ok(Some(bytes)),
        Ok(Content::Directory) => Err(Unreadable::new(file, "it is a directory")),
        Ok(Content::None(reason)) => Err(Unreadable::new(file, reason)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Unreadable::new(file, error)),
    }
}

/// Reads a directory of a person's, without what editors leave in it, or a file as if it were alone in one.
pub fn read_any(path: &Path) -> Result<Entries, Unreadable> {
    let mut entries = Entries::default();
    match content(path) {
        Ok(Content::Directory) => return read_named(path, |name| !is_left_over(name)),
        Ok(content) => entries.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Unreadable::new(path, error)),
    }
    Ok(entries)
}

/// Backups, locks and swap files of editors, and hidden files: `two~`, `#two#`, `.#two`, `.two.swp`.
fn is_left_over(name: &str) -> bool {
    name.starts_with('.') || name.ends_with('~') || (name.starts_with('#') && name.ends_with('#'))
}

fn data(directory: &Path, generation: Option<&Path>) -> PathBuf {
    generation.map_or_else(|| directory.to_owned(), |generation| directory.join(generation))
}

fn read_once(directory: &Path, is_entry: impl Fn(&str) -> bool) -> Result<Entries, Unreadable> {
    let unreadable = |error: io::Error| Unreadable::new(directory, error);
    let mut entries = Entries::default();
    let listing = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::default()),
        listing => listing.map_err(unreadable)?,
    };
    for entry in listing {
        let entry = entry.map_err(unreadable)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !is_entry(&name) {
            continue;
        }
        let path = entry.path();
        entries.insert(name, content(&path).map_err(|error| Unreadable::new(&path, error))?);
    }
    Ok(entries)
}

/// The error is of what may pass by itself: a file that is gone meanwhile, too many open files.
fn content(path: &Path) -> io::Result<Content> {
    let read = || {
        let metadata = std::fs::metadata(path)?;
        if metadata.is_dir() {
            return Ok(Content::Directory);
        }
        if !metadata.is_file() {
            return Ok(Content::None("it is no regular file".to_owned())); // to open a pipe is to wait for its other end
        }
        Ok(Content::Bytes(std::fs::read(path)?))
    };
    read().or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound if path.is_symlink() => Ok(Content::None("it is a link to nothing".to_owned())),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => Ok(Content::None(error.to_string())),
        _ if std::fs::metadata(path).is_err() && path.is_symlink() => Ok(Content::None(error.to_string())), // a circle
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::kubelet::Mount;

    #[test]
    fn a_mount_is_read_through_its_link() {
        let mount = Mount::new();
        assert_eq!(read(mount.path()).unwrap(), Entries::default());
        mount.swap(&[("a", "1"), ("b", "2")]);
        let entries = read(mount.path()).unwrap();
        assert_eq!(entries.iter().collect::<Vec<_>>(), [("a", &b"1"[..]), ("b", &b"2"[..])]);
        mount.swap(&[("a", "3")]);
        assert_eq!(read(mount.path()).unwrap().iter().collect::<Vec<_>>(), [("a", &b"3"[..])]);
        mount.swap(&[]);
        assert_eq!(read(mount.path()).unwrap(), Entries::default());
    }

    #[test]
    fn a_plain_directory_and_an_absent_one_are_read() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "1").unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        assert_eq!(read(directory.path()).unwrap().get("a"), Some(&b"1"[..]));
        assert_eq!(read(&directory.path().join("absent")).unwrap(), Entries::default());
    }

    #[test]
    fn what_editors_leave_behind_is_no_entry_of_a_person() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["two", "two~", "#two#", ".two.swp", ".hidden", "a.b"] {
            std::fs::write(directory.path().join(name), "1").unwrap();
        }
        std::os::unix::fs::symlink("somebody@nowhere:1", directory.path().join(".#two")).unwrap(); // a lock leads nowhere
        let names = |entries: Entries| entries.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(read_any(directory.path()).unwrap()), "a.b two");
        assert_eq!(names(read_any(&directory.path().join(".hidden")).unwrap()), ".hidden");
        assert_eq!(names(read(directory.path()).unwrap()), "#two# .hidden .two.swp a.b two two~");
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_rest_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("a"), "1").unwrap();
        std::os::unix::fs::symlink("nobody@nowhere.123", path(".#a")).unwrap();
        std::os::unix::fs::symlink("a/b", path("beyond")).unwrap();
        std::os::unix::fs::symlink("itself", path("itself")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(pipe.success());
        let entries = read(directory.path()).unwrap();
        assert_eq!(entries.iter().collect::<Vec<_>>(), [("a", &b"1"[..])]);
        let told: Vec<_> = entries.unreadable().map(|(name, reason)| format!("{name}: {reason}")).collect();
        assert_eq!(
            told,
            [
                ".#a: it is a link to nothing",
                "beyond: Not a directory (os error 20)",
                "itself: Too many levels of symbolic links (os error 40)",
                "pipe: it is no regular file",
            ]
        );
        assert_eq!(
            read_any(&path("pipe")).unwrap().unreadable().collect::<Vec<_>>(),
            [("pipe", "it is no regular file")]
        );
        assert_eq!(read_any(&path("absent")).unwrap(), Entries::default());
        let told = |name: &str| read_file(&path(name)).unwrap_err().to_string();
        assert_eq!(told("pipe"), format!("{} cannot be read: it is no regular file", path("pipe").display()));
        assert_eq!(told(""), format!("{} cannot be read: it is a directory", path("").display()));
        assert_eq!(read_file(&path("absent")).unwrap(), None);
    }

    #[test]
    fn a_reading_is_of_one_generation() {
        let mount = Mount::new();
        mount.swap(&[("a", "0"), ("b", "0"), ("c", "0")]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 1..300 {
                    let text = number.to_string();
                    mount.swap(&[("a", &text), ("b", &text), ("c", &text)]);
                }
            });
            while !writer.is_finished() {
                let entries = read(mount.path()).unwrap();
                let values: Vec<_> = entries.iter().map(|(_, bytes)| bytes.to_vec()).collect();
                assert_eq!(values, vec![values[0].clone(); 3]);
            }
        });
    }
}
