//! The real operator as a process of its own: built once, started with the flags that a test wants, asked over its own
//! port, and killed, held or stopped like a pod.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::Usage;
use crate::{built, command, wait};

/// How long a start may take on a machine that is busy with builds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The binary `mooring` of this workspace, built on first use; or the one that `MOORING_TEST_OPERATOR` names.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("MOORING_TEST_OPERATOR").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    built::binary("mooring")
}

/// A running operator. It is killed when this handle is dropped.
pub struct OperatorProcess {
    child: Arc<Mutex<Child>>,
    pid: Pid,
    address: SocketAddr,
    log: PathBuf,
}

impl OperatorProcess {
    /// Starts `mooring operator` with these flags, a kubeconfig, and a port of its own. What it says is appended to `log`.
    pub fn start<S: AsRef<std::ffi::OsStr>>(
        kubeconfig: &Path,
        log: &Path,
        flags: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        Self::start_binary(&binary()?, kubeconfig, log, flags)
    }

    /// The same with another build of the binary, such as the one that is shipped.
    pub fn start_binary<S: AsRef<std::ffi::OsStr>>(
        binary: &Path,
        kubeconfig: &Path,
        log: &Path,
        flags: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let address = free_address()?;
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        // The kernel kills it when this process ends in a way that runs no destructor.
        let mut start = Command::new("setpriv");
        start.args(["--pdeathsig", "KILL", "--"]).arg(binary).arg("operator");
        start.arg("--kubeconfig").arg(kubeconfig).arg("--listen").arg(address.to_string()).args(flags);
        start.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = start.spawn().context("cannot start the operator")?;
        let pid = Pid::from_child(&child);
        Ok(Self { child: Arc::new(Mutex::new(child)), pid, address, log: log.to_owned() })
    }

    /// A function that kills it, for the fault proxy.
    pub fn killer(&self) -> impl Fn() + Send + Sync + 'static {
        let child = Arc::clone(&self.child);
        move || kill(&child)
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&self) {
        kill(&self.child);
    }

    /// Holds it, as a machine that hangs does.
    pub fn pause(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    /// Lets it go on after [`OperatorProcess::pause`].
    pub fn resume(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Asks it to stop, as the kubelet does.
    pub fn terminate(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::TERM)?)
    }

    /// How it ended; absent while it runs.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?)
    }

    /// Waits until it has ended by itself.
    pub async fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        wait::until("the operator to end", limit, || async { self.ended()?.context("it runs") }).await
    }

    /// Waits until `/readyz` says 200.
    pub async fn ready(&self) -> Result<()> {
        let ready = wait::until("the operator to be ready", PATIENCE, || async {
            if let Some(status) = self.ended()? {
                return Ok(Err(anyhow!("the operator ended with {status}")));
            }
            let (code, text) = self.get("/readyz").await?;
            ensure!(code == 200, "/readyz says {code}: {text}");
            Ok(Ok(()))
        });
        let outcome = ready.await.and_then(|ready| ready);
        outcome.with_context(|| format!("its log ends with\n{}", command::tail(&self.log_text(), 20)))
    }

    /// Asks its own port.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.get(format!("http://{}{path}", self.address).parse()?).await?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((code, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Everything that it, and others with the same log, said so far.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Resident memory now and at its peak, in KiB, and CPU seconds so far.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid.as_raw_pid().unsigned_abs())
    }
}

impl Drop for OperatorProcess {
    fn drop(&mut self) {
        kill(&self.child);
    }
}

fn kill(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill(); // it may have ended by itself
    let _ = child.wait();
}

/// An address that nobody listens on now.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
