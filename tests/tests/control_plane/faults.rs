//! The API server refuses, hangs, goes away and comes back; objects do not parse; the CustomResourceDefinition is missing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use mooring_tests::cluster::Signal;
use mooring_tests::fault_proxy::{Fault, Refusal};
use mooring_tests::wait::until;
use serde_json::json;

use crate::world::{
    SOON, Scope, World, control_plane, full, full_children, install_class, install_crd, left_out, patched, scaled,
    scaled_children,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_write_survives_refusals() -> Result<()> {
    let world = World::new("refusals").await?;
    let _operator = world.operator().await?;
    let spec = |name: &str| patched(&full(&format!("{name}.refusals.example.com")), &scaled());
    let children = |name: &str| {
        let mut children = [full_children(name), scaled_children(name)].concat();
        children.sort();
        children
    };
    world.apply("reference", &spec("reference")).await?;
    world.at_rest(&["reference"]).await?;
    let rename = |text: &str, to: &str| text.replace("reference", to);
    let reference = serde_json::to_string(&world.children("reference").await?.without_chance().0)?;
    let writes: Vec<(String, String)> = world
        .proxy
        .since(0)
        .iter()
        .map(|record| &record.request)
        .filter(|request| request.is_counted())
        .map(|request| (request.resource.clone(), request.subresource.clone()))
        .collect();
    let mut kinds = writes.clone();
    kinds.sort();
    kinds.dedup();
    assert!(kinds.len() >= 10, "written are {kinds:?}");
    let mut names = Vec::new();
    for (index, code) in [409, 429, 500, 503, 422].into_iter().enumerate() {
        for (resource, subresource) in &kinds {
            let name = format!("r{index}-{}{}", resource.trim_end_matches('s'), subresource);
            let (resource, subresource) = (resource.clone(), subresource.clone());
            let prefix = name.clone();
            let times = if code == 422 { 1 } else { 3 };
            world.proxy.inject(Fault::Answer(Refusal::new(code)), 0, times, move |request| {
                let mine =
                    request.name.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
                let posted =
                    request.name.is_empty() && String::from_utf8_lossy(&request.body).contains(&format!("\"{prefix}."));
                request.is_counted()
                    && request.resource == resource
                    && request.subresource == subresource
                    && (mine || posted)
            });
            world.apply(&name, &spec(&name)).await?;
            names.push(name);
        }
    }
    let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &borrowed {
        until(&format!("{name} to have its children"), Duration::from_secs(90), || async {
            let found = world.children(name).await?;
            ensure!(found.names() == children(name), "it has {:?}", found.names());
            Ok(())
        })
        .await?;
    }
    for name in &borrowed {
        world.condition(name, "Accepted", "True", "Accepted", "").await?;
    }
    world.settled(&borrowed).await?;
    let fired = world.proxy.clear();
    assert!(fired >= names.len(), "only {fired} requests of {} servers were refused", names.len());
    for name in &borrowed {
        let found = serde_json::to_string(&world.children(name).await?.without_chance().0)?;
        similar(&rename(&found, name), &rename(&rename(&reference, name), name))?;
    }
    Ok(())
}

fn similar(found: &str, wanted: &str) -> Result<()> {
    ensure!(found == wanted, "found\n{found}\nwanted\n{wanted}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_stays_is_tried_again_at_a_bounded_rate_and_hurts_nobody_else() -> Result<()> {
    let world = World::new("bounded").await?;
    // One at a time, so that a bad one which is waited for would hold up everybody.
    let _operator = world.operator_with(&["--concurrency", "1"]).await?;
    world.proxy.inject(Fault::Answer(Refusal::new(500)), 0, usize::MAX, |request| {
        request.is_write() && request.resource == "services" && request.name == "bad"
    });
    world.apply("bad", &full("bad.bounded.example.com")).await?;
    until("the first failure", Duration::from_secs(10), || async { holds!(world.proxy.fired() > 0, "none") }).await?;
    let attempts = |mark| world.proxy.since(mark).iter().filter(|record| record.code == Some(500)).count();
    let (mark, start) = (world.proxy.mark(), Instant::now());
    for n in 0..5 {
        let (name, mark) = (format!("good-{n}"), world.proxy.mark());
        world.apply(&name, &full(&format!("{name}.bounded.example.com"))).await?;
        until(&format!("{name} to be made"), SOON, || async {
            holds!(world.children(&name).await?.names() == full_children(&name), "not yet")
        })
        .await?;
        // Counted and not timed: with pauses that double, even a minute sees no more than that.
        assert!(attempts(mark) <= 5, "the bad one was tried {} times before {name} was made", attempts(mark));
    }
    until("some seconds of failures", Duration::from_secs(20), || async {
        holds!(start.elapsed().as_secs() >= 12, "not yet")
    })
    .await?;
    let failed = attempts(mark);
    assert!(failed <= 12, "{failed} attempts in {:.0} s", start.elapsed().as_secs_f32());
    world.proxy.clear();
    until("the bad one to heal", Duration::from_secs(60), || async {
        holds!(world.children("bad").await?.names() == full_children("bad"), "not yet")
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_may_end_break_and_be_told_that_they_are_too_old() -> Result<()> {
    let world = World::new("watches").await?;
    let _operator = world.operator().await?;
    world.apply("weather", &full("weather.watches.example.com")).await?;
    world.at_rest(&["weather"]).await?;
    let origin = async |n: usize| {
        let mut spec = full("weather.watches.example.com");
        spec["origins"] = json!([format!("https://{n}.example.com")]);
        world.apply("weather", &spec).await?;
        until(&format!("change {n} to take effect"), Duration::from_secs(15), || async {
            let config = world.kind("ConfigMap").get("weather.config").await?;
            holds!(config.data["data"].to_string().contains(&format!("https://{n}.example.com")), "not yet")
        })
        .await
    };
    assert!(world.proxy.end(|_| true) >= 9, "every kind is watched");
    origin(1).await?;
    until("the watches to be back", Duration::from_secs(20), || async {
        holds!(world.proxy.cut(|_| true) >= 9, "not yet")
    })
    .await?;
    origin(2).await?;
    world.proxy.inject(Fault::WatchGone, 0, 3, |request| request.verb == "watch" && request.resource == "mcpservers");
    world.proxy.end(|request| request.resource == "mcpservers");
    origin(3).await?;
    world.proxy.inject(Fault::Answer(Refusal::new(410)), 0, 3, |request| request.verb == "watch");
    world.proxy.cut(|_| true);
    origin(4).await?;
    world.proxy.inject(Fault::Reset, 0, 6, |request| request.verb == "watch" || request.verb == "list");
    world.proxy.cut(|_| true);
    origin(5).await?;
    world.proxy.clear();

    // The view lags: changes that come while it does are neither lost nor reverted, and no key is made twice.
    let secrets = world.children("weather").await?;
    let hold = world.proxy.hold(|request| request.resource != "mcpservers");
    let mark = world.proxy.mark();
    origin(6).await?;
    origin(7).await?;
    drop(hold);
    world.settled(&["weather"]).await?;
    let posts: Vec<String> = world
        .proxy
        .writes(mark)
        .into_iter()
        .filter(|write| write.starts_with("create") || write.starts_with("delete"))
        .collect();
    assert!(posts.is_empty(), "a lagging view makes nothing anew: {posts:?}");
    let after = world.children("weather").await?;
    for secret in ["Secret/weather.key.ci", "Secret/weather.session", "Secret/weather.keys"] {
        assert_eq!(after.get(secret)?["data"], secrets.get(secret)?["data"], "{secret}");
    }
    let config = after.get("ConfigMap/weather.config")?.to_string();
    assert!(config.contains("https://7.example.com"), "the newest change stands: {config}");

    // Deleted and made anew while the operator sees nothing of the children: the new server's own are made, for the new uid.
    let hold = world.proxy.hold(|request| request.resource != "mcpservers");
    world.delete("McpServer", "weather").await?;
    world.apply("weather", &full("weather.watches.example.com")).await?;
    let uid = world.servers().get("weather").await?.metadata.uid;
    drop(hold);
    until("the new server's children", Duration::from_secs(30), || async {
        let children = world.children("weather").await?;
        ensure!(children.names() == full_children("weather"), "there are {:?} of {uid:?}", children.names());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_hangs_silently_is_noticed() -> Result<()> {
    let world = World::new("hang").await?;
    let _operator = world.operator().await?;
    world.apply("weather", &json!({"http": {"image": "a:1"}})).await?;
    world.settled(&["weather"]).await?;
    assert_eq!(world.proxy.hang(|request| request.resource == "mcpservers"), 1);
    let start = Instant::now();
    world.apply("weather", &json!({"http": {"image": "a:2"}})).await?;
    until("the change to be noticed", Duration::from_secs(210), || async {
        let found = world.kind("Deployment").get("weather").await?;
        let image = found.data.pointer("/spec/template/spec/initContainers/0/image").cloned();
        holds!(image == Some("a:2".into()), "the image is {image:?}")
    })
    .await?;
    println!("noticed after {:.0} s", start.elapsed().as_secs_f32());
    Ok(())
}

/// On a control plane of its own: it is stopped, and its schema is loosened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_definition_with_broken_objects_and_without_api_server() -> Result<()> {
    if left_out("it begins without the definition and loosens its schema")? {
        return Ok(());
    }
    let cluster = control_plane().await?;
    let world = World::within(&cluster, "faults", Scope::Cluster).await?;
    install_class(&cluster).await?;

    // No CustomResourceDefinition: not ready, and says why.
    let operator = world.start_cluster_wide(&[])?;
    until("the operator to say what it waits for", Duration::from_secs(20), || async {
        let (code, text) = operator.get("/readyz").await?;
        ensure!(code == 503, "/readyz says {code}: {text}");
        ensure!(text.contains("mcpservers.mooring.dev"), "/readyz says {text:?}");
        Ok(())
    })
    .await?;
    assert_eq!(operator.get("/livez").await?.0, 200, "it is alive");
    install_crd(&cluster).await?;
    operator.ready().await?;
    world.apply("first", &full("first.faults.example.com")).await?;
    world.at_rest(&["first"]).await?;

    // A host belongs to the older server, in whatever namespace the younger one is.
    let elsewhere = World::within(&cluster, "elsewhere", Scope::Namespaced).await?;
    elsewhere.apply("rival", &full("first.faults.example.com")).await?;
    elsewhere.condition("rival", "Exposed", "False", "HostConflict", "faults/first").await?;
    elsewhere.delete("McpServer", "rival").await?;
    assert_eq!(world.forbidden()?, Vec::<String>::new(), "the chart's rights suffice");

    // An object that an older or looser schema let in, and that does not parse.
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let strict = definitions.get("mcpservers.mooring.dev").await?;
    let loose = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
        "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]);
    definitions
        .patch("mcpservers.mooring.dev", &PatchParams::default(), &Patch::<()>::Json(serde_json::from_value(loose)?))
        .await?;
    let broken = json!({"http": {"image": ["not", "a", "text"]}, "hosts": {"not": "a list"}});
    until("the looser schema to be in force", Duration::from_secs(20), || world.apply("broken", &broken)).await?;
    world.apply("second", &full("second.faults.example.com")).await?;
    world.at_rest(&["second"]).await?;
    assert_eq!(world.children("second").await?.names(), full_children("second"));
    until("the broken one to be told of", Duration::from_secs(10), || async {
        let server = world.server("broken").await?;
        ensure!(server["status"].to_string().contains("Unreadable"), "its status is {}", server["status"]);
        Ok(())
    })
    .await?;
    operator.kill();
    let operator = world.start_cluster_wide(&[])?;
    operator.ready().await?;
    world.apply("third", &full("third.faults.example.com")).await?;
    world.at_rest(&["third"]).await?;
    world.apply("broken", &full("broken.faults.example.com")).await?;
    world.condition("broken", "Accepted", "True", "Accepted", "").await?;
    let schema = json!([{"op": "replace", "path": "/spec/versions/0/schema", "value": serde_json::to_value(&strict.spec.versions[0].schema)?}]);
    definitions
        .patch("mcpservers.mooring.dev", &PatchParams::default(), &Patch::<()>::Json(serde_json::from_value(schema)?))
        .await?;
    let older = ["broken", "first", "second", "third"];
    let versions = world.at_rest(&older).await?;

    // The API server goes away and comes back; the operator waits, and recovers without a restart.
    let local = cluster.own("stopping the API server")?;
    let before = operator.usage()?.cpu_seconds;
    let away = world.proxy.mark();
    local.signal("kube-apiserver", Signal::Kill).await?;
    let start = Instant::now();
    until("a while without API server", Duration::from_secs(30), || async {
        ensure!(operator.ended()?.is_none(), "the operator ended");
        ensure!(operator.get("/livez").await?.0 == 200, "it is not alive");
        holds!(start.elapsed().as_secs() >= 15, "not yet")
    })
    .await?;
    let used = operator.usage()?.cpu_seconds - before;
    assert!(used < 3.0, "waiting took {used} CPU seconds");
    let asked = world.proxy.mark() - away;
    assert!(asked <= 100, "{asked} requests while nobody answered");
    local.restart_api_server().await?;
    let back = world.proxy.mark();
    world.apply("fourth", &full("fourth.faults.example.com")).await?;
    until("the operator to work again", Duration::from_secs(60), || async {
        holds!(world.children("fourth").await?.names() == full_children("fourth"), "not yet")
    })
    .await?;
    println!("worked again {:.1} s after the API server was killed", start.elapsed().as_secs_f32());
    world.settled(&["first", "second", "third", "fourth"]).await?;
    assert!(operator.ended()?.is_none(), "it is the same process");
    // Each of the eleven kinds was listed and watched again at the first or second try, and what was right was let be.
    let seen = world.proxy.since(back);
    let looks = seen.iter().filter(|record| matches!(record.request.verb, "list" | "watch")).count();
    assert!(looks <= 44, "{looks} lists and watches");
    let writes = world.proxy.writes(away);
    assert!(writes.iter().all(|write| write.contains("fourth") || write.ends_with("secrets")), "it wrote {writes:?}");
    assert_eq!(world.at_rest(&older).await?, versions, "nothing that was there before has moved");

    // The definition goes, and all servers with it; the operator waits for it to come back.
    definitions.delete("mcpservers.mooring.dev", &DeleteParams::default()).await?;
    until("the definition to be gone", Duration::from_secs(60), || async {
        holds!(definitions.get_opt("mcpservers.mooring.dev").await?.is_none(), "it is there")
    })
    .await?;
    install_crd(&cluster).await?;
    world.apply("again", &full("again.faults.example.com")).await?;
    until("the operator to work again", Duration::from_secs(60), || async {
        holds!(world.children("again").await?.names() == full_children("again"), "not yet")
    })
    .await?;
    drop(operator);
    drop(world);
    cluster.stop().await.context("the cluster ends")
}
