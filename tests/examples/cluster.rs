//! Brings up a cluster and keeps it until Ctrl-C: `cargo run -p mooring-tests --example cluster -- node`, with a number behind it
//! for more nodes than one.

use mooring_tests::{Cluster, Level, Options};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let node = std::env::args().nth(1).as_deref() == Some("node");
    let nodes = std::env::args().nth(2).map_or(Ok(1), |count| count.parse())?;
    let level = if node { Level::Node } else { Level::ControlPlane };
    let cluster = Cluster::start(level, Options { audit: true, nodes, ..Options::default() }).await?;
    if let Cluster::Local(local) = &cluster {
        println!("ready after {:.1} s, pid 1 of each node is {:?}", local.ready_after().as_secs_f32(), local.pids().1);
    }
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    if node {
        println!("export MOORING_TEST_INGRESS={}", cluster.forward("traefik").await?);
    }
    println!("{}", cluster.kubectl(["get", "nodes,pods", "-A", "-o", "wide"]).await?);
    tokio::signal::ctrl_c().await?;
    cluster.stop().await
}
