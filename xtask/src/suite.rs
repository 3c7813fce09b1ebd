//! `cargo xtask test`: the suites, in an order in which the quickest answer comes first.

use std::time::Instant;

use crate::fuzz;
use anyhow::{Result, bail};
use mooring_tests::{Level, command, parts, product};

/// A suite of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// Formatting, clippy, generated files, and every test that needs nothing but a processor
    Pure,
    /// The front door: router, loopback, raw sockets
    FrontDoor,
    /// The operator against a real API server
    ControlPlane,
    /// The Helm chart with the real Helm
    Chart,
    /// Pods that really run: servers, clients, ingress, keys, network policy
    Cluster,
}

/// One command of a suite.
struct Step {
    what: &'static str,
    arguments: &'static [&'static str],
}

const fn step(what: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { what, arguments }
}

impl Suite {
    const ALL: [Self; 5] = [Self::Pure, Self::FrontDoor, Self::ControlPlane, Self::Chart, Self::Cluster];

    /// What it needs beyond Rust.
    const fn level(self) -> Option<Level> {
        match self {
            Self::Pure | Self::FrontDoor => None,
            Self::ControlPlane | Self::Chart => Some(Level::ControlPlane),
            Self::Cluster => Some(Level::Node),
        }
    }

    const fn steps(self) -> &'static [Step] {
        const PURE: &[Step] = &[
            step("formatting", &["fmt", "--all", "--check"]),
            step("clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]),
            step(
                "unit tests",
                &[
                    "test",
                    "--locked",
                    "-p",
                    "mooring-contract",
                    "-p",
                    "mooring-api",
                    "-p",
                    "mooring-plan",
                    "-p",
                    "mooring",
                    "-p",
                    "weather-api",
                    "-p",
                    "xtask",
                ],
            ),
            step("harness unit tests", &["test", "--locked", "-p", "mooring-tests", "--lib"]),
        ];
        const FRONT_DOOR: &[Step] = &[step("front door", &["test", "--locked", "-p", "mooring-server"])];
        const CONTROL_PLANE: &[Step] = &[step(
            "control plane",
            // Its tests mostly wait, so more of them run at once than there are processors.
            &[
                "test",
                "--locked",
                "-p",
                "mooring-tests",
                "--test",
                "harness_control_plane",
                "--test",
                "control_plane",
                "--",
                "--test-threads=6",
            ],
        )];
        const CHART: &[Step] = &[step("chart", &["test", "--locked", "-p", "mooring-tests", "--test", "chart"])];
        const CLUSTER: &[Step] = &[
            step("harness, node", &["test", "--locked", "-p", "mooring-tests", "--test", "harness_node"]),
            step("cluster", &["test", "--locked", "-p", "mooring-tests", "--test", "cluster"]),
        ];
        match self {
            Self::Pure => PURE,
            Self::FrontDoor => FRONT_DOOR,
            Self::ControlPlane => CONTROL_PLANE,
            Self::Chart => CHART,
            Self::Cluster => CLUSTER,
        }
    }
}

/// Runs the named suites, or all, or those that need no cluster.
pub fn run(fast: bool, named: &[Suite]) -> Result<()> {
    let mut suites: Vec<Suite> = if named.is_empty() { Suite::ALL.to_vec() } else { named.to_vec() };
    if fast {
        suites.retain(|suite| suite.level().is_none());
    }
    if let Some(level) = suites.iter().filter_map(|suite| suite.level()).max()
        && std::env::var_os("MOORING_TEST_KUBECONFIG").is_none()
    {
        parts::prepare(level)?;
    }
    let mut table = Vec::new();
    let mut failed = Vec::new();
    for suite in suites {
        for step in suite.steps() {
            println!("\n== {}", step.what);
            let start = Instant::now();
            let mut cargo = command::cargo();
            let status = cargo.current_dir(product::workspace()).args(step.arguments).status()?;
            table.push(format!(
                "{:<20} {:>6.0} s  {}",
                step.what,
                start.elapsed().as_secs_f64(),
                if status.success() { "passed" } else { "FAILED" }
            ));
            if !status.success() {
                failed.push(step.what);
            }
        }
        if suite == Suite::FrontDoor {
            for (target, passed) in fuzz::run()? {
                table.push(format!("{:<29} {}", format!("fuzz {target}"), if passed { "passed" } else { "FAILED" }));
                failed.extend((!passed).then_some("fuzz"));
            }
        }
    }
    println!("\n{}", table.join("\n"));
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", failed.join(", "))
}
