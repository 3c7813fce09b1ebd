//! Proxies that many clusters run, each with one worker, set up as a team would run it in front of an MCP server: connections kept, answers not held
//! back, no access log. What decides between several servers is the bench's.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use mooring_tests::parts::proxies;
use serde_json::{Value, json};

use super::load::Target;
use super::running::Start;
use super::{text, words, write};

/// nginx before servers at these ports. `balance` stands within `upstream`.
pub fn nginx(folder: &Path, target: Target, ports: &[u16], balance: &str) -> Result<Start> {
    let (folder_text, listen) = (text(folder), target.address);
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|kind| format!("{kind}_temp_path {folder_text}/{kind};")).join("\n");
    let servers: Vec<_> = ports.iter().map(|port| format!("server 127.0.0.1:{port};")).collect();
    let servers = servers.join(" ");
    let config = format!(
        "daemon off; worker_processes 1; pid {folder_text}/pid; error_log {folder_text}/error.log crit;
events {{ worker_connections 8192; }}
http {{
access_log off; tcp_nodelay on; keepalive_timeout 120; keepalive_requests 1000000000; client_max_body_size 8m; client_body_buffer_size 128k;
{temporary}
upstream backend {{ {servers} {balance} keepalive 1024; keepalive_requests 1000000000; }}
server {{ listen {listen} backlog=4096;
location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection \"\"; proxy_buffering off; proxy_read_timeout 86400s; }} }}
}}
"
    );
    let file = write(folder, "nginx.conf", &config)?;
    Ok(Start { program: proxies::nginx()?, arguments: words(&["-p", &folder_text, "-c", &file]), target })
}

/// Envoy before servers at these ports. `filters` stand before the router.
pub fn envoy(folder: &Path, target: Target, ports: &[u16], filters: &[Value]) -> Result<Start> {
    let router = json!({"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}});
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "0s"}});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mcp",
        "http_filters": filters.iter().chain([&router]).collect::<Vec<_>>(),
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    });
    let address = |at: SocketAddr| json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}});
    let endpoint = |port: &u16| json!({"endpoint": {"address": address(([127, 0, 0, 1], *port).into())}});
    let config = json!({"static_resources": {
        "listeners": [{
            "address": address(target.address),
            "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
        }],
        "clusters": [{
            "name": "backend", "type": "STATIC", "connect_timeout": "2s", "lb_policy": "ROUND_ROBIN",
            "circuit_breakers": {"thresholds": [{"max_connections": 16384, "max_pending_requests": 16384, "max_requests": 16384}]},
            "load_assignment": {"cluster_name": "backend", "endpoints": [{"lb_endpoints": ports.iter().map(endpoint).collect::<Vec<_>>()}]},
        }],
    }});
    let file = write(folder, "envoy.yaml", &config.to_string())?;
    let quiet = ["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "off"];
    Ok(Start { program: proxies::envoy()?, arguments: [words(&["-c", &file]), words(&quiet)].concat(), target })
}

/// HAProxy before servers at these ports. `balance` stands within `backend`.
pub fn haproxy(folder: &Path, target: Target, ports: &[u16], balance: &str) -> Result<Start> {
    let servers: Vec<_> = ports.iter().map(|port| format!("  server at{port} 127.0.0.1:{port}\n")).collect();
    let config = format!(
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
  bind {}
  default_backend backend
backend backend
{balance}{}",
        target.address,
        servers.concat()
    );
    let file = write(folder, "haproxy.cfg", &config)?;
    Ok(Start { program: proxies::haproxy()?, arguments: words(&["-db", "-f", &file]), target })
}
