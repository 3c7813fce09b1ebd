//! What the commands do. Standard output carries what was asked for and nothing else; everything said besides goes to
//! standard error.

pub mod keys;
mod kubeconfig;
mod operator;
pub mod render;

use std::io::Write as _;

use crate::cli::{Cli, Command, KeysCommand};

/// Does what the command line says.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Crd => write_out(&mooring_api::crd::yaml()?),
        Command::Render(arguments) => write_out(&render::run(&arguments)?),
        Command::Operator(arguments) => block_on(operator::run(*arguments)),
        Command::Keys(arguments) => block_on(async {
            match arguments.command {
                KeysCommand::List { server } => keys::list(&server).await,
                KeysCommand::Create { server, name, expires } => keys::create(&server, &name, expires).await,
                KeysCommand::Revoke { server, name } => keys::revoke(&server, &name).await,
            }
        }),
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    // The one TLS provider of the process; a second install changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

fn write_out(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}"); // whom to tell, when standard error is closed?
}

/// Prints an error and what led to it.
pub fn complain(error: &anyhow::Error) {
    say(&format!("mooring: {error:#}"));
}
