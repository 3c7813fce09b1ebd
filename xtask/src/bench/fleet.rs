//! Many servers on the control plane: how long until every child is there, what it costs the API server (from its audit log) and the operator.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use mooring_tests::cluster::AuditEvent;
use mooring_tests::operator_process::OperatorProcess;
use mooring_tests::product::{self, Products};
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options, installed};
use serde_json::json;

use super::{Figures, percentile};

const OPERATOR: &str = "mooring-operator";
const NAMESPACE: &str = "fleet";
/// How many are created at the same time.
const CREATORS: usize = 16;
/// How often the fleet is looked at: seldom, because a list of it costs the API server more than a server does.
const LOOK: Duration = Duration::from_secs(3);
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
    let before = operator.usage()?;

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
    until("every server to have its status", Duration::from_secs(900), || async {
        let list = servers.list(&ListParams::default().match_any()).await?;
        let done = list.items.iter().filter(|server| observed(server)).count();
        if done < count {
            tokio::time::sleep(LOOK).await;
        }
        ensure!(done == count, "{done} of {count}");
        Ok(())
    })
    .await?;
    quiet(&cluster, Duration::from_secs(5)).await?;
    let wall = start.elapsed().as_secs_f64();
    let after = operator.usage()?;
    let events = cluster.audit()?;
    report(&events, count, figures)?;
    figures.add(format!("{count}: seconds until all is quiet"), wall, "s", None);
    figures.add(
        format!("{count}: operator CPU"),
        after.cpu_seconds - before.cpu_seconds,
        "s",
        Some(if count == 200 { "2" } else { "11" }),
    );
    figures.add(
        format!("{count}: operator peak memory"),
        after.peak_kib as f64 / 1024.0,
        "MiB",
        Some(if count == 200 { "23" } else { "38" }),
    );

    tokio::time::sleep(REST).await;
    let at_rest = cluster.audit()?;
    let writes = at_rest.get(events.len()..).unwrap_or_default().iter().filter(|event| is_counted_write(event)).count();
    figures.add(format!("{count}: writes in 60 s at rest, Lease apart"), writes as f64, "writes", Some("0"));

    let start = Instant::now();
    servers.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let deployments: Api<PartialObjectMeta<Deployment>> = Api::namespaced(cluster.client().await?, NAMESPACE);
    until("every Deployment to be gone", Duration::from_secs(900), || async {
        let left = deployments.list_metadata(&ListParams::default().match_any()).await?.items.len();
        ensure!(left == 0, "{left} left");
        Ok(())
    })
    .await?;
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

/// Waits until the operator has written nothing for this long.
async fn quiet(cluster: &Cluster, silence: Duration) -> Result<()> {
    let mut last = (0, Instant::now());
    until("the operator to come to rest", Duration::from_secs(600), || {
        let writes = cluster.audit().map(|events| events.iter().filter(|event| is_counted_write(event)).count());
        let settled = writes.map(|writes| {
            if writes != last.0 {
                last = (writes, Instant::now());
            }
            last.1.elapsed() >= silence
        });
        async move {
            if settled? {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
            anyhow::bail!("it still writes")
        }
    })
    .await
}

fn is_operators(event: &AuditEvent) -> bool {
    event.user.username == OPERATOR && event.stage == "ResponseComplete"
}

/// A write of the operator, Lease and Events apart.
fn is_counted_write(event: &AuditEvent) -> bool {
    is_operators(event) && event.is_write() && !matches!(event.resource(), "leases" | "events")
}

fn report(events: &[AuditEvent], count: usize, figures: &mut Figures) -> Result<()> {
    let seconds = |text: &str| -> Result<f64> { Ok(text.parse::<Timestamp>()?.as_microsecond() as f64 / 1e6) };
    let mut born: BTreeMap<String, f64> = BTreeMap::new();
    let mut last_child: BTreeMap<String, f64> = BTreeMap::new();
    let (mut writes, mut requests, mut statuses) = (0_usize, 0_usize, 0_usize);
    for event in events.iter().filter(|event| event.stage == "ResponseComplete" && event.code() < 300) {
        let Some(object) = &event.object_ref else { continue };
        if object.namespace != NAMESPACE {
            continue;
        }
        let owner = object.name.split('.').next().unwrap_or_default().to_owned();
        if is_operators(event) {
            requests += usize::from(event.verb != "watch");
            if is_counted_write(event) {
                writes += 1;
                if object.subresource == "status" {
                    statuses += 1;
                } else if !owner.is_empty() {
                    let at = seconds(&event.stage_timestamp)?;
                    last_child.entry(owner).and_modify(|latest| *latest = latest.max(at)).or_insert(at);
                }
            }
        } else if event.verb == "create" && object.resource == "mcpservers" {
            born.insert(object.name.clone(), seconds(&event.request_received_timestamp)?);
        }
    }
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
    figures.add(format!("{count}: writes for each server"), each(writes), "writes", Some("children (8) + 2"));
    figures.add(format!("{count}: of which status"), each(statuses), "writes", Some("2"));
    figures.add(format!("{count}: requests for each server"), each(requests), "requests", None);
    Ok(())
}
