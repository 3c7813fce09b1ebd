//! A rollout that finds no room for a newer pod beside the older ones: it is told in words, the older ones serve on, and
//! `rollout.strategy: Recreate` ends it.

use anyhow::{Result, ensure};
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::PODS;

const NAME: &str = "stuck";

pub(crate) async fn a_quota_without_room_for_a_rollout(room: Room) -> Result<()> {
    let spec = specs::tools(&room, NAME);
    serve(&room, &spec).await?;
    let hard = json!({"hard": {"pods": "1"}});
    room.apply(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}, "spec": hard})).await?;
    until("the quota to be counted", PODS, || async {
        let used = room.kubectl(["get", "resourcequota", "one", "-o", "jsonpath={.status.used.pods}"]).await?;
        ensure!(used == "1", "{used:?} are used");
        Ok(())
    })
    .await?;
    rolls_out_at_last(&room, spec, "FailedCreate", &["exceeded quota", "raise it"]).await
}

pub(crate) async fn a_node_without_room_for_a_rollout(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, NAME);
    let labels = json!({"matchLabels": {"app.kubernetes.io/instance": NAME}});
    let apart = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": labels}]);
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}});
    spec["pod"] = json!({"affinity": apart});
    serve(&room, &spec).await?;
    rolls_out_at_last(&room, spec, "Unschedulable", &["anti-affinity", "pod.affinity"]).await
}

async fn serve(room: &Room, spec: &Value) -> Result<()> {
    room.serve(NAME, spec).await?;
    room.ready(NAME).await.map(drop)
}

/// Changes the pods' template where there is no room for a second pod, and then lets the first one stop before.
async fn rolls_out_at_last(room: &Room, mut spec: Value, reason: &str, words: &[&str]) -> Result<()> {
    let calls = Calls::begin(&room.entrance(NAME, KEY).await?, "health");
    let old = room.identities(NAME).await?;
    spec["frontDoor"] = json!({"resources": {"requests": {"cpu": "11m"}}});
    room.change(NAME, &spec).await?;
    let told: Vec<&str> = words.iter().copied().chain(["rollout.strategy: Recreate", "go on serving"]).collect();
    room.told(NAME, "Available", ("True", reason), &told).await?;
    room.told(NAME, "Ready", ("True", reason), &told).await?;
    calls.more(10).await?;
    calls.all_answered().await?;
    ensure!(room.identities(NAME).await?.iter().any(|pod| old.contains(pod)), "the older pod is there");

    spec["rollout"] = json!({"strategy": "Recreate"});
    room.change(NAME, &spec).await?;
    until("a newer pod alone", PODS, || async {
        let pods = room.identities(NAME).await?;
        ensure!(pods.len() == 1 && !pods.iter().any(|pod| old.contains(pod)), "{pods:?}");
        Ok(())
    })
    .await?;
    room.told(NAME, "Ready", ("True", "Ready"), &[]).await?;
    room.entrance(NAME, KEY).await?.call("health", json!({})).await.map(drop)
}
