//! Changes while a server serves: what is only configuration comes into force in running pods; what needs new pods loses
//! no call; what is deleted leaves nothing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http::StatusCode;
use mooring_tests::mcp::Target;
use mooring_tests::wait::until;
use serde_json::json;

use crate::calls::Calls;
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// Until a change of the configuration must be in force in every pod.
const SOON: Duration = Duration::from_secs(5);

/// Waits until every pod answers with this status.
async fn everywhere(pods: &[Target], body: &str, status: StatusCode) -> Result<()> {
    until(&format!("every pod to answer {status}"), SOON, || async {
        for (index, pod) in pods.iter().enumerate() {
            let answer = pod.send("POST", body.to_owned()).await?;
            ensure!(answer.status == status, "pod {index}: {}", answer.status);
        }
        Ok(())
    })
    .await
}

pub(crate) async fn configuration_reaches_running_pods(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, "changing");
    spec["replicas"] = 2.into();
    room.serve("changing", &spec).await?;
    let target = room.entrance("changing", KEY).await?;
    let pods = room.at_each_pod(&target, "changing").await?;
    assert_eq!(pods.len(), 2);
    let before = room.identities("changing").await?;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let each = |change: &dyn Fn(&Target) -> Target| pods.iter().map(change).collect::<Vec<_>>();
    let mut slowest = Duration::ZERO;

    let other_name = each(&|pod| pod.with_host("another.example.test"));
    everywhere(&other_name, &list, StatusCode::MISDIRECTED_REQUEST).await?;
    room.change("changing", &json!({"hosts": ["another.example.test"]})).await?;
    let start = Instant::now();
    everywhere(&other_name, &list, StatusCode::OK).await?;
    everywhere(&pods, &list, StatusCode::MISDIRECTED_REQUEST).await?;
    slowest = slowest.max(start.elapsed());
    room.change("changing", &json!({"hosts": [room.host("changing")]})).await?;
    everywhere(&pods, &list, StatusCode::OK).await?;

    let page = each(&|pod| pod.with_header("origin", "https://app.example.test"));
    everywhere(&page, &list, StatusCode::FORBIDDEN).await?;
    room.change("changing", &json!({"origins": ["https://app.example.test"]})).await?;
    let start = Instant::now();
    everywhere(&page, &list, StatusCode::OK).await?;
    slowest = slowest.max(start.elapsed());

    let large =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"pad": "x".repeat(4000)}}).to_string();
    everywhere(&pods, &large, StatusCode::OK).await?;
    room.change("changing", &json!({"limits": {"bodyBytes": 2048}})).await?;
    let start = Instant::now();
    everywhere(&pods, &large, StatusCode::PAYLOAD_TOO_LARGE).await?;
    slowest = slowest.max(start.elapsed());
    room.change("changing", &json!({"limits": null})).await?;
    everywhere(&pods, &large, StatusCode::OK).await?;

    let tool = |name: &str| json!({"name": name, "http": {"url": "http://changing/health"}});
    room.change("changing", &json!({"tools": [tool("health"), tool("second")]})).await?;
    let start = Instant::now();
    until("every pod to list the new tool", SOON, || async {
        for pod in &pods {
            let tools = pod.tools().await?;
            ensure!(tools == ["health", "second"], "{tools:?}");
        }
        Ok(())
    })
    .await?;
    slowest = slowest.max(start.elapsed());
    room.world.figure("configuration changed: in force in 2 pods, the slowest of 4 changes", seconds(slowest));
    assert_eq!(room.identities("changing").await?, before, "no pod was restarted or replaced");
    Ok(())
}

/// New pods, and none of the old.
async fn replaced(room: &Room, server: &str, before: &[crate::room::Identity]) -> Result<()> {
    until("only new pods", PODS, || async {
        let now = room.identities(server).await?;
        let old = now.iter().find(|pod| before.iter().any(|other| other.uid == pod.uid));
        ensure!(now.len() == before.len() && old.is_none(), "{now:?}");
        Ok(())
    })
    .await
}

pub(crate) async fn a_rollout_of_declared_tools_loses_no_call(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, "rolling");
    spec["replicas"] = 2.into();
    room.serve("rolling", &spec).await?;
    let target = room.entrance("rolling", KEY).await?;
    // The way to a Service of somebody else's cluster leads to one pod of it, and ends with that.
    let inside = match room.world.cluster.own("a Service's own address") {
        Ok(_) => Some(room.service("rolling", "/mcp", KEY).await?),
        Err(_) => None,
    };
    let before = room.identities("rolling").await?;

    let outer = Calls::begin(&target, "health");
    let inner = inside.map(|inside| Calls::begin(&inside, "health"));
    outer.more(20).await?;
    room.change("rolling", &json!({"pod": {"annotations": {"example.test/release": "2"}}})).await?;
    replaced(&room, "rolling", &before).await?;
    room.rolled_out("rolling").await?;
    outer.more(20).await?;

    // A restart by kubectl is a change of the template that is not ours, and stays.
    let before = room.identities("rolling").await?;
    room.kubectl(["rollout", "restart", "deployment/rolling"]).await?;
    replaced(&room, "rolling", &before).await?;
    room.rolled_out("rolling").await?;
    let after = room.identities("rolling").await?;
    outer.more(20).await?;
    let (mut answered, slowest) = outer.all_answered().await.context("through Traefik")?;
    if let Some(inner) = inner {
        answered += inner.all_answered().await.context("at the Service")?.0;
    }
    room.world.figure(
        "two rollouts of declared tools under calls, none failed",
        format!("{answered} calls, the slowest {}", seconds(slowest)),
    );
    room.change("rolling", &json!({"origins": ["https://app.example.test"]})).await?;
    room.ready("rolling").await?;
    assert_eq!(room.identities("rolling").await?, after, "the operator does not undo a restart");
    Ok(())
}

pub(crate) async fn a_rollout_of_an_image_loses_no_call(room: Room) -> Result<()> {
    room.apply(specs::recorder_program()).await?;
    let mut spec = specs::recorder(&room, "rolling", "one");
    spec["replicas"] = 2.into();
    room.serve("rolling", &spec).await?;
    let target = room.entrance("rolling", KEY).await?;
    let before = room.identities("rolling").await?;
    assert_eq!(target.call("record", json!({})).await?, "one");

    let calls = Calls::begin(&target, "record");
    calls.more(20).await?;
    room.change("rolling", &json!({"http": {"args": ["/program/recorder.mjs", "two"]}})).await?;
    replaced(&room, "rolling", &before).await?;
    room.rolled_out("rolling").await?;
    calls.more(20).await?;
    let (answered, slowest) = calls.all_answered().await?;
    room.world.figure(
        "a rollout of an image's arguments under calls, none failed",
        format!("{answered} calls, the slowest {}", seconds(slowest)),
    );
    until("the new pods alone to answer", Duration::from_secs(20), || async {
        let said = target.call("record", json!({})).await?;
        ensure!(said == "two", "{said}");
        Ok(())
    })
    .await
}

pub(crate) async fn what_is_deleted_leaves_nothing(room: Room) -> Result<()> {
    const KINDS: &str = "serviceaccounts,deployments,replicasets,pods,services,endpointslices,networkpolicies,configmaps,secrets,ingresses";
    let names = || async { room.kubectl(["get", KINDS, "-o", "name"]).await };
    let empty = until("what every namespace has", PODS, || async {
        let empty = names().await?;
        ensure!(
            ["serviceaccount/default", "configmap/kube-root-ca.crt"].iter().all(|own| empty.contains(own)),
            "{empty}"
        );
        Ok(empty)
    })
    .await?;
    room.serve("gone", &specs::tools(&room, "gone")).await?;
    let target = room.entrance("gone", KEY).await?;
    room.mint("gone", "laptop").await?;
    let full = names().await?;
    for child in [
        "serviceaccount/gone",
        "deployment.apps/gone",
        "service/gone",
        "networkpolicy.networking.k8s.io/gone",
        "configmap/gone.config",
        "secret/gone.keys",
        "secret/gone.session",
        "secret/gone.key.first",
        "ingress.networking.k8s.io/gone",
    ] {
        ensure!(full.lines().any(|line| line == child), "there is no {child}:\n{full}");
    }
    let start = Instant::now();
    room.kubectl(["delete", "mcpserver", "gone"]).await?;
    until("everything to be gone", PODS, || async {
        let left = names().await?;
        let left: Vec<_> = left.lines().filter(|line| !empty.lines().any(|before| before == *line)).collect();
        ensure!(left.is_empty(), "there is still {left:?}");
        Ok(())
    })
    .await?;
    room.world.figure("deleted: every child and pod gone", seconds(start.elapsed()));
    match target.send("POST", "{}").await {
        Ok(answer) if answer.status == StatusCode::NOT_FOUND => Ok(()),
        Ok(answer) => bail!("Traefik still answers {}", answer.status),
        Err(error) => Err(error),
    }
}
