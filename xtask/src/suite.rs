//! `cargo xtask test`: the suites, in an order in which the quickest answer comes first.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fuzz;
use anyhow::{Result, bail};
use mooring_tests::cluster::somebody_elses;
use mooring_tests::{Cluster, Level, command, left_out, parts, product};

/// A suite of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// Formatting, clippy, generated files, and every test that needs nothing but a processor
    Pure,
    /// The front door: router, loopback, raw sockets
    FrontDoor,
    /// The official MCP conformance suite: a fixture directly, through the front door, and declared tools
    Conformance,
    /// Clients and servers that nobody here wrote, with the front door between them
    Compatibility,
    /// The operator against a real API server
    ControlPlane,
    /// The Helm chart with the real Helm
    Chart,
    /// Pods that really run: servers, clients, ingress, keys, network policy
    Cluster,
}

/// One run of cargo.
struct Step {
    what: &'static str,
    command: &'static [&'static str],
    arguments: &'static [&'static str],
    /// Whether it is about the clusters that the harness brings up, so that somebody else's is no use to it.
    own: bool,
}

/// Every target runs, so that one that fails hides no other.
const TEST: &[&str] = &["test", "--locked", "--no-fail-fast"];

const fn cargo(what: &'static str, command: &'static [&'static str]) -> Step {
    Step { what, command, arguments: &[], own: false }
}

const fn tests(what: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { what, command: TEST, arguments, own: false }
}

const fn own(what: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { what, command: TEST, arguments, own: true }
}

impl Suite {
    const ALL: [Self; 7] = [
        Self::Pure,
        Self::FrontDoor,
        Self::Conformance,
        Self::Compatibility,
        Self::ControlPlane,
        Self::Chart,
        Self::Cluster,
    ];

    /// What it needs beyond Rust.
    const fn level(self) -> Option<Level> {
        match self {
            Self::Pure | Self::FrontDoor | Self::Conformance | Self::Compatibility => None,
            Self::ControlPlane | Self::Chart => Some(Level::ControlPlane),
            Self::Cluster => Some(Level::Node),
        }
    }

    const fn steps(self) -> &'static [Step] {
        const PURE: &[Step] = &[
            cargo("formatting", &["fmt", "--all", "--check"]),
            cargo("clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]),
            tests(
                "unit tests",
                &[
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
            tests("harness unit tests", &["-p", "mooring-tests", "--lib"]),
        ];
        const FRONT_DOOR: &[Step] = &[
            tests("front door", &["-p", "mooring-server"]),
            tests("older transport", &["-p", "mooring-tests", "--test", "older_transport"]),
            tests("sticky", &["-p", "mooring-tests", "--test", "sticky"]),
            tests("soak", &["-p", "mooring-tests", "--test", "soak"]),
        ];
        const CONFORMANCE: &[Step] = &[
            tests("conformance, fixture", &["-p", "conformance-server"]),
            tests("conformance", &["-p", "mooring-tests", "--test", "conformance"]),
        ];
        const COMPATIBILITY: &[Step] = &[tests("compatibility", &["-p", "mooring-tests", "--test", "compatibility"])];
        // Its tests mostly wait, so more of them run at once than there are processors.
        const CONTROL_PLANE: &[Step] = &[
            own(
                "harness, control plane",
                &["-p", "mooring-tests", "--test", "harness_control_plane", "--", "--test-threads=6"],
            ),
            tests("control plane", &["-p", "mooring-tests", "--test", "control_plane", "--", "--test-threads=6"]),
        ];
        const CHART: &[Step] = &[tests("chart", &["-p", "mooring-tests", "--test", "chart"])];
        const CLUSTER: &[Step] = &[
            own("harness, node", &["-p", "mooring-tests", "--test", "harness_node"]),
            tests("cluster", &["-p", "mooring-tests", "--test", "cluster"]),
        ];
        match self {
            Self::Pure => PURE,
            Self::FrontDoor => FRONT_DOOR,
            Self::Conformance => CONFORMANCE,
            Self::Compatibility => COMPATIBILITY,
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
    let there = somebody_elses()?;
    if let Some(level) = suites.iter().filter_map(|suite| suite.level()).max() {
        match &there {
            None => parts::prepare(level)?,
            Some(kubeconfig) => clear(kubeconfig)?,
        }
    }
    let mut report = Report::default();
    for suite in suites {
        for step in suite.steps() {
            if step.own && there.is_some() {
                report.leave_out(step.what, "it tests the clusters that the harness brings up");
                continue;
            }
            println!("\n== {}", step.what);
            let start = Instant::now();
            let mut cargo = command::cargo();
            cargo.env(left_out::FILE, &report.left_out);
            let status = cargo.current_dir(product::workspace()).args(step.command).args(step.arguments).status()?;
            report.ran(step.what, Some(start.elapsed()), status.success());
            if let (Some(kubeconfig), Some(_)) = (&there, suite.level()) {
                clear(kubeconfig)?;
            }
        }
        if suite == Suite::FrontDoor {
            match fuzz::missing() {
                Some(why) => report.leave_out("fuzz targets", why),
                None => fuzz::run()?
                    .into_iter()
                    .for_each(|(target, passed)| report.ran(&format!("fuzz {target}"), None, passed)),
            }
        }
    }
    report.conclude()
}

/// Leaves somebody else's cluster as it was.
fn clear(kubeconfig: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Cluster::external(kubeconfig, None).await?.clear().await })
}

/// What ran, and what was left out.
struct Report {
    table: Vec<String>,
    failed: Vec<String>,
    /// The file into which the tests write what they leave out.
    left_out: PathBuf,
}

impl Default for Report {
    fn default() -> Self {
        let left_out = std::env::temp_dir().join(format!("mooring-left-out-{}", std::process::id()));
        Self { table: Vec::new(), failed: Vec::new(), left_out }
    }
}

impl Report {
    fn ran(&mut self, what: &str, took: Option<Duration>, passed: bool) {
        let verdict = if passed { "passed" } else { "FAILED" };
        let took = took.map(|took| format!("{:.0} s", took.as_secs_f64())).unwrap_or_default();
        self.table.push(format!("{what:<22} {took:>8}  {verdict}"));
        if !passed {
            self.failed.push(what.to_owned());
        }
    }

    fn leave_out(&mut self, what: &str, why: &str) {
        self.table.push(format!("{what:<22} {:>8}  left out: {why}", ""));
    }

    fn conclude(self) -> Result<()> {
        println!("\n{}", self.table.join("\n"));
        if let Ok(lines) = std::fs::read_to_string(&self.left_out) {
            println!("\nOn this cluster these could not run:\n{}", lines.trim_end());
            std::fs::remove_file(&self.left_out)?;
        }
        if self.failed.is_empty() {
            return Ok(());
        }
        bail!("failed: {}", self.failed.join(", "))
    }
}
