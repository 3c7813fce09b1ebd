//! The official conformance suite through Traefik, the Service and the front door, to our own fixture in a pod. On
//! loopback it scores full marks without them (the suite `conformance`), so it must here.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mooring_tests::conformance::{self, Requirements};
use mooring_tests::key_shim::KeyShim;
use mooring_tests::mcp::Target;
use mooring_tests::product;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::room::Room;
use crate::specs::KEY;

const SERVER: &str = "fixture";
const PORT: u16 = 8000;

/// With a key, which a shim on loopback adds.
pub(crate) async fn pods_behind_traefik_score_full_marks(room: Room) -> Result<()> {
    full_marks(&room, json!({"keys": [{"name": KEY}]})).await
}

/// Without any.
pub(crate) async fn an_open_pod_scores_full_marks(room: Room) -> Result<()> {
    full_marks(&room, json!({"anonymous": true})).await
}

async fn full_marks(room: &Room, auth: Value) -> Result<()> {
    let keyed = auth.get("keys").is_some();
    let path = format!("/{}", room.name);
    let http = json!({"image": product::CONFORMANCE_SERVER, "port": PORT});
    room.serve(SERVER, &json!({"http": http, "path": path, "auth": auth})).await?;
    room.ready(SERVER).await?;
    room.apply(any_host(&path)).await?;

    let key = if keyed { Some(room.key(SERVER, KEY).await?) } else { None };
    let shim = KeyShim::start(room.world.ingress, key.as_deref()).await?;
    let address = shim.address();
    let host = format!("localhost:{}", address.port());
    let target = Target { address, host, path: format!("{path}/mcp"), key: None, headers: Vec::new() };
    until("Traefik to lead any Host to the pod", Duration::from_secs(30), || async {
        let ready = Target { path: format!("{path}/health/ready"), ..target.clone() }.send("GET", "").await?;
        ensure!(ready.status == 200, "{}: {}", ready.status, ready.text());
        Ok(())
    })
    .await?;
    if keyed {
        let without = Target { address: room.world.ingress, ..target.clone() }.send("POST", "{}").await?;
        ensure!(without.status == 401, "without the shim's key: {}", without.status);
    }
    for requirements in Requirements::ALL {
        let url = format!("http://{}{}", target.host, target.path);
        let report = conformance::run(&url, requirements).await?;
        let what = format!("conformance {}, {}", requirements.revision(), if keyed { "with a key" } else { "open" });
        room.world.figure(what, format!("{} checks", report.passed()));
        report.spotless(conformance::checks(requirements))?;
    }

    let before = calls(room).await?;
    conformance::refuses_foreign_names(&target).await?;
    let after = calls(room).await?;
    ensure!(before > 0 && before == after, "the fixture was asked {} times", after - before);
    Ok(())
}

/// How many requests came to the fixture.
async fn calls(room: &Room) -> Result<u64> {
    let pods = room.pods(SERVER).await?;
    let address = room.pod_port(pods.first().context("no pod")?, PORT).await?;
    let target = Target { address, host: "localhost".into(), path: "/calls".into(), key: None, headers: Vec::new() };
    target.send("GET", "").await?.text().parse().context("/calls is a number")
}

/// The suite speaks to localhost and to names that are nobody's; both must reach the front door.
fn any_host(path: &str) -> Value {
    let backend = json!({"service": {"name": SERVER, "port": {"number": 80}}});
    let rule = json!({"http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "any-host"},
        "spec": {"ingressClassName": "traefik", "rules": [rule]}})
}
