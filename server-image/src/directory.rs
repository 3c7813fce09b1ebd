//! Reading a mounted directory as the kubelet writes it: the files are links through `..data`, a link that is swapped
//! for a whole new directory at once. A reading is of one generation, never of two.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mooring_contract::revision::revision;

/// The link that the kubelet swaps.
const DATA: &str = "..data";
/// How often a reading begins anew when the directory is swapped under it.
const ATTEMPTS: usize = 10;

/// The entries of one directory: file name and bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries(BTreeMap<String, Vec<u8>>);

impl<const N: usize> From<[(String, Vec<u8>); N]> for Entries {
    fn from(entries: [(String, Vec<u8>); N]) -> Self {
        Self(BTreeMap::from(entries))
    }
}

impl Entries {
    /// All entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// One entry.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Digest that the operator computes from what it wrote.
    pub fn revision(&self) -> String {
        revision(self.iter())
    }
}

/// Reads a directory. One that is absent is empty, because the mounts are optional.
pub fn read(directory: &Path) -> io::Result<Entries> {
    // Secrets and ConfigMaps have no entries that begin so; the kubelet's own do.
    read_named(directory, |name| !name.starts_with(".."))
}

/// The entries of some names.
fn read_named(directory: &Path, is_entry: impl Fn(&str) -> bool) -> io::Result<Entries> {
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
pub fn read_file(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a directory of a person's, without what editors leave in it, or a file as if it were alone in one.
pub fn read_any(path: &Path) -> io::Result<Entries> {
    if !path.is_file() {
        return read_named(path, |name| !is_left_over(name));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Entries(read_file(path)?.map(|bytes| (name, bytes)).into_iter().collect()))
}

/// Backups, locks and swap files of editors, and hidden files: `two~`, `#two#`, `.#two`, `.two.swp`.
fn is_left_over(name: &str) -> bool {
    name.starts_with('.') || name.ends_with('~') || (name.starts_with('#') && name.ends_with('#'))
}

fn data(directory: &Path, generation: Option<&Path>) -> PathBuf {
    generation.map_or_else(|| directory.to_owned(), |generation| directory.join(generation))
}

fn read_once(directory: &Path, is_entry: impl Fn(&str) -> bool) -> io::Result<Entries> {
    let mut entries = BTreeMap::new();
    let listing = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::default()),
        listing => listing?,
    };
    for entry in listing {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !is_entry(&name) || !std::fs::metadata(entry.path())?.is_file() {
            continue;
        }
        entries.insert(name, std::fs::read(entry.path())?);
    }
    Ok(Entries(entries))
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
        std::fs::remove_file(directory.path().join(".#two")).unwrap();
        assert_eq!(names(read(directory.path()).unwrap()), "#two# .hidden .two.swp a.b two two~");
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
