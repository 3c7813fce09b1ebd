//! Makes every image archive that the suites use, and prints where it is: `cargo run -p mooring-tests --example images`.

use mooring_tests::parts::{self, servers};

fn main() -> anyhow::Result<()> {
    for archive in [parts::pause()?, parts::traefik()?, servers::everything()?, servers::fastmcp()?] {
        println!("{} {} MB", archive.display(), std::fs::metadata(&archive)?.len() / 1_000_000);
    }
    Ok(())
}
