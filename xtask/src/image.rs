//! `cargo xtask image`: the archives, and how a cluster gets them.

use anyhow::Result;
use mooring_tests::parts::servers;
use mooring_tests::product;

pub fn run(all: bool) -> Result<()> {
    let products = product::build()?;
    println!("{:<44} {:>10} {:>10}  archive", "image", "binary", "image");
    for product in [&products.operator, &products.front_door, &products.weather_api] {
        let binary = std::fs::metadata(&product.binary)?.len();
        let (binary, image) = (mebibytes(binary), mebibytes(product.written.layer_bytes));
        println!("{:<44} {binary:>6} MiB {image:>6} MiB  {}", product.name, product.archive.display());
    }
    if all {
        for (name, archive) in [(servers::EVERYTHING, servers::everything()?), (servers::FASTMCP, servers::fastmcp()?)]
        {
            let image = mebibytes(std::fs::metadata(&archive)?.len());
            println!("{name:<44} {:>10} {image:>6} MiB  {}", "", archive.display());
        }
    }
    println!("\nLoad them into a node or an engine with one of:");
    println!("  ctr --namespace k8s.io images import FILE");
    println!("  kind load image-archive FILE");
    println!("  podman load --input FILE");
    println!("  docker load --input FILE");
    println!("or push them to a registry without an engine:");
    println!("  skopeo copy oci-archive:FILE docker://REGISTRY/mooring:dev");
    Ok(())
}

/// One digit after the point.
pub fn mebibytes(bytes: u64) -> String {
    let tenths = bytes * 10 / (1024 * 1024);
    format!("{}.{}", tenths / 10, tenths % 10)
}
