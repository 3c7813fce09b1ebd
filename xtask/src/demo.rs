//! `cargo xtask demo`: a cluster, Mooring in it, the examples, and a real client that uses each of them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::networking::v1::IngressClass;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use mooring_tests::clients::{Client, Session};
use mooring_tests::product::{self, Products};
use mooring_tests::{Cluster, Level, Options, installed, parts, progress};
use serde_json::{Value, json};
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

/// Where the demo runs.
pub enum Where<'a> {
    /// In a cluster that it brings up and ends.
    Here,
    /// In one that is there already, whose nodes get our images from `images`.
    There { kubeconfig: &'a Path, images: Option<String> },
}

pub fn run(once: bool, place: &Where<'_>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stopped = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            progress::say("Stopping everything that was started");
            Ok(())
        };
        // Dropping the tour drops the cluster: one of our own ends with its handle.
        let outcome = tokio::select! {
            outcome = tour(once, place) => outcome,
            outcome = stopped => outcome,
        };
        if let Where::There { kubeconfig, .. } = place {
            progress::say("Taking everything out of the cluster again");
            let left = async { Cluster::external(kubeconfig, None).await?.clear().await };
            return left.await.and(outcome);
        }
        outcome
    })
}

async fn tour(once: bool, place: &Where<'_>) -> Result<()> {
    println!("1. What it takes");
    let products = tokio::task::spawn_blocking(product::build).await??;
    let cluster = match place {
        Where::Here => local(&products).await?,
        Where::There { kubeconfig, images } => there(kubeconfig, images.clone()).await?,
    };

    println!("\n2. Mooring, from its Helm chart");
    installed::install(&cluster, &products, &[]).await?;
    progress::say("The operator is available");

    println!("\n3. kubectl apply");
    installed::restricted_namespace(&cluster, NAMESPACE).await?;
    installed::apply_examples(&cluster, NAMESPACE).await?.lines().for_each(progress::say);
    let ingress = has_default_ingress_class(&cluster).await?;
    if !ingress {
        progress::say("No IngressClass is this cluster's default: the examples go without their Ingress");
        for stop in &TOUR {
            let without = r#"{"spec": {"ingress": null}}"#;
            let patch = ["patch", "mcpserver", stop.server, "-n", NAMESPACE, "--type=merge", "--patch", without];
            cluster.kubectl(patch).await?;
        }
    }
    installed::await_servers(&cluster, NAMESPACE, &TOUR.map(|stop| stop.server)).await?;

    println!("\n4. A client (the Python SDK) uses each");
    let mut weather = None;
    for stop in &TOUR {
        let address = show(&cluster, stop).await?;
        weather = weather.or_else(|| (stop.server == "weather").then_some(address));
    }
    println!("\n5. kubectl get mcpservers\n");
    println!("{}", cluster.kubectl(["get", "mcpservers", "-n", NAMESPACE]).await?);
    println!("{}", cluster.kubectl(["get", "pods", "-n", NAMESPACE]).await?);
    if once {
        return cluster.stop().await;
    }
    println!("It stays until Ctrl-C. From another terminal:\n");
    println!("  export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("  alias kubectl={}", parts::kubectl()?.display());
    println!("  kubectl get mcpservers -n {NAMESPACE}");
    let path = "'{{.data.key | base64decode}}'";
    println!("  KEY=$(kubectl get secret weather.key.laptop -n {NAMESPACE} -o go-template={path})");
    println!(
        "  curl http://{}/mcp -H 'Host: weather.example.com' -H \"Authorization: Bearer $KEY\" \\",
        weather.context("an address")?
    );
    println!("    --json '{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}}'");
    std::future::pending::<()>().await;
    Ok(())
}

/// A cluster that is there already, without what a demo before this one left that was killed.
async fn there(kubeconfig: &Path, images: Option<String>) -> Result<Cluster> {
    let cluster = Cluster::external(kubeconfig, images).await?;
    cluster.clear().await?;
    progress::say(format!("Using the cluster of {}", kubeconfig.display()));
    Ok(cluster)
}

async fn has_default_ingress_class(cluster: &Cluster) -> Result<bool> {
    let classes: Api<IngressClass> = Api::all(cluster.client().await?);
    let is_default = |class: &IngressClass| {
        class.annotations().get("ingressclass.kubernetes.io/is-default-class").is_some_and(|value| value == "true")
    };
    Ok(classes.list(&ListParams::default()).await?.iter().any(is_default))
}

async fn local(products: &Products) -> Result<Cluster> {
    let mut images = products.archives();
    images.push(tokio::task::spawn_blocking(parts::servers::everything).await??);
    images.push(tokio::task::spawn_blocking(parts::servers::fastmcp).await??);
    progress::say("Starting Kubernetes");
    let cluster = Cluster::local(Level::Node, Options { images, metrics: false, ..Options::default() }).await?;
    progress::say(format!("Kubernetes is ready; KUBECONFIG={}", cluster.kubeconfig().display()));
    Ok(cluster)
}

/// Shows one server in use, and returns where it is reached from this machine.
async fn show(cluster: &Cluster, stop: &Stop) -> Result<SocketAddr> {
    let public = installed::ready(cluster, NAMESPACE, stop.server, Duration::from_secs(5)).await?;
    let key = installed::key(cluster, NAMESPACE, stop.server, stop.key).await?;
    let public: http::Uri = public.parse()?;
    let host = public.host().context("the URL has no host")?;
    // Through the ingress controller of our own cluster where the server has a host, else to its Service.
    let by_ingress = matches!(cluster, Cluster::Local(_)) && host.ends_with(".example.com");
    let (name, target) = if by_ingress {
        (host, "traefik".to_owned())
    } else {
        ("127.0.0.1", format!("{NAMESPACE}/{}:80", stop.server))
    };
    let address = cluster.forward(&target).await?;
    let url = format!("http://{name}:{}{}", address.port(), public.path());
    let session = Session::new(url).resolve_to(address.ip()).key(&key).call(stop.tool, (stop.arguments)());
    let report =
        Client::Python.run(&session).await.with_context(|| format!("the client could not use {}", stop.server))?;
    println!("\n  {} ({})", stop.server, stop.what);
    println!("    URL    {public}");
    println!("    key    {key}");
    println!("    tools  {}", report.tools.join(", "));
    println!("    {} -> {}", stop.tool, report.text.join(" "));
    Ok(address)
}
