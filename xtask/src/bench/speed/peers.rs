//! The proxies, each as one process with one worker on a processor of its own, set up as a team would run it in front of an MCP server: connections
//! kept, answers not held back, no access log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mooring_contract::{Key, KeyMetadata, KeyRecord};
use mooring_tests::parts::proxies;
use mooring_tests::product::Product;
use serde_json::json;
use tokio::process::{Child, Command};

use super::super::front_door::{free, mounted};
use super::load::{Target, connect};

/// A proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// None: the callers reach the backend itself.
    Direct,
    /// Ours, with everything on.
    Mooring,
    /// nginx.
    Nginx,
    /// Envoy.
    Envoy,
    /// HAProxy.
    Haproxy,
    /// The crate `mcp-proxy`.
    McpProxy,
}

/// A proxy that runs.
pub struct Running {
    /// Where it is called.
    pub target: Target,
    child: Option<Child>,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Direct, Self::Mooring, Self::Nginx, Self::Envoy, Self::Haproxy, Self::McpProxy];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Mooring => "mooring-server",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
            Self::Haproxy => "haproxy",
            Self::McpProxy => "mcp-proxy",
        }
    }

    /// Gets its program, which may take minutes the first time.
    pub fn install(self) -> Result<()> {
        match self {
            Self::Direct | Self::Mooring => Ok(()),
            Self::Nginx => proxies::nginx().map(drop),
            Self::Envoy => proxies::envoy().map(drop),
            Self::Haproxy => proxies::haproxy().map(drop),
            Self::McpProxy => proxies::mcp_proxy().map(drop),
        }
    }

    /// Starts it in `folder`, on `processor`, in front of `backend`, and waits until it listens.
    pub async fn start(self, door: &Product, folder: &Path, backend: SocketAddr, processor: usize) -> Result<Running> {
        let folder = folder.join(self.name());
        std::fs::create_dir_all(&folder)?;
        let key = Key::from_entropy(&[7; mooring_contract::key::ENTROPY]);
        let target = Target { address: free()?, path: "/mcp", tool: "echo", key: key.expose().to_owned() };
        let (listen, port) = (target.address, backend.port());
        let (program, arguments): (PathBuf, Vec<String>) = match self {
            Self::Direct => return Ok(Running { target: Target { address: backend, ..target }, child: None }),
            Self::Mooring => (door.binary.clone(), mooring(&folder, listen, port, &key)?),
            Self::Nginx => {
                let file = write(&folder, "nginx.conf", &nginx(&folder, listen, port))?;
                (proxies::nginx()?, words(&["-p", &text(&folder), "-c", &file]))
            }
            Self::Envoy => {
                let file = write(&folder, "envoy.yaml", &envoy(listen, port))?;
                let quiet = ["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "off"];
                (proxies::envoy()?, [words(&["-c", &file]), words(&quiet)].concat())
            }
            Self::Haproxy => {
                let file = write(&folder, "haproxy.cfg", &haproxy(listen, port))?;
                (proxies::haproxy()?, words(&["-db", "-f", &file]))
            }
            Self::McpProxy => {
                let file = write(&folder, "proxy.toml", &mcp_proxy(listen, port))?;
                (proxies::mcp_proxy()?, words(&["--config", &file]))
            }
        };
        let target = match self {
            Self::McpProxy => Target { path: "/", tool: "echo/echo", ..target },
            _ => target,
        };
        let log = std::fs::File::create(folder.join("log"))?;
        let mut command = Command::new("taskset");
        command.arg("-c").arg(processor.to_string()).arg(program).args(arguments).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("{} does not start", self.name()))?;
        let mut running = Running { target, child: Some(child) };
        running.listening().await.with_context(|| {
            format!("{}: {}", self.name(), std::fs::read_to_string(folder.join("log")).unwrap_or_default())
        })?;
        Ok(running)
    }
}

impl Running {
    /// Waits until a session can be opened.
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
    pub fn processes(&self) -> Result<Vec<u32>> {
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

fn mooring(folder: &Path, listen: SocketAddr, port: u16, key: &Key) -> Result<Vec<String>> {
    let config = json!({
        "version": 1,
        "server": {"name": "bench"},
        "path": "/",
        "security": {"hosts": ["mcp.example.com"], "origins": ["https://app.example.com"]},
        "source": {"http": {"port": port, "path": "/mcp"}},
        "limits": {"bodyBytes": 4_194_304, "callTimeoutMs": 600_000},
    });
    let mounted = mounted(folder, &config)?;
    let metadata = KeyMetadata {
        name: "bench".into(),
        subject: "bench".into(),
        created: jiff::Timestamp::UNIX_EPOCH,
        expires: None,
    };
    let record = KeyRecord { key_hash: key.hash(), metadata };
    write(&folder.join("keys"), key.id(), &serde_json::to_string(&record)?)?;
    let mut arguments = words(&[
        "serve",
        "--listen",
        &listen.to_string(),
        "--management-listen",
        &free()?.to_string(),
        "--linger-seconds",
        "0",
    ]);
    arguments.extend(mounted);
    Ok(arguments)
}

fn nginx(folder: &Path, listen: SocketAddr, port: u16) -> String {
    let folder = text(folder);
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|kind| format!("{kind}_temp_path {folder}/{kind};")).join("\n");
    format!(
        "daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ worker_connections 8192; }}
http {{
access_log off; tcp_nodelay on; keepalive_timeout 120; keepalive_requests 1000000000; client_max_body_size 8m;
{temporary}
upstream backend {{ server 127.0.0.1:{port}; keepalive 1024; keepalive_requests 1000000000; }}
server {{ listen {listen} backlog=4096;
location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off; proxy_read_timeout 86400s; }} }}
}}
"
    )
}

fn envoy(listen: SocketAddr, port: u16) -> String {
    let (ip, listen_port) = (listen.ip(), listen.port());
    let router = json!({"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}});
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "0s"}});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mcp",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    });
    let address = |ip: String, port: u16| json!({"socket_address": {"address": ip, "port_value": port}});
    json!({"static_resources": {
        "listeners": [{
            "address": address(ip.to_string(), listen_port),
            "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
        }],
        "clusters": [{
            "name": "backend", "type": "STATIC", "connect_timeout": "2s",
            "circuit_breakers": {"thresholds": [{"max_connections": 16384, "max_pending_requests": 16384, "max_requests": 16384}]},
            "load_assignment": {"cluster_name": "backend", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address("127.0.0.1".into(), port)}}]}]},
        }],
    }})
    .to_string()
}

fn haproxy(listen: SocketAddr, port: u16) -> String {
    format!(
        "global
  nbthread 1
  maxconn 4096
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout connect 2s
  timeout client 24h
  timeout server 24h
frontend mcp
  bind {listen}
  default_backend backend
backend backend
  server one 127.0.0.1:{port}
"
    )
}

fn mcp_proxy(listen: SocketAddr, port: u16) -> String {
    format!(
        "[proxy]
name = \"bench\"
separator = \"/\"
[proxy.listen]
host = \"{}\"
port = {}
[[backends]]
name = \"echo\"
transport = \"http\"
url = \"http://127.0.0.1:{port}/mcp\"
",
        listen.ip(),
        listen.port()
    )
}

fn write(folder: &Path, name: &str, content: &str) -> Result<String> {
    let file = folder.join(name);
    std::fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(text(&file))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
