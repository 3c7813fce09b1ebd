//! A node is drained under sessions of a server that keeps them in its memory. The cluster is one of its own, with two nodes:
//! who drains a node of the cluster that all share disturbs them all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use mooring_plan::names;
use mooring_tests::mcp::Target;
use mooring_tests::sessions::Ways;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::room::{Room, is_ready};
use crate::sessions::{SESSIONS, begin_long_call, spread};
use crate::specs::{self, KEY};
use crate::world::{PODS, World, seconds, text};

/// The node that goes. The other one holds the ingress controller, too.
const DRAINED: &str = "node-2";
const REPLICAS: u8 = 4;
/// Slow calls of such a session, 3 s each: together shorter than `DRAIN`.
const SLOW_CALLS: usize = 3;
/// `sessions.drain`.
const DRAIN: Duration = Duration::from_secs(20);
/// How many seconds a call takes that is in flight in each pod: more than a pod would stay without it.
const LONG: usize = 120;

/// server-everything, which is told to heed SIGTERM: else a pod would stay for all of its grace period.
fn everything(room: &Room, name: &str) -> Value {
    let heed = "--import=data:text/javascript,process.on('SIGTERM',()=>process.exit())";
    let mut spec = specs::everything(room, name, REPLICAS);
    spec["http"]["env"] = json!([{"name": "NODE_OPTIONS", "value": heed}]);
    spec["limits"] = json!({"callTimeout": "3m"});
    spec["sessions"] = json!({"drain": format!("{}s", DRAIN.as_secs())});
    spec
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// How many pods of a server each node has.
async fn per_node(room: &Room, server: &str) -> Result<BTreeMap<String, u8>> {
    let mut count = BTreeMap::new();
    for pod in room.pods(server).await? {
        *count.entry(node(&pod).to_owned()).or_default() += 1;
    }
    Ok(count)
}

/// The pod that answers in a session.
async fn pod_of(session: &Target) -> Result<String> {
    let said = session.call("get-env", json!({})).await?;
    Ok(text(&serde_json::from_str(&said)?, "/HOSTNAME")?.to_owned())
}

/// A whole session, in which a call is in flight nearly all the time. Each call that was answered is counted.
async fn session(target: &Target, calls: &AtomicUsize) -> Result<()> {
    let session = target.begin_session().await?;
    let pod = pod_of(&session).await?;
    for _ in 0..SLOW_CALLS {
        session.call("trigger-long-running-operation", json!({"duration": 3, "steps": 2})).await?;
        let now = pod_of(&session).await?;
        ensure!(now == pod, "the session went from {pod} to {now}");
        calls.fetch_add(2, Ordering::Relaxed);
    }
    let end = session.send("DELETE", "").await?;
    ensure!(end.status.is_success(), "DELETE: {} {}", end.status, end.text());
    Ok(())
}

/// Asks in a session that its client does not end. The answer is when it was last heard; after that there is one 404, as for
/// every session that is over.
async fn last_heard(session: Target) -> Result<Instant> {
    let mut heard = Instant::now();
    // With an id of its own: the long call may run in the same session.
    let ping = json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"}).to_string();
    loop {
        let answer = session.send("POST", ping.clone()).await?;
        match answer.status {
            StatusCode::OK => heard = Instant::now(),
            StatusCode::NOT_FOUND => return Ok(heard),
            status => bail!("{status}: {}", answer.text()),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What is seen of a server while its node is drained.
#[derive(Default)]
struct Seen {
    /// When each pod of the node was first seen on its way out.
    leaving: BTreeMap<String, Instant>,
    /// Most pods that did not serve at the same time.
    missing: u8,
}

impl Seen {
    async fn look(&mut self, room: &Room, server: &str, before: &[String]) -> Result<()> {
        let pods = room.pods(server).await?;
        let serving = pods.iter().filter(|pod| is_ready(pod)).count();
        self.missing = self.missing.max(REPLICAS.saturating_sub(u8::try_from(serving)?));
        for name in before.iter().filter(|name| !pods.iter().any(|pod| pod.name_any() == **name)) {
            self.leaving.entry(name.clone()).or_insert_with(Instant::now);
        }
        for kind in ["Ready", "Available"] {
            let condition = room.condition(server, kind).await?;
            ensure!(condition.status == "True", "{kind} during a drain: {condition:?}");
        }
        Ok(())
    }
}

pub(crate) async fn a_drained_node_loses_no_call(shared: Room) -> Result<()> {
    let world = Arc::new(World::of_nodes(&shared.world.products, 2).await?);
    let room = Room::make(&world, "drained").await?;
    let outcome = match drain(&room).await {
        Ok(figure) => Ok(figure),
        Err(error) => {
            let all = ["logs", "--selector", "app.kubernetes.io/name=mooring-server", "--container", names::FRONT_DOOR];
            let logs = room.kubectl(all.into_iter().chain(["--tail=40", "--prefix"])).await.unwrap_or_default();
            Err(error.context(format!("{}\n{logs}", room.describe().await)))
        }
    };
    drop(room);
    Arc::into_inner(world).context("somebody still holds the cluster")?.stop().await?;
    shared.world.figure("a node drained under sessions, no call lost and no initialize refused", outcome?);
    Ok(())
}

async fn drain(room: &Room) -> Result<String> {
    room.serve("sticky", &everything(room, "sticky")).await?;
    let target = room.entrance("sticky", KEY).await?;
    let nodes = until("pods on both nodes", PODS, || async {
        let nodes = per_node(room, "sticky").await?;
        ensure!(nodes.len() == 2 && nodes.values().sum::<u8>() == REPLICAS, "{nodes:?}");
        Ok(nodes)
    })
    .await?;
    let pods = room.pods("sticky").await?;
    let ways = Ways::new(&target, &[target.address]);
    let each = spread(&room.at_each_pod(&target, "sticky").await?, &ways, pods.len()).await?;
    let there = |pod: &Pod| node(pod) == DRAINED;
    let before: Vec<_> = pods.iter().filter(|pod| there(pod)).map(ResourceExt::name_any).collect();

    let calls = Arc::<AtomicUsize>::default();
    let client = |_| {
        let (target, calls) = (target.clone(), Arc::clone(&calls));
        move || {
            let (target, calls) = (target.clone(), Arc::clone(&calls));
            async move { session(&target, &calls).await }
        }
    };
    // Each with one session after the other.
    let clients = Calls::each(Duration::ZERO, (0..SESSIONS).map(client));
    until("calls in flight", PODS, || async {
        ensure!(calls.load(Ordering::Relaxed) >= 2 * SESSIONS, "{calls:?} were answered");
        Ok(())
    })
    .await?;
    let long: Vec<_> = each.iter().map(|session| begin_long_call(session, LONG)).collect();
    let there = each.iter().zip(&pods).filter(|(_, pod)| there(pod)).map(|(session, _)| session.next());
    let heard: Vec<_> = there.map(|session| tokio::spawn(last_heard(session))).collect();

    let start = Instant::now();
    let arguments = ["drain", DRAINED, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s"];
    let mut drained = Box::pin(room.world.cluster.kubectl(arguments));
    let mut seen = Seen::default();
    loop {
        tokio::select! {
            said = &mut drained => break said.map(drop)?,
            () = tokio::time::sleep(Duration::from_millis(250)) => seen.look(room, "sticky", &before).await?,
        };
    }
    let took = start.elapsed();
    seen.look(room, "sticky", &before).await?;
    let now = per_node(room, "sticky").await?;
    ensure!(now.len() == 1 && !now.contains_key(DRAINED), "{now:?}");
    ensure!(seen.missing <= 1, "{} of {REPLICAS} pods did not serve at the same time", seen.missing);

    // Nothing was cut: neither the long calls, nor the sessions, which went on where their pods went away.
    for call in long {
        call.await?.context("a long call")?;
    }
    let (sessions, _) = clients.all_answered().await.context("the sessions of clients")?;
    for (heard, name) in try_join_all(heard).await?.into_iter().zip(&before) {
        let lived = heard? - *seen.leaving.get(name).with_context(|| format!("{name} never left"))?;
        ensure!(lived + Duration::from_secs(1) >= DRAIN, "a session of {name} lived for {lived:?} after the eviction");
    }

    // The node comes back, and takes pods again.
    room.world.cluster.kubectl(["uncordon", DRAINED]).await?;
    room.change("sticky", &json!({"replicas": REPLICAS + 1})).await?;
    until("a pod on the node", PODS, || async {
        let pods = room.pods("sticky").await?;
        ensure!(pods.iter().any(|pod| node(pod) == DRAINED && is_ready(pod)), "{:?}", per_node(room, "sticky").await?);
        Ok(())
    })
    .await?;
    let nodes: Vec<_> = nodes.values().map(u8::to_string).collect();
    Ok(format!(
        "{sessions} sessions, {SESSIONS} at once, {} calls and one of {LONG} s in each pod, {} pods, drain {}",
        calls.load(Ordering::Relaxed),
        nodes.join(" + "),
        seconds(took)
    ))
}
