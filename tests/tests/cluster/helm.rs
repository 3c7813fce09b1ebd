//! The chart's releases over servers that run: upgraded, removed, installed anew under another name, narrowed to one
//! namespace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use mooring_plan::names;
use mooring_tests::images::Image;
use mooring_tests::wait::until;
use mooring_tests::{installed, product};
use serde_json::json;

use crate::calls::Calls;
use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// The servers of the upgrade.
const FLEET: [&str; 4] = ["a", "b", "c", "d"];
/// How long something that must not happen is given to happen.
const WATCHED: Duration = Duration::from_secs(8);

/// Loads the front door of this workspace under another tag, as a newer release would come.
async fn load_front_door(room: &Room, tag: &str) -> Result<String> {
    let door = &room.world.products.front_door;
    let name = format!("localhost/mooring-server:{tag}");
    let archive = door.archive.with_extension(format!("{tag}.tar"));
    let image = Image::new(&name).file("mooring-server", &door.binary, 0o755).entrypoint(["/mooring-server"]);
    image.user("65532:65532").label("org.opencontainers.image.version", tag).write(&archive)?;
    room.world.cluster.import_image(&archive).await?;
    Ok(name)
}

/// Each server's front-door image, and whether its rollout is complete.
async fn fleet(room: &Room) -> Result<BTreeMap<String, (String, bool)>> {
    let deployments: Api<Deployment> = Api::namespaced(room.world.cluster.client().await?, &room.name);
    let all = deployments.list(&ListParams::default().labels(&names::selector_of_all())).await?;
    all.items.into_iter().map(state).collect()
}

fn state(deployment: Deployment) -> Result<(String, (String, bool))> {
    let name = deployment.metadata.name.context("a name")?;
    let generation = deployment.metadata.generation;
    let spec = deployment.spec.context("a spec")?;
    let containers = spec.template.spec.context("a pod")?.containers;
    let door = containers.into_iter().find(|container| container.name == names::FRONT_DOOR).context("a front door")?;
    let status = deployment.status.unwrap_or_default();
    let (wanted, seen) = (spec.replicas, status.observed_generation == generation);
    let settled =
        seen && status.updated_replicas == wanted && status.available_replicas == wanted && status.replicas == wanted;
    Ok((name, (door.image.unwrap_or_default(), settled)))
}

/// Waits until an operator is the one of a release and leads.
async fn operator_rolled_out(room: &Room, namespace: &str, deployment: &str) -> Result<()> {
    let name = format!("deployment/{deployment}");
    room.world.cluster.kubectl(["rollout", "status", "-n", namespace, &name, "--timeout=120s"]).await.map(drop)
}

/// `helm upgrade` of the release that the suite installed.
async fn upgrade(room: &Room, values: &[&str]) -> Result<()> {
    installed::install(&room.world.cluster, &room.world.products, values).await?;
    operator_rolled_out(room, installed::NAMESPACE, "mooring").await
}

/// Another release of the chart, with the images of this workspace.
async fn install_as(room: &Room, release: &str, values: &[&str]) -> Result<()> {
    let chart = product::workspace().join("charts/mooring").display().to_string();
    let namespace = format!("{release}-system");
    let mut arguments = vec!["install", release, &chart, "--namespace", &namespace, "--create-namespace"];
    let images = installed::image_values(&room.world.cluster, &room.world.products);
    for value in images.iter().map(String::as_str).chain(values.iter().copied()) {
        arguments.extend(["--set", value]);
    }
    room.world.cluster.namespace(&namespace, &[]).await?;
    room.world.cluster.helm(arguments).await?;
    operator_rolled_out(room, &namespace, &format!("{release}-mooring")).await
}

async fn uninstall(room: &Room, release: &str, namespace: &str) -> Result<()> {
    room.world.cluster.helm(["uninstall", release, "--namespace", namespace, "--wait"]).await?;
    until("the operator to be gone", PODS, || async {
        let selector = "app.kubernetes.io/component=operator";
        let pods = room.world.cluster.kubectl(["get", "pods", "-n", namespace, "-l", selector, "-o", "name"]).await?;
        ensure!(pods.trim().is_empty(), "{pods}");
        Ok(())
    })
    .await
}

pub(crate) async fn an_upgrade_moves_servers_one_after_another(room: Room) -> Result<()> {
    // The examples would move along; this is about the fleet.
    if room.world.has_demo() {
        let examples = Room::of(&room.world, "demo");
        examples.kubectl(["delete", "mcpservers", "--all"]).await?;
    }
    for name in FLEET {
        room.serve(name, &specs::tools(&room, name)).await?;
        room.change(name, &json!({"replicas": 1})).await?;
    }
    let mut calls = Vec::new();
    for name in FLEET {
        calls.push(Calls::begin(&room.entrance(name, KEY).await?, "health"));
    }
    let old = room.world.products.front_door.name;
    ensure!(fleet(&room).await?.values().all(|(image, _)| image == old), "they begin with {old}");

    // Manual: nothing moves, until a spec changes.
    let new = load_front_door(&room, "next").await?;
    let (tag, manual) = ("frontDoor.image.tag=next", "upgrade.policy=Manual");
    upgrade(&room, &[tag, manual]).await?;
    let watched = Instant::now();
    while watched.elapsed() < WATCHED {
        let moved = fleet(&room).await?.into_iter().find(|(_, (image, _))| image != old);
        ensure!(moved.is_none(), "moved without being asked: {moved:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    room.change("a", &json!({"origins": ["https://app.example.test"]})).await?;
    until("the changed server to have moved", PODS, || async {
        let fleet = fleet(&room).await?;
        ensure!(fleet["a"] == (new.clone(), true), "{fleet:?}");
        Ok(())
    })
    .await?;
    ensure!(fleet(&room).await?.values().filter(|(image, _)| *image == new).count() == 1, "the others stay");

    // Auto: the others follow, no two at once, and no call fails.
    let start = Instant::now();
    upgrade(&room, &[tag, "upgrade.policy=Auto", "upgrade.parallelism=1"]).await?;
    let mut most = 0;
    loop {
        let fleet = fleet(&room).await?;
        most = most.max(fleet.values().filter(|(image, settled)| *image == new && !settled).count());
        if fleet.values().all(|state| *state == (new.clone(), true)) {
            break;
        }
        if start.elapsed() > PODS {
            let selector = names::selector_of_all();
            let all = ["get", "deployments", "--all-namespaces", "-l", &selector];
            bail!("they do not move: {fleet:?}\n{}", room.world.cluster.kubectl(all).await?);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ensure!(most == 1, "{most} servers moved at once");
    let mut answered = 0;
    for calls in calls {
        calls.more(10).await?;
        answered += calls.all_answered().await?.0;
    }
    room.world.figure(
        "helm upgrade: 3 servers moved to a new front door, one after another",
        format!("{}, {answered} calls, none failed", seconds(start.elapsed())),
    );
    // Back to where the suite began.
    upgrade(&room, &[]).await
}

pub(crate) async fn a_release_goes_and_another_takes_over(room: Room) -> Result<()> {
    let cluster = &room.world.cluster;
    upgrade(&room, &[]).await?; // nothing to do, unless a scenario before this one has failed
    room.serve("lasting", &specs::tools(&room, "lasting")).await?;
    let target = room.entrance("lasting", KEY).await?;
    let by_hand = room.mint("lasting", "laptop").await?;
    let before = room.identities("lasting").await?;
    let calls = Calls::begin(&target, "health");

    uninstall(&room, "mooring", installed::NAMESPACE).await?;
    calls.more(20).await?;
    room.kubectl(["get", "mcpserver", "lasting"]).await.context("the definition and its objects stay")?;

    install_as(&room, "second", &[]).await?;
    room.change("lasting", &json!({"origins": ["https://app.example.test"]})).await?;
    let page = target.with_header("origin", "https://app.example.test");
    until("the new release to act", PODS, || async { page.tools().await.map(drop) }).await?;
    calls.more(20).await?;
    calls.all_answered().await?;
    ensure!(target.with_key(Some(&by_hand)).tools().await? == ["health"], "a key made by hand outlives the release");
    assert_eq!(room.identities("lasting").await?, before, "no pod was restarted");

    // Narrowed to this namespace, with no right beyond it.
    uninstall(&room, "second", "second-system").await?;
    cluster.namespace("not-served", &[]).await?;
    let namespaces = format!("namespaces={{{}}}", room.name);
    let narrow =
        ["scope=Namespaced", &namespaces, "crds.enabled=false", "rbac.aggregate=false", "rbac.clusterRead=false"];
    install_as(&room, "narrow", &narrow).await?;
    let account = "system:serviceaccount:narrow-system:narrow-mooring";
    let secrets = |namespace: &'static str| {
        cluster.kubectl(["auth", "can-i", "list", "secrets", "--as", account, "-n", namespace])
    };
    ensure!(secrets("not-served").await.is_err(), "it may read the Secrets of a namespace that it does not serve");
    let classes = cluster.kubectl(["auth", "can-i", "list", "ingressclasses", "--as", account]).await;
    ensure!(classes.is_err(), "it may read what belongs to the cluster as a whole");

    let elsewhere = Room::of(&room.world, "not-served");
    elsewhere.serve("ignored", &specs::tools(&elsewhere, "ignored")).await?;
    room.serve("served", &specs::tools(&room, "served")).await?;
    // Whether its class exists it cannot know; its Ingress is served all the same.
    room.told("served", "Exposed", ("True", "Exposed"), &[]).await?;
    let served = room.entrance("served", KEY).await?;
    ensure!(served.call("health", json!({})).await? == r#"{"status":"alive"}"#, "it serves");
    let minted = room.mint("served", "laptop").await?;
    until("a key made by hand to work", Duration::from_secs(5), || async {
        served.with_key(Some(&minted)).tools().await.map(drop)
    })
    .await?;
    room.change("lasting", &json!({"origins": null})).await?;
    until("the change to be in force", Duration::from_secs(10), || async {
        ensure!(page.tools().await.is_err(), "the page may still call");
        Ok(())
    })
    .await?;
    let ignored = elsewhere.kubectl(["get", "deployments,services,secrets", "-o", "name"]).await?;
    ensure!(ignored.trim().is_empty(), "it acted where it does not serve: {ignored}");
    ensure!(elsewhere.server("ignored").await?.pointer("/status/conditions").is_none(), "it wrote a status there");
    elsewhere.leave().await;

    // As the suite found it.
    uninstall(&room, "narrow", "narrow-system").await?;
    for namespace in ["second-system", "narrow-system"] {
        cluster.kubectl(["delete", "namespace", namespace, "--wait=false"]).await?;
    }
    installed::install(cluster, &room.world.products, &[]).await
}
