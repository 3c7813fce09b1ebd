//! The program of the front door; the library has everything.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    mooring_server::run()
}
