//! `cargo xtask demo`: a cluster, Mooring in it, the examples, and a real client that uses each of them.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use mooring_tests::clients::{Client, Session};
use mooring_tests::product::{self, Products};
use mooring_tests::{Cluster, Level, Options, installed, parts, progress};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

const NAMESPACE: &str = "demo";

/// One stop of the tour.
struct Stop {
    server: &'static str,
    key: &'static str,
    tool: &'static str,
    arguments: fn() -> Value,
    what: &'static str,
}

const TOUR: [Stop; 4] = [
    Stop {
        server: "hello",
        key: "first",
        tool: "health",
        arguments: || json!({}),
        what: "mcpserver.yaml, a declared tool",
    },
    Stop {
        server: "weather",
        key: "laptop",
        tool: "forecast",
        arguments: || json!({"city": "Oslo", "days": 2}),
        what: "examples/weather.yaml, declared tools over an HTTP API in the cluster",
    },
    Stop {
        server: "everything",
        key: "laptop",
        tool: "echo",
        arguments: || json!({"message": "hello through the front door"}),
        what: "examples/everything.yaml, the protocol's reference server",
    },
    Stop {
        server: "notes",
        key: "laptop",
        tool: "add",
        arguments: || json!({"a": 2, "b": 3}),
        what: "examples/fastmcp.yaml, a FastMCP server below a path",
    },
];

pub fn run(once: bool, kubeconfig: Option<&Path>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Dropping the tour drops the cluster, which ends with its handle.
        tokio::select! {
            outcome = tour(once, kubeconfig) => return outcome,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        progress::say("Stopping everything that was started");
        Ok(())
    })
}

async fn tour(once: bool, kubeconfig: Option<&Path>) -> Result<()> {
    println!("1. What it takes");
    let products = tokio::task::spawn_blocking(product::build).await??;
    let cluster = match kubeconfig {
        Some(path) => Cluster::external(path).await?,
        None => local(&products).await?,
    };

    println!("\n2. Mooring, from its Helm chart");
    installed::install(&cluster, &products, &[]).await?;
    progress::say("The operator is available");

    println!("\n3. kubectl apply");
    installed::restricted_namespace(&cluster, NAMESPACE).await?;
    let workspace = product::workspace();
    for file in ["mcpserver.yaml", "examples/"] {
        let applied =
            cluster.kubectl(["apply", "-n", NAMESPACE, "-f", &workspace.join(file).display().to_string()]).await?;
        applied.lines().for_each(progress::say);
    }
    installed::await_servers(&cluster, NAMESPACE, &TOUR.map(|stop| stop.server)).await?;

    println!("\n4. A client (the Python SDK) uses each");
    let mut ways = Vec::new();
    for stop in &TOUR {
        ways.push(show(&cluster, stop).await?);
    }
    println!("\n5. kubectl get mcpservers\n");
    println!("{}", cluster.kubectl(["get", "mcpservers", "-n", NAMESPACE]).await?);
    println!("{}", cluster.kubectl(["get", "pods", "-n", NAMESPACE]).await?);
    if once {
        cluster.stop().await?;
        return Ok(());
    }
    println!("The cluster stays until Ctrl-C. From another terminal:\n");
    println!("  export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("  {} get mcpservers -n {NAMESPACE}", parts::kubectl()?.display());
    println!(
        "  curl -H 'Host: weather.example.com' -H \"Authorization: Bearer $KEY\" http://{}/mcp",
        ways.get(1).map_or("", |way| &way.authority)
    );
    std::future::pending::<()>().await;
    Ok(())
}

async fn local(products: &Products) -> Result<Cluster> {
    let mut images = products.archives();
    images.push(tokio::task::spawn_blocking(parts::servers::everything).await??);
    images.push(tokio::task::spawn_blocking(parts::servers::fastmcp).await??);
    progress::say("Starting Kubernetes");
    let cluster = Cluster::local(Level::Node, Options { images, ..Options::default() }).await?;
    progress::say(format!("Kubernetes is ready; KUBECONFIG={}", cluster.kubeconfig().display()));
    Ok(cluster)
}

/// How a server is reached from this machine.
struct Way {
    authority: String,
    /// A port-forward ends with this.
    _forward: Option<Child>,
}

async fn show(cluster: &Cluster, stop: &Stop) -> Result<Way> {
    let public = installed::ready(cluster, NAMESPACE, stop.server, Duration::from_secs(5)).await?;
    let key = installed::key(cluster, NAMESPACE, stop.server, stop.key).await?;
    let public: http::Uri = public.parse()?;
    let host = public.host().context("the URL has no host")?;
    let (address, forward) = reach(cluster, stop.server, host.ends_with(".example.com")).await?;
    let name = if forward.is_none() && host.ends_with(".example.com") { host } else { "127.0.0.1" };
    let url = format!("http://{name}:{}{}", address.port(), public.path());
    let session = Session::new(url).resolve_to(address.ip()).key(&key).call(stop.tool, (stop.arguments)());
    let report =
        Client::Python.run(&session).await.with_context(|| format!("the client could not use {}", stop.server))?;
    println!("\n  {} ({})", stop.server, stop.what);
    println!("    URL    {public}");
    println!("    key    {key}");
    println!("    tools  {}", report.tools.join(", "));
    println!("    {} -> {}", stop.tool, report.text.join(" "));
    Ok(Way { authority: address.to_string(), _forward: forward })
}

/// A local port that leads to the server: through the ingress controller where this is our cluster and the server has
/// a host, else to its Service.
async fn reach(cluster: &Cluster, server: &str, by_ingress: bool) -> Result<(SocketAddr, Option<Child>)> {
    if let Cluster::Local(_) = cluster {
        if by_ingress {
            return Ok((cluster.forward("traefik").await?, None));
        }
        let address = cluster
            .kubectl([
                "get",
                "service",
                server,
                "-n",
                NAMESPACE,
                "-o",
                "jsonpath={.spec.clusterIP}:{.spec.ports[0].port}",
            ])
            .await?;
        return Ok((cluster.forward(&address).await?, None));
    }
    let mut forward = Command::new(tokio::task::spawn_blocking(parts::kubectl).await??)
        .env("KUBECONFIG", cluster.kubeconfig())
        .args(["port-forward", "-n", NAMESPACE, &format!("service/{server}"), ":80"])
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("kubectl port-forward")?;
    let output = forward.stdout.take().context("kubectl port-forward has no output")?;
    let line = BufReader::new(output).lines().next_line().await?.context("kubectl port-forward said nothing")?;
    // "Forwarding from 127.0.0.1:12345 -> 24080"
    let address = line.split_whitespace().nth(2).and_then(|word| word.parse().ok());
    Ok((address.with_context(|| format!("kubectl port-forward said: {line}"))?, Some(forward)))
}
