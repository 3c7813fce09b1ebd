//! Runs programs of the machine and turns a failure into an error that says which program, and what it said.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;

/// Runs the command to its end and returns its standard output.
pub fn run(command: &mut Command) -> Result<String> {
    let name = name(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    text(&name, &output)
}

/// Runs the command to its end without blocking the runtime and returns its standard output.
pub async fn run_async(mut command: tokio::process::Command) -> Result<String> {
    let name = name(command.as_std());
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {name}"))?;
    text(&name, &output)
}

/// Runs the command with this standard input, without blocking the runtime, and returns its standard output.
pub async fn run_with_input(mut command: tokio::process::Command, input: &[u8]) -> Result<String> {
    let name = name(command.as_std());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let mut stdin = child.stdin.take().context("a standard input")?;
    let feed = async move { stdin.write_all(input).await };
    // A program that fails early closes its input; what it says then matters more than the broken pipe.
    let (_, output) = tokio::join!(feed, child.wait_with_output());
    text(&name, &output?)
}

/// The output of a command that succeeded; of one that failed, an error with the end of what it said.
pub fn text(name: &str, output: &Output) -> Result<String> {
    let out = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = format!("{out}{}", String::from_utf8_lossy(&output.stderr));
        bail!("{name} failed ({}):\n{}", output.status, tail(&said, 40));
    }
    Ok(out.into_owned())
}

/// Cargo, as a person would start it: without what cargo tells the programs that it runs itself. Build scripts of other
/// crates read some of that, and would build everything anew each time.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"];
    for (name, _) in std::env::vars_os() {
        if told.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all.iter().skip(all.len().saturating_sub(lines)).copied().collect::<Vec<_>>().join("\n")
}

fn name(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().take(6).map(|a| a.to_string_lossy().chars().take(80).collect()));
    words.join(" ")
}
