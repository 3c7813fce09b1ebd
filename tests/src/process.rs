//! A program as a child of the test: killed with it, what it says kept in a file, and a port of its own on loopback.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::{command, wait};

/// How long a start may take on a machine that is busy with builds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running program. It is killed when this handle is dropped, and all that it has started with it.
pub struct Process {
    name: String,
    child: Child,
    folder: TempDir,
}

impl Process {
    /// Starts a program. Its working directory is a fresh folder.
    pub fn start(name: &str, command: &Command) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = File::create(folder.path().join("log"))?;
        // The kernel kills it when this process ends in a way that runs no destructor.
        let mut start = Command::new("setpriv");
        start.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => start.env(variable, value),
                None => start.env_remove(variable),
            };
        }
        start.process_group(0).current_dir(folder.path()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = start.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, folder })
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id() // `setpriv` has become the program
    }

    /// Everything that it said so far.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until what it said yields a value. That it ended is an error.
    pub async fn says<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let what = format!("{} to say {what}", self.name);
        let found = wait::until(&what, PATIENCE, || {
            let found = self.look(&find);
            async { found }
        });
        let found = found.await.and_then(|found| found);
        found.with_context(|| format!("the log of {} ends with\n{}", self.name, command::tail(&self.log_text(), 20)))
    }

    /// The inner error is final.
    fn look<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<Result<T>> {
        let ended = self.child.try_wait()?; // before the log is read, so that its last words count
        match (find(&self.log_text()), ended) {
            (Some(found), _) => Ok(Ok(found)),
            (None, Some(status)) => Ok(Err(anyhow!("it ended with {status}"))),
            (None, None) => bail!("not yet"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL); // all may have ended by themselves
        let _ = self.child.wait();
    }
}

/// What a process used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// The most that it was, in KiB.
    pub peak_kib: u64,
    /// CPU seconds, user and system.
    pub cpu_seconds: f64,
    /// File descriptors that it has open.
    pub descriptors: usize,
    /// Its threads.
    pub threads: usize,
}

impl Usage {
    /// That of a process that runs.
    pub fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
            line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).with_context(|| format!("{name} is no number"))
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after_name = stat.rsplit_once(')').context("stat has a name")?.1;
        let ticks = |index: usize| after_name.split_whitespace().nth(index).and_then(|n| n.parse::<f64>().ok());
        let (Some(user), Some(system)) = (ticks(11), ticks(12)) else { bail!("stat is not understood") };
        let per_second = f64::from(u32::try_from(rustix::param::clock_ticks_per_second())?);
        let entries = |of: &str| anyhow::Ok(std::fs::read_dir(format!("/proc/{pid}/{of}"))?.count());
        Ok(Self {
            resident_kib: field("VmRSS:")?,
            peak_kib: field("VmHWM:")?,
            cpu_seconds: (user + system) / per_second,
            descriptors: entries("fd")?,
            threads: entries("task")?,
        })
    }
}

/// A port of 127.0.0.1 that nobody listens on now. It lies below the range from which the kernel takes ports of outgoing
/// connections, so that none of those is there first.
pub fn free_port() -> Result<u16> {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % u32::from(COUNT))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + u16::try_from((u32::from(own) * 37 + u32::from(step)) % u32::from(COUNT))?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port from {FIRST} on")
}
