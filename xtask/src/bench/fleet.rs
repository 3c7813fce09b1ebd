//! Many servers on the control plane: how long until every child is there, what it costs the API server (from its audit log) and the operator.

mod cpu;
mod trail;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use mooring_tests::operator_process::OperatorProcess;
use mooring_tests::product::{self, Products};
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options, installed};
use serde_json::json;

use super::{Figures, percentile};
use trail::Trail;

const OPERATOR: &str = "mooring-operator";
const NAMESPACE: &str = "fleet";
/// How many are created at the same time.
const CREATORS: usize = 16;
/// How often the audit log is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long the operator must have written nothing to count as done.
const SILENCE: Duration = Duration::from_secs(5);
/// Longest wait for a fleet to be made, and for it to be gone.
const PATIENCE: Duration = Duration::from_secs(900);
/// The time at rest.
const REST: Duration = Duration::from_secs(60);

pub async fn measure(products: &Products, count: usize, figures: &mut Figures) -> Result<()> {
    let cluster = Cluster::local(Level::ControlPlane, Options { audit: true, ..Options::default() }).await?;
    let crd = product::workspace().join("crds/mcpservers.yaml").display().to_string();
    cluster.kubectl(["apply", "--server-side", "-f", &crd]).await?;
    // kubectl gives up at once on a definition that has no conditions yet.
    until("the definition to be established", Duration::from_secs(30), || {
        cluster.kubectl(["wait", "--for=condition=Established", "crd/mcpservers.mooring.dev", "--timeout=5s"])
    })
    .await?;
    cluster.kubectl(["create", "namespace", installed::NAMESPACE]).await?;
    cluster.kubectl(["create", "namespace", NAMESPACE]).await?;
    let own = cluster.own("a fleet")?;
    let kubeconfig = own.kubeconfig_for(OPERATOR, &["system:masters"])?;
    let log = own.data().join("operator.log");
    let flags = [
        "--front-door-image",
        products.front_door.name,
        "--lease-namespace",
        installed::NAMESPACE,
        "--log-level",
        "warn",
    ];
    let operator = OperatorProcess::start_binary(&products.operator.binary, &kubeconfig, &log, flags)?;
    operator.ready().await?;
    let mut trail = Trail::follow(&own.audit_log())?;
    let before = (operator.usage()?, cpu::used(own.data())?);

    let servers = installed::servers(&cluster, NAMESPACE).await?;
    let start = Instant::now();
    let created: Vec<Result<()>> = futures::stream::iter(0..count)
        .map(|number| {
            let servers = servers.clone();
            async move {
                servers.create(&PostParams::default(), &server(number)?).await?;
                Ok(())
            }
        })
        .buffer_unordered(CREATORS)
        .collect()
        .await;
    created.into_iter().collect::<Result<()>>()?;
    let wall = quiet(&mut trail, count, start).await?;
    let after = (operator.usage()?, cpu::used(own.data())?);
    let list = servers.list(&ListParams::default()).await?;
    let done = list.items.iter().filter(|server| observed(server)).count();
    ensure!(done == count, "{done} of {count} servers have a status of their spec");
    report(&trail, count, figures)?;
    figures.add(format!("{count}: seconds until all is quiet"), wall, "s", None);
    figures.add(
        format!("{count}: operator CPU"),
        after.0.cpu_seconds - before.0.cpu_seconds,
        "s",
        Some(if count == 200 { "2" } else { "11" }),
    );
    for part in cpu::PARTS {
        let used = after.1.get(part).zip(before.1.get(part)).map_or(f64::NAN, |(after, before)| after - before);
        figures.add(format!("{count}: {part} CPU"), used, "s", None);
    }
    figures.add(
        format!("{count}: operator peak memory"),
        after.0.peak_kib as f64 / 1024.0,
        "MiB",
        Some(if count == 200 { "23" } else { "38" }),
    );

    let written = trail.writes;
    tokio::time::sleep(REST).await;
    trail.read()?;
    let writes = trail.writes - written;
    figures.add(format!("{count}: writes in 60 s at rest, Lease apart"), writes as f64, "writes", Some("0"));

    let start = Instant::now();
    servers.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    while trail.deleted < count {
        ensure!(start.elapsed() < PATIENCE, "{} of {count} Deployments were deleted", trail.deleted);
        tokio::time::sleep(LOOK).await;
        trail.read()?;
    }
    figures.add(format!("{count}: seconds to delete"), start.elapsed().as_secs_f64(), "s", None);
    operator.kill();
    cluster.stop().await
}

fn server(number: usize) -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "mooring.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"name": format!("server-{number}"), "namespace": NAMESPACE},
        "spec": {"http": {"image": "example.com/server:1", "port": 8000}, "auth": {"keys": [{"name": "first"}]}},
    }))?)
}

fn observed(server: &DynamicObject) -> bool {
    let generation = server.data.pointer("/status/observedGeneration").and_then(serde_json::Value::as_i64);
    generation.is_some() && generation == server.metadata.generation
}

/// Waits until every server was told of and the operator writes no more. Returns how long that took.
async fn quiet(trail: &mut Trail, count: usize, start: Instant) -> Result<f64> {
    let mut last = (0, start);
    loop {
        trail.read()?;
        if trail.writes != last.0 {
            last = (trail.writes, Instant::now());
        }
        if trail.told.len() == count && last.1.elapsed() >= SILENCE {
            return Ok(last.1.duration_since(start).as_secs_f64());
        }
        ensure!(start.elapsed() < PATIENCE, "{} of {count} servers have a status", trail.told.len());
        tokio::time::sleep(LOOK).await;
    }
}

fn report(trail: &Trail, count: usize, figures: &mut Figures) -> Result<()> {
    let Trail { born, last_child, .. } = trail;
    let first = born.values().copied().fold(f64::INFINITY, f64::min);
    ensure!(
        first.is_finite() && last_child.len() == count,
        "{} servers in the audit log, {count} expected",
        last_child.len()
    );
    let mut since_start: Vec<f64> = last_child.values().map(|at| at - first).collect();
    let mut since_birth: Vec<f64> = last_child.iter().filter_map(|(name, at)| Some(at - born.get(name)?)).collect();
    since_start.sort_by(f64::total_cmp);
    since_birth.sort_by(f64::total_cmp);
    let aim = if count == 200 { "13" } else { "60" };
    figures.add(format!("{count}: seconds until every child is there"), percentile(&since_start, 1.0), "s", Some(aim));
    for (name, share) in [("a tenth", 0.1), ("half", 0.5), ("nine tenths", 0.9)] {
        figures.add(
            format!("{count}: seconds until {name} of the servers is whole"),
            percentile(&since_start, share),
            "s",
            None,
        );
    }
    figures.add(format!("{count}: from create to whole, median server"), percentile(&since_birth, 0.5), "s", None);
    let each = |total: usize| total as f64 / count as f64;
    figures.add(format!("{count}: writes for each server"), each(trail.writes), "writes", Some("children (8) + 2"));
    figures.add(format!("{count}: of which status"), each(trail.statuses), "writes", Some("2"));
    figures.add(format!("{count}: requests for each server"), each(trail.writes + trail.reads), "requests", None);
    Ok(())
}
