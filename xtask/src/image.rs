//! `cargo xtask image`: the archives, and how to load them.

use anyhow::Result;
use mooring_tests::product;

pub fn run() -> Result<()> {
    let products = product::build()?;
    println!("{:<32} {:>10} {:>10}  archive", "image", "binary", "image");
    for product in [&products.operator, &products.front_door, &products.weather_api] {
        let binary = std::fs::metadata(&product.binary)?.len();
        let (binary, image) = (mebibytes(binary), mebibytes(product.written.layer_bytes));
        println!("{:<32} {binary:>6} MiB {image:>6} MiB  {}", product.name, product.archive.display());
    }
    println!("\nLoad them with one of:");
    println!("  ctr --namespace k8s.io images import FILE");
    println!("  podman load --input FILE");
    println!("  docker load --input FILE");
    Ok(())
}

/// One digit after the point.
pub fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1024 * 1024);
    format!("{}.{}", tenths / 10, tenths % 10)
}
