//! How long the front door is soaked: what `cargo xtask soak` says to the test.

use std::time::Duration;

use anyhow::{Context, Result};

/// The variable that says it, in minutes.
pub const MINUTES: &str = "MOORING_SOAK_MINUTES";

/// What it says; half a minute where it is not set.
pub fn time() -> Result<Duration> {
    let Ok(minutes) = std::env::var(MINUTES) else { return Ok(Duration::from_secs(30)) };
    let minutes: u64 = minutes.parse().with_context(|| format!("{MINUTES} is a number of minutes"))?;
    Ok(Duration::from_secs(minutes * 60))
}
