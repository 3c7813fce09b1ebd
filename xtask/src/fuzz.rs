//! The fuzz targets of the front door, for a minute each. They need a nightly compiler and cargo-fuzz; where these are
//! missing that is said, and the same laws stand as tests of the front door, for their seeds and for any bytes.

use std::process::{Command, Stdio};

use anyhow::Result;
use mooring_tests::product;

const TARGETS: [&str; 5] = ["framing", "frames", "peek", "events", "token"];
const SECONDS: u32 = 60;

/// What they need, where it is missing.
pub fn missing() -> Option<&'static str> {
    let there = cargo_fuzz().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = there.is_ok_and(|status| status.success());
    (!there).then_some("they need `rustup toolchain install nightly` and `cargo install cargo-fuzz`")
}

/// Runs every target, and tells of each whether nothing was found.
pub fn run() -> Result<Vec<(&'static str, bool)>> {
    // The versions that are shipped are those that are tried.
    let house = product::workspace();
    std::fs::copy(house.join("Cargo.lock"), house.join("server-image/fuzz/Cargo.lock"))?;
    let folder = house.join("server-image/fuzz");
    let run = |target| {
        println!("\n== fuzz {target}");
        let found = folder.join("corpus").join(target);
        std::fs::create_dir_all(&found)?;
        let mut fuzz = cargo_fuzz();
        fuzz.args(["run", target]).arg(found).arg(folder.join("seeds").join(target)).arg("--");
        fuzz.arg(format!("-dict={}", folder.join("words").join(target).display()));
        fuzz.args([&format!("-max_total_time={SECONDS}"), "-max_len=2048", "-print_final_stats=1"]);
        Ok((target, fuzz.status()?.success()))
    };
    TARGETS.into_iter().map(run).collect()
}

fn cargo_fuzz() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]).current_dir(product::workspace().join("server-image"));
    // Cargo tells the programs that it runs which compiler it is; this one is another.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}
