//! What keeps a server from running reaches its conditions in words, with the field or object that somebody must change.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mooring_tests::product;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::room::Room;
use crate::specs::{self, KEY};

/// Applies a server that cannot run, and waits until Available and Ready say why. `kubectl get mcps` shows the reason.
async fn fails(room: &Room, spec: &Value, reason: &str, words: &[&str]) -> Result<()> {
    room.serve("broken", spec).await?;
    room.told("broken", "Available", ("False", reason), words).await?;
    shows(room, reason).await
}

/// Waits until Ready is False with this reason, in the API and in kubectl's table.
async fn shows(room: &Room, reason: &str) -> Result<()> {
    room.told("broken", "Ready", ("False", reason), &[]).await?;
    let table = room.kubectl(["get", "mcps", "broken"]).await?;
    let line = table.lines().nth(1).with_context(|| table.clone())?;
    let columns: Vec<_> = line.split_whitespace().take(3).collect();
    ensure!(columns == ["broken", "False", reason], "{table}");
    Ok(())
}

pub(crate) async fn an_image_that_does_not_exist(room: Room) -> Result<()> {
    let image = "localhost/no-such-image:1";
    let spec = json!({"http": {"image": image}, "auth": {"keys": [{"name": KEY}]}});
    fails(&room, &spec, "ImagePullBackOff", &[image, "container server"]).await
}

pub(crate) async fn a_server_that_crashes(room: Room) -> Result<()> {
    let program = "console.error('no database at db:5432'); process.exit(3)";
    let spec = specs::node(&room, "broken", &["/usr/bin/node", "-e", program], &[]);
    let words = ["container server", "exit code 3", "no database at db:5432"];
    fails(&room, &spec, "CrashLoopBackOff", &words).await
}

/// The front door is the pod's main container; without the memory to start it ends again and again, too.
pub(crate) async fn a_front_door_without_memory(room: Room) -> Result<()> {
    room.apply(specs::recorder_program()).await?;
    // A backend without a limit leaves the pod as a whole without one: its sandbox starts.
    let mut spec = specs::recorder(&room, "broken", "recorded");
    let memory = json!({"memory": "1Mi"});
    spec["frontDoor"] = json!({"resources": {"requests": memory, "limits": memory}});
    room.serve("broken", &spec).await?;
    // Which one it is depends on whether the kernel or runc notices first; both name the container.
    let reason = until("the front door's failure", crate::world::PODS, || async {
        let found = room.condition("broken", "Available").await?;
        let told = ["CrashLoopBackOff", "ContainerCannotRun"].contains(&found.reason.as_str());
        ensure!(found.status == "False" && told && found.message.contains("front-door"), "{found:?}");
        Ok(found.reason)
    })
    .await?;
    room.told("broken", "Ready", ("False", &reason), &["front-door"]).await
}

pub(crate) async fn a_command_that_is_not_in_the_image(room: Room) -> Result<()> {
    let spec = specs::node(&room, "broken", &["/no/such/program"], &[]);
    fails(&room, &spec, "ContainerCannotRun", &["container server", "/no/such/program"]).await
}

/// It runs, but it is no MCP server: the handshake says so, the pod is not ready, and nobody is sent there.
pub(crate) async fn an_image_that_is_no_mcp_server(room: Room) -> Result<()> {
    let http = json!({"image": room.image(product::WEATHER_API), "port": 8000});
    let spec = json!({"http": http, "hosts": [room.host("broken")], "ingress": {}, "auth": {"keys": [{"name": KEY}]}});
    room.serve("broken", &spec).await?;
    room.told("broken", "Verified", ("False", "HandshakeFailed"), &["404", "http.path"]).await?;
    shows(&room, "HandshakeFailed").await?;
    for pod in room.pods("broken").await? {
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").context("no condition Ready")?;
        ensure!(ready.status == "False", "the pod is ready");
    }
    let path = "jsonpath={.items[*].endpoints[*].conditions.ready}";
    let slices = ["get", "endpointslices", "-l", "kubernetes.io/service-name=broken", "-o", path];
    let ready = room.kubectl(slices).await?;
    ensure!(!ready.is_empty() && !ready.contains("true"), "traffic would be sent there: {ready}");
    Ok(())
}

pub(crate) async fn a_secret_that_comes_later(room: Room) -> Result<()> {
    room.apply(specs::recorder_program()).await?;
    let mut spec = specs::recorder(&room, "broken", "recorded");
    let from = json!({"secretKeyRef": {"name": "database", "key": "password"}});
    spec["http"]["env"] = json!([{"name": "PASSWORD", "valueFrom": from}]);
    fails(&room, &spec, "ReferenceNotFound", &["database"]).await?;
    // The Deployment is there all the same, and the pod waits.
    ensure!(!room.pods("broken").await?.is_empty(), "no pod waits for the Secret");

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}, "stringData": {"password": "x"}});
    room.apply(secret).await?;
    let target = room.entrance("broken", KEY).await?;
    ensure!(target.call("record", json!({})).await? == "recorded", "it serves now");
    room.told("broken", "Available", ("True", "Available"), &[]).await
}

pub(crate) async fn a_quota_that_is_used_up(room: Room) -> Result<()> {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    room.apply(quota).await?;
    until("the quota to be counted", Duration::from_secs(20), || async {
        let counted = room.kubectl(["get", "resourcequota", "none", "-o", "jsonpath={.status.hard.pods}"]).await?;
        ensure!(counted == "0", "not yet");
        Ok(())
    })
    .await?;
    fails(&room, &specs::tools(&room, "broken"), "FailedCreate", &["quota", "pods=0"]).await
}

pub(crate) async fn a_node_that_nobody_has(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, "broken");
    spec["pod"] = json!({"nodeSelector": {"accelerator": "none-such"}});
    fails(&room, &spec, "Unschedulable", &["node affinity/selector"]).await
}
