//! `cargo xtask bench NAME`: figures, as a table and as JSON. A bench measures and prints; it does not judge. The aim beside a figure is what
//! the design asks for.

mod fleet;
mod front_door;
mod pods;
mod rig;
mod sessions;
mod speed;

use std::path::Path;

use anyhow::{Context, Result};
use mooring_tests::product;
use rig::Room;
use serde::Serialize;

/// A bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bench {
    /// The main job: images, front door at rest, apply to first answer, 200 and 1,000 servers
    Main,
    /// The front door beside nginx, Envoy, HAProxy, mcp-proxy and a bare relay: CPU for each call, latency, memory
    FrontDoor,
    /// Sessions: what it costs to pass a call on to another pod, to begin and to hold one; which stay whole, beside nginx, HAProxy and Envoy
    Sessions,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What the design asks for, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<String>,
}

/// The figures of one bench.
#[derive(Debug, Default, Serialize)]
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Adds a figure and prints it at once, so that a long bench shows progress.
    pub fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str, aim: Option<&str>) {
        let figure = Figure { what: what.into(), value, unit, aim: aim.map(str::to_owned) };
        println!("{}", line(&figure));
        self.0.push(figure);
    }
}

fn line(figure: &Figure) -> String {
    let aim = figure.aim.as_deref().map_or_else(String::new, |aim| format!("  (aim {aim})"));
    format!("{:<64} {:>10.2} {}{aim}", figure.what, figure.value, figure.unit)
}

/// Runs a bench.
pub fn run(name: Bench, json: Option<&Path>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut figures = Figures::default();
    match name {
        Bench::Main => runtime.block_on(main(&mut figures))?,
        Bench::FrontDoor | Bench::Sessions => runtime.block_on(in_a_room(name, &mut figures))?,
    }
    println!("\n{}", figures.0.iter().map(line).collect::<Vec<_>>().join("\n"));
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&figures)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

async fn main(figures: &mut Figures) -> Result<()> {
    let products = tokio::task::spawn_blocking(product::build).await??;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1024 * 1024);
    figures.add("image mooring-server", mebibytes(products.front_door.written.layer_bytes), "MiB", Some("12"));
    figures.add("image mooring", mebibytes(products.operator.written.layer_bytes), "MiB", None);
    front_door::measure(&products, figures).await?;
    pods::measure(&products, figures).await?;
    for count in [200, 1000] {
        fleet::measure(&products, count, figures).await?;
    }
    Ok(())
}

async fn in_a_room(name: Bench, figures: &mut Figures) -> Result<()> {
    let room = Room::new().await?;
    let outcome = match name {
        Bench::Sessions => sessions::measure(&room, figures).await,
        _ => speed::measure(&room, figures).await,
    };
    room.leave()?;
    outcome
}

/// The value in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    percentile(&values, 0.5)
}

/// The value below which this share of the sorted values lies.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted.get((last * share).round() as usize).copied().unwrap_or_default()
}
