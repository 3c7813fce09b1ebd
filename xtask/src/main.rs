//! The project's own commands. `demo` and `test` are the README's two; both do all set-up on a fresh machine.

mod bench;
mod demo;
mod fuzz;
mod generate;
mod image;
mod soak;
mod suite;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Brings up a real Kubernetes with Mooring in it, applies the examples, and shows a client using them
    Demo {
        /// Exits after the tour instead of waiting for Ctrl-C
        #[arg(long)]
        once: bool,
        /// Uses the cluster of this kubeconfig instead of a local one, and leaves it as it was
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// Where that cluster gets the images from, such as registry.example.com/team, when they are not loaded into its nodes
        #[arg(long, value_name = "PREFIX", requires = "kubeconfig")]
        images: Option<String>,
    },
    /// Runs the tests: all, or the suites that are named
    Test {
        /// Leaves out the suites that need a cluster
        #[arg(long)]
        fast: bool,
        /// Which suites
        suites: Vec<suite::Suite>,
    },
    /// Measures and prints a table
    Bench {
        /// Which bench
        name: bench::Bench,
        /// Writes the figures as JSON too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Puts the front door under mixed traffic, broken-off calls among it, and looks at what it keeps afterwards
    Soak {
        /// How long
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
        minutes: u32,
    },
    /// Rewrites the generated files: CRD, chart copy, docs
    Generate,
    /// Writes the images of operator and front door as archives that containerd, podman and docker load
    Image {
        /// Those of the servers behind the examples, too, which demo and tests need
        #[arg(long)]
        all: bool,
    },
}

fn main() -> ExitCode {
    let outcome = run(Arguments::parse().command);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo { once, kubeconfig: None, .. } => demo::run(once, &demo::Where::Here),
        Command::Demo { once, kubeconfig: Some(file), images } => {
            demo::run(once, &demo::Where::There { kubeconfig: &file, images })
        }
        Command::Test { fast, suites } => suite::run(fast, &suites),
        Command::Bench { name, json } => bench::run(name, json.as_deref()),
        Command::Soak { minutes } => soak::run(minutes),
        Command::Generate => generate::run(),
        Command::Image { all } => image::run(all),
    }
}
