//! What a run on somebody else's cluster leaves out is said by name and with the reason, past the test runner, which shows
//! nothing of a test that passes. In CI there is no such cluster (see [`crate::cluster::somebody_elses`]), so nothing is left out.

use std::fs::File;
use std::io::Write as _;

use anyhow::{Context, Result};

/// Names a file that gets a line for each.
pub const FILE: &str = "MOORING_TEST_LEFT_OUT";

/// Says that a test, or a part of it, is left out.
pub fn left_out(what: &str, why: &str) -> Result<()> {
    let line = format!("left out: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes())?;
    let Some(path) = std::env::var_os(FILE) else { return Ok(()) };
    let file = File::options().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The running test, as Rust's runner names its thread.
pub fn this_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}
