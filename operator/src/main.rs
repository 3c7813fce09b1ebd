//! The binary `mooring`.

use std::process::ExitCode;

use clap::Parser as _;
use mooring::cli::Cli;
use mooring::command;

fn main() -> ExitCode {
    match command::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command::complain(&error);
            ExitCode::FAILURE
        }
    }
}
