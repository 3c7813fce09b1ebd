//! The handle of one cluster's processes: the guard outside the namespaces, and through it pid 1 inside. It knows how to ask them, and nothing of
//! Kubernetes.
//!
//! The guard lives as long as this handle holds its standard input, so the cluster also ends when this process is killed.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A guard needs about a second to end; it is killed when it needs this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a guard is started with.
pub(super) struct Setup<'a> {
    pub(super) binary: &'a Path,
    pub(super) data: &'a Path,
    pub(super) state: &'a Path,
    pub(super) node: &'a str,
    pub(super) address: &'a str,
    /// The cgroup to make for pods; empty for a cluster without them.
    pub(super) cgroup: &'a str,
    pub(super) keep: bool,
}

/// A running guard.
pub(super) struct Guard {
    process: Mutex<Option<(Child, ChildStdin)>>,
    pid1: u32,
    run: PathBuf,
}

#[derive(Default, Serialize)]
struct Request<'a> {
    op: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    target: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    argv: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    log: &'a str,
    signal: i32,
    wait: bool,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    error: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    running: bool,
}

/// What can be done to a process by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ends it at once; returns when it has ended.
    Kill,
    /// Asks it to end; returns when it has ended.
    Terminate,
    /// Holds it, as a machine that hangs does.
    Pause,
    /// Lets it go on after [`Signal::Pause`].
    Resume,
}

impl Guard {
    /// Starts the guard and waits until pid 1 answers. Blocks for some tens of milliseconds.
    pub(super) fn start(setup: &Setup<'_>) -> Result<Self> {
        let run = setup.data.join("run");
        for folder in [&run, &setup.data.join("log"), setup.state] {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut child = Command::new(setup.binary)
            .arg("guard")
            .arg("--data")
            .arg(setup.data)
            .arg("--state")
            .arg(setup.state)
            .args(["--node", setup.node, "--address", setup.address, "--cgroup", setup.cgroup])
            .arg(format!("--keep={}", setup.keep))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // so that Ctrl-C reaches only the owner, which then decides
            .spawn()
            .with_context(|| format!("cannot start {}", setup.binary.display()))?;
        let stdin = child.stdin.take().context("the guard has a standard input")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the guard has a standard output")?).read_line(&mut line)?;
        let pid1 = line.trim().strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        let Some(pid1) = pid1 else {
            drop(stdin);
            let mut said = String::new();
            child.stderr.take().context("the guard has a standard error")?.read_to_string(&mut said)?;
            child.wait()?;
            bail!("the cluster's namespaces could not be made: {}", said.trim());
        };
        Ok(Self { process: Mutex::new(Some((child, stdin))), pid1, run })
    }

    /// Starts a program inside under a name. Its output is appended to the log.
    pub(super) async fn start_process(&self, name: &str, argv: &[String], log: &Path) -> Result<()> {
        let log = log.to_string_lossy();
        self.inside(&Request { op: "start", name, argv, log: &log, ..Request::default() }).await?;
        Ok(())
    }

    /// Signals a process by name.
    pub(super) async fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let (signal, wait) = match signal {
            Signal::Kill => (9, true),
            Signal::Terminate => (15, true),
            Signal::Pause => (19, false),
            Signal::Resume => (18, false),
        };
        self.inside(&Request { op: "signal", name, signal, wait, ..Request::default() }).await?;
        Ok(())
    }

    /// Whether the process of this name runs.
    pub(super) async fn runs(&self, name: &str) -> Result<bool> {
        Ok(self.inside(&Request { op: "state", name, ..Request::default() }).await?.running)
    }

    /// Opens a port on 127.0.0.1 that leads to an address inside, for as long as the cluster lives.
    pub(super) async fn forward(&self, target: &str) -> Result<SocketAddr> {
        let request = Request { op: "forward", target, ..Request::default() };
        let answer = ask(&self.run.join("outside.sock"), &request).await?;
        answer.address.parse().context("the guard names the address that it listens on")
    }

    /// A command that will run inside all namespaces of the cluster, in `/`.
    pub(super) fn command(&self, program: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("nsenter");
        command.args(["-t", &self.pid1.to_string(), "-m", "-p", "-n", "-u", "-i", "--", program]);
        command
    }

    /// The guard and pid 1, as this machine counts them.
    pub(super) fn pids(&self) -> (u32, u32) {
        let process = self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (process.as_ref().map_or(0, |(guard, _)| guard.id()), self.pid1)
    }

    /// Ends everything inside and waits until what is global is as it was. Blocks for about a second.
    pub(super) fn stop(&self) -> Result<()> {
        let process = self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some((mut child, stdin)) = process else { return Ok(()) };
        drop(stdin);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                let mut said = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    stderr.read_to_string(&mut said)?;
                }
                bail!("the guard ended with {status}: {}", said.trim());
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("the guard did not end within {} s and was killed", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    async fn inside(&self, request: &Request<'_>) -> Result<Answer> {
        ask(&self.run.join("inside.sock"), request).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{error:#}");
        }
    }
}

/// One request, one answer, one connection.
async fn ask(socket: &Path, request: &Request<'_>) -> Result<Answer> {
    let mut stream = UnixStream::connect(socket).await.context("the cluster is gone")?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    tokio::io::BufReader::new(stream).read_line(&mut answer).await?;
    let answer: Answer = serde_json::from_str(&answer).context("the cluster did not answer")?;
    if !answer.error.is_empty() {
        bail!("{} {}{}: {}", request.op, request.name, request.target, answer.error);
    }
    Ok(answer)
}
