//! The front door: one small process in front of an MCP server, inside its pod. `pipeline` has the way of a request on
//! one page; `serve` starts and ends the process.
//!
//! It is a library for the fuzz targets alone: the program is [`run`].

mod accept;
mod admit;
mod body;
mod cli;
mod clients;
mod clock;
mod commit;
mod directory;
mod door;
mod era;
mod exchange;
mod handshake;
mod headers;
mod health;
mod healthcheck;
mod host;
mod keys;
#[cfg(any(fuzzing, test))]
pub mod laws;
mod location;
mod log;
mod loopback;
mod management;
mod metrics;
mod origin;
mod peek;
mod pipeline;
mod policy;
mod proxies;
mod refusal;
mod relay;
mod reload;
mod route;
mod rules;
mod serve;
mod session;
mod sources;
mod sse;
mod stdio;
mod stream;
#[cfg(test)]
mod tests;
mod tools;
mod who;
mod wire;
mod written;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use log::Lines;

/// Longest wait at the end for somebody to read the log.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The program `mooring-server`.
pub fn run() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let words: Vec<_> = std::env::args_os().collect();
    let command = match cli::Cli::read(&words, variable) {
        Ok(cli) => cli.command,
        Err(error) => {
            error.print()?;
            return Ok(left_with(&words, &error));
        }
    };
    let result = match command {
        cli::Command::Serve(arguments) => {
            let LastWords(log) = &LastWords(log::start(arguments.format(), &arguments.log_level)?);
            let ended = runtime.block_on(serve::run(*arguments));
            if let Err(error) = &ended {
                (&**log).write_all(format!("Error: {error:#}\n").as_bytes())?; // one line; it never blocks
            }
            Ok(if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        cli::Command::Healthcheck(arguments) => runtime.block_on(healthcheck::run(&arguments)),
    };
    // A thread that still waits for a line of input cannot be ended, and must not hold the process.
    runtime.shutdown_background();
    result
}

/// A log whose last lines are waited for, however its program ends.
struct LastWords(Arc<Lines>);

impl Drop for LastWords {
    fn drop(&mut self) {
        self.0.flush(LAST_WORDS);
    }
}

#[expect(clippy::disallowed_methods, reason = "the rim: variables of flags")]
fn variable(name: &OsStr) -> Option<OsString> {
    std::env::var_os(name)
}

/// A health check knows only 0 and 1: container runtimes keep 2 for themselves.
fn left_with(words: &[OsString], error: &clap::Error) -> ExitCode {
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if words.get(1).is_some_and(|word| word == "healthcheck") => ExitCode::FAILURE,
        code => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}
