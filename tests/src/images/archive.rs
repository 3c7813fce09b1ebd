//! The bytes of an image archive: layer, config, manifest, index.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use super::{Content, Image, Written};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

pub(super) fn write(image: &Image, archive: &Path) -> Result<Written> {
    let layer_path = archive.with_extension("layer");
    let outcome = write_with(image, archive, &layer_path);
    let _ = fs::remove_file(&layer_path);
    outcome.with_context(|| format!("image {}", image.name))
}

fn write_with(image: &Image, archive: &Path, layer_path: &Path) -> Result<Written> {
    let layer = write_layer(image, layer_path)?;
    let config = serde_json::to_vec(&config(image, &layer.diff_id))?;
    let (config_digest, config_size) = (digest(&config), config.len());
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": config_digest, "size": config_size},
        "layers": [{"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}],
    }))?;
    let manifest_digest = digest(&manifest);
    let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": MANIFEST,
            "digest": manifest_digest,
            "size": manifest.len(),
            "annotations": {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag},
            "platform": {"architecture": architecture(), "os": "linux"},
        }],
    });
    let for_docker = json!([{
        "Config": blob(&config_digest),
        "RepoTags": [image.name],
        "Layers": [blob(&layer.digest)],
    }]);

    let mut tar = tar::Builder::new(BufWriter::new(File::create(archive)?));
    append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut tar, "index.json", &serde_json::to_vec(&index)?)?;
    append(&mut tar, "manifest.json", &serde_json::to_vec(&for_docker)?)?;
    append(&mut tar, &blob(&manifest_digest), &manifest)?;
    append(&mut tar, &blob(&config_digest), &config)?;
    let mut head = header(EntryType::Regular, 0o644, layer.size);
    tar.append_data(&mut head, blob(&layer.digest), BufReader::new(File::open(layer_path)?))?;
    tar.into_inner()?.flush()?;
    Ok(Written { digest: manifest_digest, layer_bytes: layer.size })
}

/// The name that image manifests use for this processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn config(image: &Image, diff_id: &str) -> Value {
    let mut env = vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()];
    env.extend(image.config.env.iter().map(|(name, value)| format!("{name}={value}")));
    let mut run = serde_json::Map::from_iter([("Env".to_owned(), json!(env))]);
    let mut set = |name: &str, value: Value, empty: bool| {
        if !empty {
            run.insert(name.to_owned(), value);
        }
    };
    let of = &image.config;
    set("Entrypoint", json!(of.entrypoint), of.entrypoint.is_empty());
    set("Cmd", json!(of.command), of.command.is_empty());
    set("User", json!(of.user), of.user.is_empty());
    set("WorkingDir", json!(of.working_dir), of.working_dir.is_empty());
    let ports: BTreeMap<String, Value> = of.ports.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect();
    set("ExposedPorts", json!(ports), ports.is_empty());
    let labels: BTreeMap<_, _> = image.labels.iter().cloned().collect();
    set("Labels", json!(labels), labels.is_empty());
    json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": architecture(),
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "mooring"}],
    })
}

struct Layer {
    media_type: &'static str,
    /// Of the bytes as they lie in the archive.
    digest: String,
    size: u64,
    /// Of the tar before compression.
    diff_id: String,
}

fn write_layer(image: &Image, path: &Path) -> Result<Layer> {
    let file = Hashing::new(BufWriter::new(File::create(path)?));
    if image.compress {
        let zip = GzEncoder::new(file, Compression::best());
        let tar = fill(image, Hashing::new(zip))?;
        let diff_id = tar.digest();
        let file = tar.inner.finish()?;
        let (digest, size) = file.close()?;
        return Ok(Layer { media_type: "application/vnd.oci.image.layer.v1.tar+gzip", digest, size, diff_id });
    }
    let (digest, size) = fill(image, file)?.close()?;
    Ok(Layer { media_type: "application/vnd.oci.image.layer.v1.tar", diff_id: digest.clone(), digest, size })
}

/// One thing in the layer. A map of these by path is sorted and has each path once.
enum Item {
    Directory(u32),
    File(PathBuf, u32),
    Bytes(Vec<u8>, u32),
    Link(PathBuf),
}

fn fill<W: Write>(image: &Image, into: W) -> Result<W> {
    let mut items = BTreeMap::new();
    for entry in &image.entries {
        let mut parent = PathBuf::new();
        let path = Path::new(&entry.path);
        for part in path.parent().into_iter().flat_map(Path::components) {
            parent.push(part);
            items.entry(parent.clone()).or_insert(Item::Directory(0o755));
        }
        match &entry.content {
            Content::File { source, mode } => drop(items.insert(path.into(), Item::File(source.clone(), *mode))),
            Content::Bytes { bytes, mode } => drop(items.insert(path.into(), Item::Bytes(bytes.clone(), *mode))),
            Content::Directory { mode } => drop(items.insert(path.into(), Item::Directory(*mode))),
            Content::Tree { source } => collect(source, path, &mut items)?,
        }
    }
    let mut tar = tar::Builder::new(into);
    for (path, item) in items {
        match item {
            Item::Directory(mode) => {
                let path = path.join(""); // a directory's name ends with a slash
                tar.append_data(&mut header(EntryType::Directory, mode, 0), path, io::empty())?;
            }
            Item::File(source, mode) => {
                let file = File::open(&source).with_context(|| format!("cannot read {}", source.display()))?;
                let size = file.metadata()?.len();
                tar.append_data(&mut header(EntryType::Regular, mode, size), path, file.take(size))?;
            }
            Item::Bytes(bytes, mode) => {
                let mut head = header(EntryType::Regular, mode, bytes.len() as u64);
                tar.append_data(&mut head, path, bytes.as_slice())?;
            }
            Item::Link(target) => tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?,
        }
    }
    Ok(tar.into_inner()?)
}

fn collect(source: &Path, at: &Path, items: &mut BTreeMap<PathBuf, Item>) -> Result<()> {
    for entry in fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))? {
        let entry = entry?;
        let (from, path) = (entry.path(), at.join(entry.file_name()));
        let kind = entry.file_type()?;
        let mode = entry.metadata()?.permissions().mode() & 0o7777;
        if kind.is_symlink() {
            items.insert(path, Item::Link(fs::read_link(&from)?));
        } else if kind.is_dir() {
            items.insert(path.clone(), Item::Directory(mode));
            collect(&from, &path, items)?;
        } else {
            items.insert(path, Item::File(from, mode));
        }
    }
    Ok(())
}

fn append<W: Write>(tar: &mut tar::Builder<W>, path: &str, bytes: &[u8]) -> Result<()> {
    Ok(tar.append_data(&mut header(EntryType::Regular, 0o644, bytes.len() as u64), path, bytes)?)
}

/// Owned by root at the beginning of time, so that the same input gives the same bytes.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn digest(bytes: &[u8]) -> String {
    spell(&Sha256::digest(bytes))
}

fn spell(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Counts and hashes what is written through it.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Hashing<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    fn digest(&self) -> String {
        spell(&self.hash.clone().finalize())
    }

    fn close(mut self) -> Result<(String, u64)> {
        self.inner.flush()?;
        Ok((self.digest(), self.size))
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
