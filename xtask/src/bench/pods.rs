//! Pods that run: seconds from apply to the first answered `tools/list`, with the images present.

use std::time::{Duration, Instant};

use anyhow::Result;
use mooring_tests::mcp::Target;
use mooring_tests::product::{self, Products};
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options, installed};
use serde_json::json;

use super::{Figures, percentile};

const RUNS: usize = 5;

pub async fn measure(products: &Products, figures: &mut Figures) -> Result<()> {
    let options = Options { images: products.archives(), metrics: false, traefik: false, ..Options::default() };
    let cluster = Cluster::local(Level::Node, options).await?;
    installed::install(&cluster, products, &[]).await?;
    let manifest = product::workspace().join("mcpserver.yaml").display().to_string();
    let mut seconds = Vec::new();
    for run in 0..RUNS {
        let namespace = format!("bench-{run}");
        installed::restricted_namespace(&cluster, &namespace).await?;
        let start = Instant::now();
        cluster.kubectl(["apply", "-n", &namespace, "-f", &manifest]).await?;
        let key = installed::key(&cluster, &namespace, "hello", "first").await?;
        let address = until("the Service", Duration::from_secs(30), || {
            cluster.kubectl([
                "get",
                "service",
                "hello",
                "-n",
                &namespace,
                "-o",
                "jsonpath={.spec.clusterIP}:{.spec.ports[0].port}",
            ])
        })
        .await?;
        let address = cluster.forward(&address).await?;
        let target = Target { address, host: "hello".into(), path: "/mcp".into(), key: Some(key), headers: Vec::new() };
        until("the first answer", Duration::from_secs(60), || target.request("tools/list", json!({}))).await?;
        seconds.push(start.elapsed().as_secs_f64());
        cluster.kubectl(["delete", "namespace", &namespace, "--wait=false"]).await?;
    }
    seconds.sort_by(f64::total_cmp);
    figures.add("apply to first answered tools/list, median", percentile(&seconds, 0.5), "s", Some("3"));
    figures.add("apply to first answered tools/list, slowest", percentile(&seconds, 1.0), "s", None);
    cluster.stop().await
}
