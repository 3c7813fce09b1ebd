//! A server behind the front door.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use mooring_tests::conformance::{self, Report, Requirements};
use mooring_tests::front_door_process::{self, FrontDoorProcess, KEY};
use mooring_tests::key_shim::KeyShim;
use mooring_tests::mcp::Target;
use mooring_tests::process::Process;
use mooring_tests::{built, progress};
use serde_json::json;

/// The fixture as a process.
pub(crate) struct Fixture {
    _process: Process,
    pub(crate) target: Target,
}

impl Fixture {
    pub(crate) async fn start() -> Result<Self> {
        let binary = tokio::task::spawn_blocking(|| built::binary("conformance-server")).await??;
        let mut serve = Command::new(binary);
        serve.args(["--listen", "127.0.0.1:0"]);
        let mut process = Process::start("conformance-server", &serve)?;
        let address: std::net::SocketAddr =
            process.says("where it listens", |log| log.strip_prefix("listening on ")?.trim().parse().ok()).await?;
        let target = Target { address, host: address.to_string(), path: "/mcp".into(), key: None, headers: Vec::new() };
        Ok(Self { _process: process, target })
    }

    pub(crate) fn port(&self) -> u16 {
        self.target.address.port()
    }

    /// How many requests came to its endpoint.
    async fn calls(&self) -> Result<u64> {
        let calls = Target { path: "/calls".into(), ..self.target.clone() };
        calls.send("GET", "").await?.text().parse().context("/calls is a number")
    }
}

/// Both sets at a URL that ends in `/mcp`, without a failure or a warning.
async fn judge(what: &str, target: &Target) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for requirements in Requirements::ALL {
        let url = format!("http://localhost:{}{}", target.address.port(), target.path);
        let report = conformance::run(&url, requirements).await?;
        progress::say(format!("{what}, {}:\n{report}", requirements.revision()));
        report.spotless(conformance::checks(requirements)).with_context(|| what.to_owned())?;
        reports.push(report);
    }
    Ok(reports)
}

/// What the fixture refuses itself, so that a refusal of the front door can be told from it.
async fn refusals_are_our_own(fixture: &Fixture, door: &Target) -> Result<()> {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let theirs = fixture.target.with_host("evil.example.com").send("POST", ping.clone()).await?;
    ensure!(theirs.status == StatusCode::FORBIDDEN, "the fixture checks Host itself: {}", theirs.status);
    let before = fixture.calls().await?;
    conformance::refuses_foreign_names(door).await?;
    let after = fixture.calls().await?;
    ensure!(before == after, "the fixture was asked {} times", after - before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_scores_full_marks_directly_does_so_through_the_front_door() -> Result<()> {
    let fixture = Fixture::start().await?;
    let direct = judge("directly", &fixture.target).await?;

    let mut config = front_door_process::config(&front_door_process::http(fixture.port()));
    config["security"] = json!({"anonymous": true});
    let open = FrontDoorProcess::start(&config).await?;
    open.ready().await?;
    let target = open.target().with_key(None);
    assert_eq!(judge("through the front door", &target).await?, direct, "each check, by its name");
    refusals_are_our_own(&fixture, &target).await?;

    let door = FrontDoorProcess::start(&front_door_process::config(&front_door_process::http(fixture.port()))).await?;
    door.ready().await?;
    let unknown = door.target().with_key(None).send("POST", "{}").await?;
    assert_eq!(unknown.status, StatusCode::UNAUTHORIZED, "this one asks for a key");
    let shim = KeyShim::start(door.address(), Some(KEY)).await?;
    let target = Target { address: shim.address(), host: shim.address().to_string(), ..door.target().with_key(None) };
    assert_eq!(judge("through the front door with a key", &target).await?, direct, "each check, by its name");
    refusals_are_our_own(&fixture, &target).await
}
