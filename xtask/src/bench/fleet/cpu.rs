//! What the parts of a control plane use of the CPU, which the operator under the bench shares with them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// The parts.
pub const PARTS: [&str; 3] = ["kube-apiserver", "etcd", "kube-controller-manager"];

/// CPU seconds so far of each part of the cluster whose data lies here.
pub fn used(data: &Path) -> Result<BTreeMap<&'static str, f64>> {
    let data = data.to_string_lossy();
    let mut used = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        // A process that ends meanwhile has no files any more.
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let command = read("cmdline");
        let program = command.split('\0').next().unwrap_or_default();
        let Some(part) = PARTS.into_iter().find(|part| *part == program) else { continue };
        if command.contains(data.as_ref()) {
            used.insert(part, seconds(&read("stat")).with_context(|| format!("the CPU time of {part}"))?);
        }
    }
    Ok(used)
}

/// User and system time of `/proc/<pid>/stat`; Linux counts it in hundredths of a second.
fn seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).map(str::parse::<f64>);
    Some((fields.next()?.ok()? + fields.next()?.ok()?) / 100.0)
}
