//! A program under measurement: a process on a processor of its own, what it uses, and its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use super::MEASURED;
use super::load::{Target, connect};

/// How a program is started.
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it is called.
    pub target: Target,
}

/// A program that runs.
pub struct Running {
    /// Where it is called.
    pub target: Target,
    child: Option<Child>,
}

impl Running {
    /// What stands for no program at all: the callers reach the backend itself.
    pub fn nothing(target: Target) -> Self {
        Self { target, child: None }
    }

    /// Starts a program that writes its log into `folder`, and waits until a session can be opened through it.
    pub async fn start(start: Start, folder: &Path) -> Result<Self> {
        let Start { program, arguments, target } = start;
        let log = std::fs::File::create(folder.join("log"))?;
        let mut command = Command::new("taskset");
        command.arg("-c").arg(MEASURED.to_string()).arg(&program).args(arguments).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("{} does not start", program.display()))?;
        let mut running = Self { target, child: Some(child) };
        running.listening().await.with_context(|| {
            format!("{}: {}", program.display(), std::fs::read_to_string(folder.join("log")).unwrap_or_default())
        })?;
        Ok(running)
    }

    async fn listening(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let opened = async {
                let mut stream = connect(self.target.address).await?;
                self.target.initialize(&mut stream, &mut Vec::new()).await
            };
            let Err(error) = opened.await else { return Ok(()) };
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("it ended with {status}");
            }
            if begin.elapsed() > Duration::from_secs(20) {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Its processes: the one that was started and its children.
    fn processes(&self) -> Result<Vec<u32>> {
        let Some(child) = &self.child else { return Ok(Vec::new()) };
        let parent = child.id().context("the proxy has ended")?;
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        Ok([parent].into_iter().chain(children.split_whitespace().filter_map(|pid| pid.parse().ok())).collect())
    }

    /// Seconds of processor time that it has used.
    pub fn cpu(&self) -> Result<f64> {
        let mut nanoseconds: u64 = 0;
        for process in self.processes()? {
            for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let statistics = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
                nanoseconds +=
                    statistics.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or_default();
            }
        }
        Ok(nanoseconds as f64 / 1e9)
    }

    /// Resident memory in KiB: now (`VmRSS`), or at its highest (`VmHWM`).
    pub fn memory(&self, what: &str) -> Result<f64> {
        let mut sum = 0.0;
        for process in self.processes()? {
            let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
            let line =
                status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')).context("no such figure")?;
            sum += line.trim().trim_end_matches(" kB").trim().parse::<f64>()?;
        }
        Ok(sum)
    }

    /// Ends it.
    pub async fn stop(mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(pid) = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        if tokio::time::timeout(Duration::from_secs(2), child.wait()).await.is_err() {
            child.kill().await?;
        }
        Ok(())
    }
}
