//! Sessions of servers that nobody here wrote, in three pods: every request goes to the next pod, on a connection of its own,
//! straight or by the next of two replicas of a proxy that knows nothing of sessions.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use mooring_tests::clients::{Client, Session, Transport};
use mooring_tests::front_door_process::{FrontDoorProcess, KEY, config, http};
use mooring_tests::mcp::{Streaming, Target};
use mooring_tests::parts::proxies;
use mooring_tests::process::{PATIENCE, Process, free_port};
use mooring_tests::server_process::{Server, ServerProcess};
use mooring_tests::sessions::{Tool, Ways, all_right, were_passed_on};
use mooring_tests::wait::until;
use serde_json::{Value, json};

const PODS: u8 = 3;
/// The revision without sessions.
const MODERN: &str = "2026-07-28";
/// The variable that says how many sessions of the least that speaks MCP there are of each server, straight and through each
/// proxy; how many there are where it is not set, and how many of them at once.
const SESSIONS: &str = "MOORING_STICKY_SESSIONS";
const FEW: usize = 84;
const AT_ONCE: usize = 20;
/// Sessions over the transport of 2024-11-05 beside them.
const OLDER: usize = 20;

fn sessions() -> Result<usize> {
    let Ok(sessions) = std::env::var(SESSIONS) else { return Ok(FEW) };
    sessions.parse().with_context(|| format!("{SESSIONS} is a number of sessions"))
}

/// The pods of one server.
struct Fleet {
    pods: Vec<(ServerProcess, FrontDoorProcess)>,
}

impl Fleet {
    async fn start(server: Server) -> Result<Self> {
        let peer_port = free_port()?;
        let pods = (1..=PODS).map(|number| async move {
            let server = server.start().await?;
            let door = FrontDoorProcess::start_in_pod(&config(&http(server.port())), number, peer_port).await?;
            door.ready().await.with_context(|| server.log_text())?;
            anyhow::Ok((server, door))
        });
        Ok(Self { pods: try_join_all(pods).await? })
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.pods.iter().map(|(_, door)| door.address()).collect()
    }

    /// So many sessions by these ways: all are right, and the pods passed on as many requests as they must have.
    async fn serves(&self, sessions: usize, ways: &Ways, tool: &Tool) -> Result<String> {
        let (start, before) = (Instant::now(), self.sum("mooring_server_forwards_total").await?);
        all_right(sessions, AT_ONCE, || ways.whole(tool)).await?;
        let passed_on = self.sum("mooring_server_forwards_total").await? - before;
        were_passed_on(passed_on, sessions)?;
        all_right(OLDER, AT_ONCE, || ways.older(tool)).await.context("over HTTP+SSE")?;
        Ok(format!(
            "{sessions} + {OLDER} sessions right, {passed_on} requests of the former passed on, {:?}",
            start.elapsed()
        ))
    }

    async fn sum(&self, metric: &str) -> Result<f64> {
        Ok(try_join_all(self.pods.iter().map(|(_, door)| door.metric(metric, ""))).await?.iter().sum())
    }
}

/// What stands before the pods.
#[derive(Clone, Copy, Debug)]
enum Proxy {
    Nginx,
    /// As it is where nobody has told it of event streams: it keeps what an answer has until it has much of it.
    NginxByDefault,
    Haproxy,
    Envoy,
}

/// A proxy that runs.
struct Before {
    process: Process,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Proxy {
    async fn start(self, pods: &[SocketAddr]) -> Result<Before> {
        let folder = tempfile::tempdir()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let file = folder.path().join("config");
        let mut command = match self {
            Self::Nginx | Self::NginxByDefault => {
                let more = if matches!(self, Self::Nginx) { UNBUFFERED } else { BY_DEFAULT };
                std::fs::write(&file, nginx(folder.path(), address, pods, more))?;
                let mut nginx = Command::new(proxies::nginx()?);
                nginx.arg("-p").arg(folder.path());
                nginx
            }
            Self::Haproxy => {
                std::fs::write(&file, haproxy(address, pods))?;
                let mut haproxy = Command::new(proxies::haproxy()?);
                haproxy.arg("-db");
                haproxy
            }
            Self::Envoy => {
                std::fs::write(&file, envoy(address, pods).to_string())?;
                let mut envoy = Command::new(proxies::envoy()?);
                envoy.args(["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"]);
                envoy
            }
        };
        command.arg(if matches!(self, Self::Haproxy) { "-f" } else { "-c" }).arg(&file);
        let process = Process::start(&format!("{self:?}"), &command)?;
        until("the proxy to listen", PATIENCE, || async {
            tokio::net::TcpStream::connect(address).await.with_context(|| process.log_text())
        })
        .await?;
        Ok(Before { process, address, _folder: folder })
    }
}

/// What people write for event streams.
const UNBUFFERED: &str =
    "proxy_http_version 1.1; proxy_set_header Connection close; proxy_buffering off; proxy_read_timeout 1h;";
/// What most nginx do where nobody has written anything: before 1.29.7 it was the default.
const BY_DEFAULT: &str = "proxy_http_version 1.0;";

fn nginx(folder: &Path, listen: SocketAddr, pods: &[SocketAddr], more: &str) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path {folder}/{kind};")).join("\n");
    let pods: Vec<_> = pods.iter().map(|pod| format!("server {pod} max_fails=0;")).collect();
    let pods = pods.join("\n");
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
access_log off;
{temporary}
upstream pods {{
{pods}
}}
server {{ listen {listen};
location / {{ proxy_pass http://pods; proxy_set_header Host $http_host; proxy_next_upstream off; {more} }} }}
}}
"
    )
}

fn haproxy(listen: SocketAddr, pods: &[SocketAddr]) -> String {
    let pods: Vec<_> = (1..).zip(pods).map(|(number, pod)| format!("  server pod{number} {pod}")).collect();
    let pods = pods.join("\n");
    format!(
        "global
  nbthread 2
defaults
  mode http
  option httpclose
  http-reuse never
  timeout connect 2s
  timeout client 1h
  timeout server 1h
frontend mcp
  bind {listen}
  default_backend pods
backend pods
  balance roundrobin
{pods}
"
    )
}

fn envoy(listen: SocketAddr, pods: &[SocketAddr]) -> Value {
    let address =
        |at: &SocketAddr| json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}});
    let pods: Vec<_> = pods.iter().map(|pod| json!({"endpoint": {"address": address(pod)}})).collect();
    let extension = |name: &str| format!("type.googleapis.com/envoy.extensions.filters.{name}");
    let router =
        json!({"name": "envoy.filters.http.router", "typed_config": {"@type": extension("http.router.v3.Router")}});
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "pods", "timeout": "0s"}});
    let manager = json!({
        "@type": extension("network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "mcp",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    });
    let options = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "common_http_protocol_options": {"max_requests_per_connection": 1},
        "explicit_http_config": {"http_protocol_options": {}},
    });
    json!({"static_resources": {
        "listeners": [{
            "address": address(&listen),
            "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
        }],
        "clusters": [{
            "name": "pods", "type": "STATIC", "connect_timeout": "2s", "lb_policy": "ROUND_ROBIN",
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
            "load_assignment": {"cluster_name": "pods", "endpoints": [{"lb_endpoints": pods}]},
        }],
    }})
}

/// The endpoint, at each of these addresses in turn.
fn by(addresses: &[SocketAddr]) -> Ways {
    let address = addresses[0];
    let (host, key) = (address.to_string(), Some(KEY.into()));
    Ways::new(&Target { address, host, path: "/mcp".into(), key, headers: Vec::new() }, addresses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_stays_on_its_pod_behind_any_proxy_and_none() -> Result<()> {
    let sessions = sessions()?;
    for (server, tool) in [(Server::Everything, Tool::echo()), (Server::FastMcp, Tool::add())] {
        let fleet = Fleet::start(server).await?;
        let pods = fleet.addresses();
        let right = fleet.serves(sessions, &by(&pods), &tool).await.context("straight")?;
        println!("straight to {server:?}: {right}");
        for proxy in [Proxy::Nginx, Proxy::Haproxy, Proxy::Envoy] {
            let (one, other) = tokio::try_join!(proxy.start(&pods), proxy.start(&pods))?;
            let log = || format!("{proxy:?}: {}{}", one.process.log_text(), other.process.log_text());
            let right = fleet.serves(sessions, &by(&[one.address, other.address]), &tool).await.with_context(log)?;
            println!("two of {proxy:?} before {server:?}: {right}");
            let clients = [
                (Client::Python, Transport::StreamableHttp, "/mcp"),
                (Client::Python, Transport::Sse, "/sse"),
                (Client::FastMcp, Transport::StreamableHttp, "/mcp"),
                (Client::TypeScript, Transport::StreamableHttp, "/mcp"),
            ];
            for (client, transport, path) in clients {
                let url = format!("http://{}{path}", one.address);
                let session = Session::new(url).key(KEY).legacy().over(transport);
                let report = client.run(&session.call(tool.name, tool.arguments.clone())).await;
                let report = report.with_context(|| format!("{client:?} over {transport:?} behind {proxy:?}"))?;
                ensure!(!report.is_error && report.text.join(" ") == tool.says, "{report:?}");
            }
        }
        until("no session to be left", PATIENCE, || async {
            let left = fleet.sum("mooring_server_sessions").await?;
            ensure!(left < 0.5, "{left} sessions are left");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A call that goes on for longer than anybody waits here, and tells its progress, less than a proxy keeps.
fn slow() -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}, "progressToken": 1,
    });
    let params = json!({"name": "count", "arguments": {"to": 1000, "pause": 3}, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

/// The next event of a stream that has more to say, so that it is none of those that a proxy gives away at the end.
async fn next(stream: &mut Streaming) -> Result<String> {
    let event = tokio::time::timeout(PATIENCE, stream.text()).await.context("nothing arrives")??;
    event.with_context(|| format!("{}: the stream has ended", stream.status))
}

#[tokio::test]
async fn events_pass_a_proxy_that_buffers_as_they_come() -> Result<()> {
    let server = Server::FastMcp.start().await?;
    let door = FrontDoorProcess::start(&config(&http(server.port()))).await?;
    door.ready().await?;
    let proxy = Proxy::NginxByDefault.start(&[door.address()]).await?;
    let target = Target { address: proxy.address, host: proxy.address.to_string(), ..door.target() };

    let call = target.with_header("mcp-protocol-version", MODERN).with_header("mcp-method", "tools/call");
    let mut call = call.with_header("mcp-name", "count").open("POST", slow()).await?;
    for step in ["\"progress\":1", "\"progress\":2"] {
        let event = next(&mut call).await.context("the stream of a POST")?;
        ensure!(event.contains(step), "{event}");
    }

    let mut stream = Target { path: "/sse".into(), ..target.clone() }.open("GET", "").await?;
    let messages = Target { path: next(&mut stream).await.context("the stream of a GET")?, ..target };
    for id in [1, 2] {
        messages.send("POST", json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string()).await?;
        let event = next(&mut stream).await.context("the stream of a GET")?;
        ensure!(event.contains(&format!("\"id\":{id}")), "{event}");
    }
    Ok(())
}
