//! The handle of one cluster's processes: the guard outside the namespaces, and through it pid 1 of each node inside. It knows how to ask
//! them, and nothing of Kubernetes.
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

use super::node::Node;

/// A guard needs about a second to end; it is killed when it needs this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a guard is started with.
pub(super) struct Setup<'a> {
    pub(super) binary: &'a Path,
    pub(super) data: &'a Path,
    pub(super) state: &'a Path,
    pub(super) nodes: &'a [Node],
    /// The cgroup to make for pods; empty for a cluster without them.
    pub(super) cgroup: &'a str,
    pub(super) keep: bool,
}

/// A running guard.
pub(super) struct Guard {
    process: Mutex<Option<(Child, ChildStdin)>>,
    /// The name and pid 1 of each node.
    nodes: Vec<(String, u32)>,
    run: PathBuf,
}

#[derive(Default, Serialize)]
struct Request<'a> {
    op: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    node: &'a str,
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
    /// Starts the guard and waits until pid 1 of each node answers. Blocks for some tens of milliseconds.
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
            .args(setup.nodes.iter().map(|node| format!("--node={},{},{}", node.name, node.address, node.pods)))
            .args(["--cgroup", setup.cgroup])
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
        let Some(pids) = line.trim().strip_prefix("ready ") else {
            drop(stdin);
            let mut said = String::new();
            child.stderr.take().context("the guard has a standard error")?.read_to_string(&mut said)?;
            child.wait()?;
            bail!("the cluster's namespaces could not be made: {}", said.trim());
        };
        let pids = pids.split(' ').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        let nodes = setup.nodes.iter().map(|node| node.name.clone()).zip(pids).collect();
        Ok(Self { process: Mutex::new(Some((child, stdin))), nodes, run })
    }

    /// Starts a program on a node under a name. Its output is appended to the log.
    pub(super) async fn start_process(&self, node: &str, name: &str, argv: &[String], log: &Path) -> Result<()> {
        let log = log.to_string_lossy();
        self.inside(node, &Request { op: "start", name, argv, log: &log, ..Request::default() }).await?;
        Ok(())
    }

    /// Signals a process of a node by name.
    pub(super) async fn signal(&self, node: &str, name: &str, signal: Signal) -> Result<()> {
        let (signal, wait) = match signal {
            Signal::Kill => (9, true),
            Signal::Terminate => (15, true),
            Signal::Pause => (19, false),
            Signal::Resume => (18, false),
        };
        self.inside(node, &Request { op: "signal", name, signal, wait, ..Request::default() }).await?;
        Ok(())
    }

    /// Whether the process of this name runs on a node.
    pub(super) async fn runs(&self, node: &str, name: &str) -> Result<bool> {
        Ok(self.inside(node, &Request { op: "state", name, ..Request::default() }).await?.running)
    }

    /// Opens a port on 127.0.0.1 that leads to an address inside, as a node sees it, for as long as the cluster lives.
    pub(super) async fn forward(&self, node: &str, target: &str) -> Result<SocketAddr> {
        let request = Request { op: "forward", node, target, ..Request::default() };
        let answer = ask(&self.run.join("guard.sock"), &request).await?;
        answer.address.parse().context("the guard names the address that it listens on")
    }

    /// A command that will run inside all namespaces of a node, in `/`.
    pub(super) fn command(&self, node: &str, program: &str) -> Result<tokio::process::Command> {
        let (_, pid1) = self.nodes.iter().find(|(name, _)| name == node).with_context(|| format!("no node {node}"))?;
        let mut command = tokio::process::Command::new("nsenter");
        command.args(["-t", &pid1.to_string(), "-m", "-p", "-n", "-u", "-i", "--", program]);
        Ok(command)
    }

    /// The guard and pid 1 of each node, as this machine counts them.
    pub(super) fn pids(&self) -> (u32, Vec<u32>) {
        let process = self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let guard = process.as_ref().map_or(0, |(guard, _)| guard.id());
        (guard, self.nodes.iter().map(|(_, pid1)| *pid1).collect())
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

    async fn inside(&self, node: &str, request: &Request<'_>) -> Result<Answer> {
        ask(&self.run.join(format!("{node}.sock")), request).await
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
