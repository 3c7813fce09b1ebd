//! One front door at rest: how soon it is ready after exec, and what it holds.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mooring_tests::mcp::Target;
use mooring_tests::product::Products;
use serde_json::json;
use tokio::process::Command;

use super::rig::door::mounted;
use super::rig::free;
use super::{Figures, percentile};

const RUNS: usize = 15;

pub async fn measure(products: &Products, figures: &mut Figures) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("mooring-bench-{}", std::process::id()));
    let outcome = measure_in(products, &folder, figures).await;
    std::fs::remove_dir_all(&folder)?;
    outcome
}

async fn measure_in(products: &Products, folder: &Path, figures: &mut Figures) -> Result<()> {
    let config = json!({
        "version": 1,
        "server": {"name": "bench"},
        "path": "/",
        "security": {"anonymous": true},
        "source": {"tools": [{"name": "a", "inputSchema": {"type": "object"}, "http": {"method": "GET", "url": "http://127.0.0.1:9/", "timeoutMs": 1000}}]},
        "limits": {"bodyBytes": 4_194_304, "callTimeoutMs": 600_000},
    });
    let mounted = mounted(folder, &config)?;
    let mut ready = Vec::new();
    let mut memory = Vec::new();
    for _ in 0..RUNS {
        let (address, management) = (free()?, free()?);
        let mut serve = Command::new(&products.front_door.binary);
        serve.arg("serve").args(["--listen", &address.to_string(), "--management-listen", &management.to_string()]);
        serve.args(&mounted);
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let start = Instant::now();
        let mut door = serve.spawn().context("the front door does not start")?;
        let target =
            Target { address, host: "localhost".into(), path: "/health/ready".into(), key: None, headers: Vec::new() };
        loop {
            if target.send("GET", "").await.is_ok_and(|answer| answer.status == 200) {
                break;
            }
            anyhow::ensure!(start.elapsed() < Duration::from_secs(10), "the front door is not ready after 10 s");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        ready.push(start.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(Duration::from_millis(300)).await; // at rest, after the first request
        memory.push(resident(door.id().context("the front door has ended")?)?);
        door.kill().await?;
    }
    ready.sort_by(f64::total_cmp);
    memory.sort_by(f64::total_cmp);
    figures.add("front door ready after exec, median", percentile(&ready, 0.5), "ms", Some("20"));
    figures.add("front door idle memory, median", percentile(&memory, 0.5), "MiB", Some("10"));
    Ok(())
}

/// Resident memory of a process in MiB.
fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}
