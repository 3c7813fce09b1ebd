//! Image archives: what is in them, and that the same input gives the same bytes.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, Result};
use mooring_tests::images::Image;
use serde_json::Value;

fn sample() -> Image {
    let image = Image::new("localhost/sample:1").bytes("/bin/hello", "hello", 0o755).directory("/tmp", 0o1777);
    image.entrypoint(["/bin/hello"]).user("65532:65532").env("A", "b").label("org.example", "x").port(8080)
}

fn entries(tar: impl Read) -> Result<BTreeMap<String, (u32, Vec<u8>)>> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        found.insert(path, (entry.header().mode()?, bytes));
    }
    Ok(found)
}

#[test]
fn an_archive_names_what_it_holds() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("mooring-images-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (plain, again, small) = (folder.join("plain"), folder.join("again"), folder.join("small"));
    let written = sample().write(&plain)?;
    sample().write(&again)?;
    sample().compressed().write(&small)?;
    assert_eq!(std::fs::read(&plain)?, std::fs::read(&again)?, "the same input gives the same bytes");

    for archive in [&plain, &small] {
        let files = entries(std::fs::File::open(archive)?)?;
        let json =
            |path: &str| -> Result<Value> { Ok(serde_json::from_slice(&files.get(path).context("no file")?.1)?) };
        let blob = |digest: &Value| format!("blobs/{}", digest.as_str().unwrap_or_default().replace(':', "/"));
        let index = json("index.json")?;
        let manifest = json(&blob(&index["manifests"][0]["digest"]))?;
        let config = json(&blob(&manifest["config"]["digest"]))?;
        assert_eq!(config["config"]["Entrypoint"][0], "/bin/hello");
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Labels"]["org.example"], "x");
        assert!(config["config"]["ExposedPorts"]["8080/tcp"].is_object());
        let layer_path = blob(&manifest["layers"][0]["digest"]);
        let layer = &files[&layer_path].1;
        assert_eq!(manifest["layers"][0]["size"], layer.len());
        let layer = if archive == &small {
            entries(flate2::read::GzDecoder::new(layer.as_slice()))?
        } else {
            entries(layer.as_slice())?
        };
        assert_eq!(layer["bin/hello"], (0o755, b"hello".to_vec()));
        assert_eq!(layer["tmp/"].0, 0o1777);
        let docker = json("manifest.json")?;
        assert_eq!(docker[0]["RepoTags"][0], "localhost/sample:1");
        assert_eq!(docker[0]["Layers"][0], layer_path);
        if archive == &plain {
            assert_eq!(index["manifests"][0]["digest"], written.digest);
        }
    }
    Ok(std::fs::remove_dir_all(folder)?)
}
