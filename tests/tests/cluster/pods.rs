//! The pods: what they may, who reaches them, and which of them may be evicted.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::api::EvictParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Api, Client, Config, ResourceExt};
use mooring_contract::{mount, port};
use mooring_tests::mcp::Target;
use mooring_tests::product;
use mooring_tests::wait::until;
use serde_json::json;

use crate::room::Room;
use crate::specs::{self, KEY};
use crate::world::PODS;

/// What a server's account may do, as the API server lists it.
async fn rights(room: &Room, account: &str, namespace: &str) -> Result<String> {
    let user = format!("system:serviceaccount:{}:{account}", room.name);
    room.world.cluster.kubectl(["auth", "can-i", "--list", "--as", &user, "--namespace", namespace]).await
}

pub(crate) async fn a_pod_is_restricted_and_without_rights(room: Room) -> Result<()> {
    room.apply(specs::recorder_program()).await?;
    room.serve("weather", &specs::recorder(&room, "weather", "recorded")).await?;
    room.ready("weather").await?;

    // The namespace means it: what keeps less than *restricted* is not admitted here.
    let mut lax = specs::bystander(&room, "lax");
    lax["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = true.into();
    let refused = room.apply(lax).await;
    ensure!(refused.is_err_and(|error| format!("{error:#}").contains("violates PodSecurity")), "nothing is enforced");

    let pods = room.pods("weather").await?;
    let spec = pods.first().and_then(|pod| pod.spec.as_ref()).context("no pod")?;
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert_eq!(spec.service_account_name.as_deref(), Some("weather"));
    let tokens = spec.volumes.iter().flatten().filter(|volume| volume.projected.is_some());
    assert_eq!(tokens.count(), 0, "no token is mounted");

    // From inside: no token, not root, a home that can be written, and none of the front door's secrets.
    let script = format!(
        "const fs = require('fs'); const there = p => fs.existsSync(p); \
         fs.writeFileSync(process.env.HOME + '/note', 'x'); \
         console.log([process.getuid(), there('/var/run/secrets/kubernetes.io'), there('{}'), process.env.HOME].join(' '))",
        mount::ROOT
    );
    let said = room.kubectl(["exec", "deployment/weather", "--", "/usr/bin/node", "-e", &script]).await?;
    assert_eq!(said.trim(), format!("65532 false false {}", mount::HOME));

    room.kubectl(["create", "serviceaccount", "fresh"]).await?;
    for namespace in [room.name.as_str(), "kube-system"] {
        let (own, fresh) = (rights(&room, "weather", namespace).await?, rights(&room, "fresh", namespace).await?);
        assert_eq!(own, fresh, "what the server's account may do in {namespace}");
        assert!(own.contains("selfsubjectreviews"), "the list says something: {own}");
    }
    let user = format!("system:serviceaccount:{}:weather", room.name);
    let secrets = room.kubectl(["auth", "can-i", "get", "secrets", "--as", &user]).await;
    assert!(secrets.is_err(), "it reads no Secret: {secrets:?}");
    Ok(())
}

/// What another pod gets when it asks: a status, or the code of the error.
async fn ask(room: &Room, url: &str) -> Result<String> {
    let script = format!(
        "fetch('{url}', {{method: '{}', headers: {{'content-type': 'application/json', host: 'weather'}}, \
         body: {}, signal: AbortSignal.timeout(3000)}}) \
         .then(r => console.log(r.status), e => console.log(e.cause?.code ?? e.name))",
        if url.ends_with("/mcp") { "POST" } else { "GET" },
        if url.ends_with("/mcp") { r#"'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'"# } else { "undefined" },
    );
    let said = room.kubectl(["exec", "bystander", "--", "/usr/bin/node", "-e", &script]).await?;
    Ok(said.trim().to_owned())
}

pub(crate) async fn another_pod_reaches_nothing_without_a_key(room: Room) -> Result<()> {
    room.apply(specs::recorder_program()).await?;
    room.apply(specs::bystander(&room, "bystander")).await?;
    let mut spec = specs::recorder(&room, "weather", "recorded");
    spec["networkPolicy"] = json!({"enabled": false});
    room.serve("weather", &spec).await?;
    room.ready("weather").await?;
    room.kubectl(["wait", "--for=condition=Ready", "pod/bystander", "--timeout=60s"]).await?;
    let pods = room.pods("weather").await?;
    let address =
        pods.first().and_then(|pod| pod.status.as_ref()).and_then(|s| s.pod_ip.clone()).context("no address")?;
    let backend = format!("http://{address}:8000/mcp");

    // Without the policy the backend lies open: the question below can be answered in two ways.
    until("the backend to answer without a policy", Duration::from_secs(30), || async {
        let said = ask(&room, &backend).await?;
        ensure!(said == "200", "the bystander got {said}");
        Ok(())
    })
    .await?;
    room.change("weather", &json!({"networkPolicy": null})).await?;
    until("the backend's port to be closed", Duration::from_secs(30), || async {
        match ask(&room, &backend).await?.as_str() {
            "ECONNREFUSED" | "TimeoutError" => Ok(()),
            other => bail!("the bystander got {other}"),
        }
    })
    .await?;

    let service = format!("http://weather.{}/mcp", room.name);
    let (public, management) = (port::PUBLIC, port::MANAGEMENT);
    assert_eq!(ask(&room, &service).await?, "401", "the Service asks for a key");
    assert_eq!(ask(&room, &format!("http://{address}:{public}/status")).await?, "421", "an address is no name of it");
    assert_eq!(ask(&room, &format!("http://{address}:{management}/status")).await?, "401", "/status needs its token");
    assert_eq!(ask(&room, &format!("http://{address}:{management}/metrics")).await?, "200", "/metrics is open");
    assert_eq!(ask(&room, &format!("http://{address}:{management}/health")).await?, "200", "/health is open");

    // With the key the same pod is served, and the metrics name nobody.
    let target = room.service("weather", "/mcp", KEY).await?;
    assert_eq!(target.call("record", json!({})).await?, "recorded");
    let management = room.pod_port(pods.first().context("no pod")?, management).await?;
    let host = "metrics".to_owned();
    let metrics = Target { address: management, host, path: "/metrics".into(), key: None, headers: Vec::new() };
    let metrics = metrics.send("GET", "").await?;
    assert_eq!(metrics.status, StatusCode::OK);
    let names = [room.name.as_str(), "weather", KEY, "record\""];
    assert!(names.iter().all(|name| !metrics.text().contains(name)), "{}", metrics.text());
    Ok(())
}

/// What the API server answers to who would evict a pod, as the drain of a node does, once it has decided.
async fn evict(pods: &Api<Pod>, pod: &Pod) -> Result<u16> {
    let name = pod.name_any();
    until(&format!("an answer to the eviction of {name}"), PODS, || async {
        match pods.evict(&name, &EvictParams::default()).await {
            Ok(_) => Ok(201),
            Err(kube::Error::Api(refused)) if is_undecided(&refused) => bail!("{refused}"),
            Err(kube::Error::Api(refused)) => Ok(refused.code),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// Whether a refusal says no more than that the pod or its budget changed meanwhile: it has the same 429 for it.
fn is_undecided(refused: &Status) -> bool {
    let mut causes = refused.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.message.contains("still being processed"))
}

/// Waits until the budget of a server of two pods has counted so many that serve, and allows so many to go.
async fn counted(room: &Room, server: &str, healthy: u8, allowed: u8) -> Result<Vec<Pod>> {
    let expected = format!("2 {healthy} 1 {allowed}");
    let numbers = ["expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed"];
    let numbers = format!("jsonpath={}", numbers.map(|number| format!("{{.status.{number}}}")).join(" "));
    until(&format!("the budget of {server} to count {expected}"), PODS, || async {
        let now = room.kubectl(["get", "poddisruptionbudget", server, "-o", &numbers]).await?;
        ensure!(now == expected, "{now}");
        // One that does not run yet may go anyway.
        let pods = room.pods(server).await?;
        let phases: Vec<_> = pods.iter().filter_map(|pod| pod.status.as_ref()?.phase.as_deref()).collect();
        ensure!(phases == ["Running", "Running"], "{phases:?}");
        Ok(pods)
    })
    .await
}

/// Has no pod begin here any more. Else one serves in the place of an evicted one within a second, and the next may go, too.
async fn no_more_pods(room: &Room) -> Result<()> {
    let spec = json!({"hard": {"pods": "0"}});
    room.apply(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec}))
        .await?;
    until("the quota to be counted", PODS, || async {
        let used = room.kubectl(["get", "resourcequota", "none", "-o", "jsonpath={.status.used.pods}"]).await?;
        ensure!(used == "4", "{used:?} are used");
        Ok(())
    })
    .await
}

pub(crate) async fn the_budget_spares_pods_that_serve_and_no_others(room: Room) -> Result<()> {
    let mut serving = specs::tools(&room, "serving");
    serving["replicas"] = 2.into();
    // It runs, but it is no MCP server: its pods never serve.
    let http = json!({"image": room.image(product::WEATHER_API), "port": 8000});
    let broken = json!({"http": http, "replicas": 2, "auth": {"keys": [{"name": KEY}]}});
    tokio::try_join!(room.serve("serving", &serving), room.serve("broken", &broken))?;

    // A client that takes the first answer: others ask again and again when they are refused so.
    let file = Kubeconfig::read_from(room.world.cluster.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let api: Api<Pod> = Api::namespaced(Client::try_from(config)?, &room.name);
    let (serving, broken) = tokio::try_join!(counted(&room, "serving", 2, 1), counted(&room, "broken", 0, 0))?;
    no_more_pods(&room).await?;
    for (pods, answers) in [(serving, [201, 429]), (broken, [201, 201])] {
        let mut said = Vec::new();
        for pod in &pods {
            said.push(evict(&api, pod).await?);
        }
        ensure!(said == answers, "{:?}: {said:?}", pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    }
    Ok(())
}
