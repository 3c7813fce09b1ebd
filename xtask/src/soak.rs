//! `cargo xtask soak`: the front door under mixed traffic for long. The test is that of the suite `front-door`, which takes
//! half a minute for it.

use anyhow::{Result, ensure};
use mooring_tests::{command, product, soak};

/// Soaks it for so many minutes, and shows the figures.
pub fn run(minutes: u32) -> Result<()> {
    let mut cargo = command::cargo();
    cargo.current_dir(product::workspace()).env(soak::MINUTES, minutes.to_string());
    cargo.args(["test", "--locked", "-p", "mooring-tests", "--test", "soak", "--", "--nocapture"]);
    ensure!(cargo.status()?.success(), "the front door keeps what it should not, or answers wrongly");
    Ok(())
}
