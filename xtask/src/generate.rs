//! `cargo xtask generate`: every file that is made from code. Tests compare them, so that drift fails.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use mooring_tests::product;

pub fn run() -> Result<()> {
    let crd = mooring_api::crd::yaml()?;
    write("crds/mcpservers.yaml", &crd)?;
    write("charts/mooring/files/mcpservers.yaml", &crd)?;
    write("docs/conditions.md", &mooring_api::condition::markdown())
}

fn write(path: &str, text: &str) -> Result<()> {
    let file = product::workspace().join(path);
    if fs::read_to_string(&file).is_ok_and(|found| found == text) {
        println!("{path}: up to date");
        return Ok(());
    }
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&file, text).with_context(|| format!("cannot write {path}"))?;
    println!("{path}: written");
    Ok(())
}
