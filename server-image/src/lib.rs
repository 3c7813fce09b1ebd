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

use std::process::ExitCode;

use clap::Parser as _;

/// The program `mooring-server`.
pub fn run() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(arguments) => {
            log::start(arguments.format(), &arguments.log_level)?;
            runtime.block_on(serve::run(*arguments)).map(|()| ExitCode::SUCCESS)
        }
        cli::Command::Healthcheck(arguments) => runtime.block_on(healthcheck::run(&arguments)),
    };
    // A thread that still waits for a line of input cannot be ended, and must not hold the process.
    runtime.shutdown_background();
    result
}
