//! An MCP server with everything that the official conformance suite asks for, in both eras of the protocol, so that the
//! suite can judge what stands in front of it. It answers and remembers next to nothing; it knows nothing of front doors.
//!
//! Its own Host check is rmcp's default: loopback names only.
#![expect(deprecated, reason = "sampling, roots and logging are deprecated, and the suite still asks for them")]

mod answer;
mod handler;
mod prompts;
mod resources;
mod shared;
mod tools;
mod web;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Parser;

use crate::shared::Shared;

/// An MCP server for the official conformance suite.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Address and port of the endpoint `/mcp`, and of `/calls`, which tells how many requests came to it
    #[arg(long, env = "CONFORMANCE_LISTEN", default_value = "0.0.0.0:8000")]
    listen: SocketAddr,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?)?;
    let router = web::router(Arc::new(Shared::new()?));
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    // Open streams would outlive a graceful stop, and nobody needs the rest of them.
    tokio::select! {
        served = axum::serve(listener, router) => served?,
        _ = terminated.recv() => {}
    }
    Ok(())
}
