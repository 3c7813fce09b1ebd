//! Container images without a container engine: one layer, written straight as an archive that containerd, podman and docker load.
//!
//! The archive is an OCI image layout with docker's `manifest.json` beside it, as `docker save` writes it. The same input gives the same bytes.

mod archive;

use std::path::{Path, PathBuf};

use anyhow::Result;

/// What an image is made from. Later entries cover earlier ones at the same path.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    entries: Vec<Entry>,
    config: Config,
    labels: Vec<(String, String)>,
    compress: bool,
}

/// How a container of the image starts.
#[derive(Clone, Debug, Default)]
struct Config {
    entrypoint: Vec<String>,
    command: Vec<String>,
    env: Vec<(String, String)>,
    user: String,
    working_dir: String,
    ports: Vec<u16>,
}

#[derive(Clone, Debug)]
struct Entry {
    path: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    File { source: PathBuf, mode: u32 },
    Bytes { bytes: Vec<u8>, mode: u32 },
    Directory { mode: u32 },
    Tree { source: PathBuf },
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The digest of the manifest, `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The size of the layer as it would travel from a registry.
    pub layer_bytes: u64,
}

impl Image {
    /// An empty image with a full name and a tag, such as `localhost/mooring:dev`.
    pub fn new(name: impl Into<String>) -> Self {
        let (entries, labels) = (Vec::new(), Vec::new());
        Self { name: name.into(), entries, config: Config::default(), labels, compress: false }
    }

    /// A file of this machine at an absolute path in the image.
    #[must_use]
    pub fn file(self, path: &str, source: &Path, mode: u32) -> Self {
        self.entry(path, Content::File { source: source.to_owned(), mode })
    }

    /// A file with this content.
    #[must_use]
    pub fn bytes(self, path: &str, bytes: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entry(path, Content::Bytes { bytes: bytes.into(), mode })
    }

    /// An empty directory, such as `/tmp` with mode 1777.
    #[must_use]
    pub fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(path, Content::Directory { mode })
    }

    /// Everything below a directory of this machine, owned by root.
    #[must_use]
    pub fn tree(self, path: &str, source: &Path) -> Self {
        self.entry(path, Content::Tree { source: source.to_owned() })
    }

    /// The program, with its first arguments.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, argv: impl IntoIterator<Item = S>) -> Self {
        self.config.entrypoint = argv.into_iter().map(Into::into).collect();
        self
    }

    /// Arguments that a pod's `args` replace.
    #[must_use]
    pub fn command<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.config.command = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// A variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.config.env.push((name.into(), value.into()));
        self
    }

    /// The user, by number where a pod must prove that it is not root.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.config.user = user.into();
        self
    }

    /// The directory that the program starts in.
    #[must_use]
    pub fn working_dir(mut self, path: &str) -> Self {
        self.config.working_dir = path.into();
        self
    }

    /// A TCP port that the program listens on, for people who read the image.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.config.ports.push(port);
        self
    }

    /// A label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// Compresses the layer with gzip: smaller, but slower to write and to load.
    #[must_use]
    pub fn compressed(mut self) -> Self {
        self.compress = true;
        self
    }

    /// Writes the archive.
    pub fn write(&self, archive: &Path) -> Result<Written> {
        archive::write(self, archive)
    }

    fn entry(mut self, path: &str, content: Content) -> Self {
        self.entries.push(Entry { path: path.trim_matches('/').to_owned(), content });
        self
    }
}
