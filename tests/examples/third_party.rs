//! A whole cluster, servers that nobody here wrote as plain Deployments behind Traefik, and every client against each:
//! `cargo run -p mooring-tests --example third_party`. No part of Mooring is in it, so what fails here is the harness.

use anyhow::Result;
use mooring_tests::clients::{Client, Session};
use mooring_tests::parts::servers::{self, EVERYTHING, FASTMCP};
use mooring_tests::{Cluster, Level, Options};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    let images =
        tokio::task::spawn_blocking(|| Ok::<_, anyhow::Error>(vec![servers::everything()?, servers::fastmcp()?]));
    let cluster = Cluster::local(Level::Node, Options { images: images.await??, ..Options::default() }).await?;
    if let Cluster::Local(local) = &cluster {
        println!("ready after {:.1} s", local.ready_after().as_secs_f32());
    }
    let outcome = run(&cluster).await;
    let start = std::time::Instant::now();
    cluster.stop().await?;
    println!("stopped in {:.1} s", start.elapsed().as_secs_f32());
    outcome
}

async fn run(cluster: &Cluster) -> Result<()> {
    let traefik = cluster.forward("traefik").await?;
    for (name, image, port, tool, arguments) in [
        ("everything", EVERYTHING, 3001, "echo", json!({"message": "hello"})),
        ("calculator", FASTMCP, 8000, "add", json!({"a": 2, "b": 3})),
    ] {
        cluster.apply(&servers::plain(name, image, port)).await?;
        cluster.kubectl(["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]).await?;
        let url = format!("http://{name}.example.com:{}/mcp", traefik.port());
        for client in Client::IN_CLUSTERS {
            for session in [Session::new(&url), Session::new(&url).legacy()] {
                let session = session.resolve_to(traefik.ip()).call(tool, arguments.clone());
                let report = client.run(&session).await?;
                println!("{name}: {report:?}");
            }
        }
    }
    Ok(())
}
