//! Figures of what is shipped: sizes, memory, and the time until a new server answers.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mooring_plan::names;
use mooring_tests::mcp::Target;
use mooring_tests::wait::until;
use serde_json::json;

use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::seconds;

const MEGABYTE: u64 = 1_000_000;
/// Most that the front door's image may have, as it travels.
const FRONT_DOOR_IMAGE: u64 = 12 * MEGABYTE;
/// Most that an idle front door may hold.
const IDLE: u64 = 16 * MEGABYTE;

fn megabytes(bytes: u64) -> String {
    format!("{}.{:02} MB", bytes / MEGABYTE, bytes % MEGABYTE / 10_000)
}

/// Resident memory of a container's first process.
async fn resident(room: &Room, server: &str, container: &str) -> Result<u64> {
    let local = room.world.cluster.own("reading a process")?;
    let pods = room.pods(server).await?;
    let pod = pods.first().context("no pod")?;
    let (node, id) = (Room::node(pod)?, Room::container(pod, container)?);
    let tasks = local.exec_on(node, &["ctr", "-n", "k8s.io", "tasks", "ls"]).await?;
    let task = tasks.lines().find(|line| line.starts_with(&id)).context("no task")?;
    let pid = task.split_whitespace().nth(1).context("no pid")?;
    let status = local.exec_on(node, &["cat", &format!("/proc/{pid}/status")]).await?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().with_context(|| line.to_owned())?;
    Ok(kibibytes * 1024)
}

pub(crate) async fn images_and_memory_stay_small(room: Room) -> Result<()> {
    let products = &room.world.products;
    for product in [&products.front_door, &products.operator] {
        room.world.figure(format!("image {}, compressed", product.name), megabytes(product.written.layer_bytes));
    }
    ensure!(products.front_door.written.layer_bytes <= FRONT_DOOR_IMAGE, "the front door's image grew");

    room.serve("small", &specs::tools(&room, "small")).await?;
    let target = room.entrance("small", KEY).await?;
    let idle = resident(&room, "small", names::FRONT_DOOR).await?;
    for _ in 0..200 {
        target.call("health", json!({})).await?;
    }
    let used = resident(&room, "small", names::FRONT_DOOR).await?;
    room.world.figure(
        "resident memory of a front door: after its start, after 200 calls",
        format!("{}, {}", megabytes(idle), megabytes(used)),
    );
    ensure!(idle <= IDLE, "an idle front door holds {}", megabytes(idle));

    let system = Room::of(&room.world, mooring_tests::installed::NAMESPACE);
    let top =
        system.kubectl(["get", "pods", "-o", "jsonpath={.items[0].status.containerStatuses[0].restartCount}"]).await?;
    ensure!(top.trim() == "0", "the operator was restarted {top} times");
    Ok(())
}

/// Alone, with every image present: from `kubectl apply` to the first answered `tools/list`.
pub(crate) async fn a_new_server_answers_within_seconds(room: Room) -> Result<()> {
    let start = Instant::now();
    room.serve("quick", &specs::tools(&room, "quick")).await?;
    let applied = start.elapsed();
    let key = room.key("quick", KEY).await?;
    let address = until("the Service", Duration::from_secs(20), || async {
        room.world.cluster.forward(&format!("{}/quick:80", room.name)).await
    })
    .await?;
    let target = Target { address, host: room.host("quick"), path: "/mcp".into(), key: Some(key), headers: Vec::new() };
    until("an answer at the Service", Duration::from_secs(20), || async { target.tools().await.map(drop) }).await?;
    let at_the_service = start.elapsed();
    let through_traefik = Target { address: room.world.ingress, ..target };
    until("an answer through Traefik", Duration::from_secs(20), || async { through_traefik.tools().await.map(drop) })
        .await?;
    let through_traefik = start.elapsed();
    room.ready("quick").await?;
    let ready = start.elapsed();
    room.world.figure(
        "a new server: kubectl returned, tools/list answered at the Service, through Traefik, Ready",
        [applied, at_the_service, through_traefik, ready].map(seconds).join(", "),
    );
    ensure!(at_the_service < Duration::from_secs(10), "it took {at_the_service:?}");
    Ok(())
}
