//! The official conformance suite, run against a URL, and what it found: scenario by scenario, check by check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use http::StatusCode;

use crate::command;
use crate::mcp::Target;
use crate::parts::node;

const PACKAGE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
/// Longest time for one scenario; the slowest, those that wait for tasks, take a few seconds.
const SCENARIO: Duration = Duration::from_secs(60);
/// Longest time for a whole set.
const SET: Duration = Duration::from_secs(420);

/// What a revision of the specification requires, as the suite wrote it down, and what it runs beside that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirements {
    /// The last revision with sessions.
    V2025_11_25,
    /// The first revision without.
    V2026_07_28,
}

impl Requirements {
    /// Both sets.
    pub const ALL: [Self; 2] = [Self::V2025_11_25, Self::V2026_07_28];

    /// The revision's name.
    pub const fn revision(self) -> &'static str {
        match self {
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }
}

/// A check that did not simply pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its id.
    pub check: String,
    /// What the suite calls the outcome: `FAILURE` or `WARNING`.
    pub status: String,
    /// What the suite says.
    pub message: String,
}

/// What one scenario found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// How often each check passed.
    pub passed: BTreeMap<String, usize>,
    /// Checks that the suite says do not apply.
    pub skipped: Vec<String>,
    /// Failures and warnings.
    pub findings: Vec<Finding>,
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each scenario.
    pub scenarios: BTreeMap<String, Scenario>,
}

/// How many checks pass where everything is right, our fixture behind it. The suite's own count leaves out the check of
/// a stream that is resumed, because the fixture that it comes with ends no stream early; ours does.
pub const fn checks(requirements: Requirements) -> usize {
    match requirements {
        Requirements::V2025_11_25 => 84,
        Requirements::V2026_07_28 => 197,
    }
}

/// That a front door refuses a foreign Host with 421, and a foreign Origin alone with 403, both in its own words. The
/// suite sends both at once and takes any 4xx, such as one of the server behind.
pub async fn refuses_foreign_names(door: &Target) -> Result<()> {
    const EVIL: &str = "evil.example.com";
    let ping = r#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}"#;
    let refused = [
        (door.with_host(EVIL), StatusCode::MISDIRECTED_REQUEST, "Host"),
        (door.with_header("origin", &format!("http://{EVIL}")), StatusCode::FORBIDDEN, "Origin"),
    ];
    for (target, status, name) in refused {
        let answer = target.send("POST", ping).await?;
        ensure!(answer.status == status, "{name}: {} instead of {status}: {}", answer.status, answer.text());
        let error = &answer.message().with_context(|| format!("{name}: its own refusals are JSON-RPC"))?["error"];
        ensure!(error["message"].as_str().is_some_and(|said| said.contains(name)), "{name}: {error}");
    }
    Ok(())
}

/// Fetches the suite, once. Blocks.
pub fn install() -> Result<()> {
    program().map(drop)
}

/// Runs every scenario of a set, the scored and the others.
pub async fn run(url: &str, requirements: Requirements) -> Result<Report> {
    tokio::time::timeout(SET, suite(url, &["--requirements", requirements.revision()]))
        .await
        .with_context(|| format!("the suite took longer than {} s", SET.as_secs()))?
}

/// Runs these scenarios on the wire of a revision.
pub async fn run_scenarios(url: &str, requirements: Requirements, names: &[&str]) -> Result<Report> {
    let mut report = Report::default();
    for name in names {
        let what = ["--scenario", name, "--spec-version", requirements.revision()];
        let one =
            tokio::time::timeout(SET, suite(url, &what)).await.with_context(|| format!("{name} took too long"))??;
        report.scenarios.extend(one.scenarios);
    }
    Ok(report)
}

async fn suite(url: &str, what: &[&str]) -> Result<Report> {
    let (node, script) = tokio::task::spawn_blocking(program).await??;
    let folder = tempfile::tempdir()?;
    let mut run = Command::new(node);
    run.arg(script).args(["server", "--url", url]).args(what);
    run.args(["--timeout", &SCENARIO.as_millis().to_string(), "--output-dir"]).arg(folder.path());
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        run.env_remove(name);
    }
    // A failed check is an exit status as well; the files have all of it, so only a run without files is an error.
    let said = command::run_async(run).await;
    let report = Report::read(folder.path())?;
    if report.scenarios.is_empty() {
        let said = said.map_or_else(|error| format!("{error:#}"), |said| command::tail(&said, 20));
        ensure!(false, "the suite ran no scenario: {said}");
    }
    Ok(report)
}

fn program() -> Result<(PathBuf, PathBuf)> {
    let suite = node::package(PACKAGE)?.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    Ok((node::node()?, suite))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    id: String,
    status: String,
    error_message: Option<String>,
}

impl Report {
    /// Reads `server-<scenario>-<time>/checks.json`.
    fn read(folder: &Path) -> Result<Self> {
        let mut report = Self::default();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let file = entry.path().join("checks.json");
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(scenario) = scenario_of(&name) else { continue };
            let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let checks: Vec<Check> =
                serde_json::from_slice(&text).with_context(|| format!("{} is not understood", file.display()))?;
            report.scenarios.insert(scenario.to_owned(), Scenario::of(checks));
        }
        Ok(report)
    }

    /// How many checks passed.
    pub fn passed(&self) -> usize {
        self.scenarios.values().flat_map(|scenario| scenario.passed.values()).sum()
    }

    /// Every failure and warning, with its scenario.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &Finding)> {
        let of = |(name, scenario)| {
            let (name, scenario): (&String, &Scenario) = (name, scenario);
            scenario.findings.iter().map(move |finding| (name.as_str(), finding))
        };
        self.scenarios.iter().flat_map(of)
    }

    /// That nothing failed and that as many checks ran as are known to.
    pub fn spotless(&self, checks: usize) -> Result<()> {
        self.spotless_except(checks, &[])
    }

    /// The same, but that these checks, by scenario and id, fail, each of them.
    pub fn spotless_except(&self, checks: usize, exceptions: &[(&str, &str)]) -> Result<()> {
        let failed: BTreeSet<(&str, &str)> =
            self.findings().map(|(scenario, finding)| (scenario, finding.check.as_str())).collect();
        let expected: BTreeSet<(&str, &str)> = exceptions.iter().copied().collect();
        ensure!(failed == expected, "{failed:?} failed, and {expected:?} should:\n{self}");
        ensure!(self.passed() == checks, "{} checks passed, not {checks}:\n{self}", self.passed());
        Ok(())
    }
}

impl Scenario {
    fn of(checks: Vec<Check>) -> Self {
        let mut scenario = Self::default();
        for check in checks {
            match check.status.as_str() {
                "SUCCESS" => *scenario.passed.entry(check.id).or_default() += 1,
                "SKIPPED" => scenario.skipped.push(check.id),
                "INFO" => {}
                _ => scenario.findings.push(Finding {
                    check: check.id,
                    status: check.status,
                    message: check.error_message.unwrap_or_default(),
                }),
            }
        }
        scenario
    }
}

/// `server-ping-2026-11-30T00-32-25-123Z` is of `ping`.
fn scenario_of(folder: &str) -> Option<&str> {
    let name = folder.strip_prefix("server-")?;
    let time = name.rfind('T')?.checked_sub("-2026-11-30".len())?;
    name.get(..time)
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.scenarios.keys().map(String::len).max().unwrap_or_default();
        for (name, scenario) in &self.scenarios {
            let passed: usize = scenario.passed.values().sum();
            let total = passed + scenario.findings.len();
            writeln!(out, "{name:<width$}  {passed:>3} of {total:>3}")?;
            for Finding { check, status, message } in &scenario.findings {
                writeln!(out, "    {status} {check}: {message}")?;
            }
        }
        write!(out, "{:<width$}  {:>3} of {:>3}", "all", self.passed(), self.passed() + self.findings().count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_scenario_has_its_name() {
        assert_eq!(scenario_of("server-ping-2026-11-30T00-32-25-123Z"), Some("ping"));
        let long = "server-elicitation-sep1330-enums-2026-11-30T00-32-25-123Z";
        assert_eq!(scenario_of(long), Some("elicitation-sep1330-enums"));
        assert_eq!(scenario_of("results"), None);
    }

    #[test]
    fn a_report_counts_and_names_what_failed() {
        let checks = r#"[
            {"id": "a", "status": "SUCCESS"}, {"id": "a", "status": "SUCCESS"}, {"id": "i", "status": "INFO"},
            {"id": "s", "status": "SKIPPED"}, {"id": "b", "status": "FAILURE", "errorMessage": "it was 500"}
        ]"#;
        let folder = tempfile::tempdir().unwrap();
        let scenario = folder.path().join("server-ping-2026-11-30T00-32-25-123Z");
        std::fs::create_dir(&scenario).unwrap();
        std::fs::write(scenario.join("checks.json"), checks).unwrap();
        let report = Report::read(folder.path()).unwrap();
        assert_eq!(report.passed(), 2);
        assert!(report.to_string().contains("FAILURE b: it was 500"), "{report}");
        assert!(report.spotless(2).is_err(), "a failure counts");
        assert!(Report::default().spotless(1).is_err(), "a check that did not run counts");
    }
}
