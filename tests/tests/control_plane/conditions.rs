//! What is wrong stands in the conditions, in words, and heals by itself once its cause is gone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::world::{World, condition, full, full_children, left_out, patched, scaled, text};

/// How soon a fault must be told, and how soon it must heal.
const SOON: Duration = Duration::from_secs(10);

fn small() -> Value {
    json!({"http": {"image": "a:1"}, "auth": {"keys": [{"name": "a"}]}})
}

fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_object_with_a_childs_name_stays_untouched() -> Result<()> {
    let world = World::new("conflict").await?;
    let _operator = world.operator().await?;
    let foreign = |server: &str| {
        [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": server}, "spec": {"ports": [{"port": 1}]}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{server}.key.ci")}, "data": {"key": base64("theirs")}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{server}.config")}, "data": {"a": "b"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{server}.keys")}, "data": {"key": base64("theirs")}}),
        ]
    };
    // One server for each, at once.
    let all = (0..4).map(|n| {
        let (world, server) = (&world, format!("s{n}"));
        async move { conflict(world, &server, &foreign(&server)[n]).await }
    });
    futures::future::try_join_all(all).await?;
    Ok(())
}

async fn conflict(world: &World<'_>, server: &str, object: &Value) -> Result<()> {
    let (kind, name) = (text(object, "kind"), text(&object["metadata"], "name"));
    world.put(object).await?;
    let before = serde_json::to_value(world.kind(kind).get(name).await?)?;
    world.apply(server, &full(&format!("{server}.conflict.example.com"))).await?;
    world.condition(server, "Accepted", "False", "NameConflict", name).await?;
    world.condition(server, "Stalled", "True", "NameConflict", kind).await?;
    world.condition(server, "Ready", "False", "NameConflict", name).await?;
    // It is looked at again and again, and never fought over.
    let (mark, start) = (world.proxy.mark(), Instant::now());
    until("some seconds to pass", SOON, || async { holds!(start.elapsed().as_secs() >= 5, "not yet") }).await?;
    let mine = |write: &&String| write.contains(&format!("/{server}")) || write.contains(&format!("/{server}."));
    let writes = world.proxy.writes(mark);
    ensure!(writes.iter().filter(mine).count() <= 3, "{writes:?}");
    let now = serde_json::to_value(world.kind(kind).get(name).await?)?;
    ensure!(now == before, "the foreign {kind} is untouched: {now}");
    let events = world.events(server).await?;
    ensure!(
        events.iter().filter(|event| event.starts_with("NameConflict") && event.contains(name)).count() == 1,
        "{events:?}"
    );
    world.kind(kind).delete(name, &DeleteParams::default()).await?;
    world.condition(server, "Accepted", "True", "Accepted", "").await?;
    let names = world.children(server).await?;
    ensure!(names.names() == full_children(server), "there are {:?}", names.names());
    ensure!(condition(&world.server(server).await?, "Stalled").is_null(), "Stalled is present only while it is so");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_belongs_to_the_older_server() -> Result<()> {
    let world = World::new("hosts").await?;
    let operator = world.operator().await?;
    let spec = |path: &str| {
        let mut spec = full("shared.hosts.example.com");
        spec["path"] = path.into();
        spec
    };
    let created = world.apply("older", &spec("/")).await?.metadata.creation_timestamp;
    until("the clock to go on by a second, which is how fine ages are", SOON, || async {
        let probe = world.apply("probe", &small()).await?.metadata.creation_timestamp;
        if probe == created {
            world.delete("McpServer", "probe").await?;
        }
        holds!(probe != created, "it has not")
    })
    .await?;
    world.apply("younger", &spec("/")).await?;
    world.apply("beside", &spec("/beside")).await?;
    world.condition("younger", "Exposed", "False", "HostConflict", "hosts/older").await?;
    world.condition("older", "Exposed", "True", "Exposed", "").await?;
    world.condition("beside", "Exposed", "True", "Exposed", "").await?;
    world.settled(&["older", "younger", "beside"]).await?;
    let children = world.children("younger").await?;
    assert!(
        children.get("Deployment/younger").is_ok() && children.get("Service/younger").is_ok(),
        "all else is applied"
    );
    assert!(children.get("Ingress/younger").is_err(), "no Ingress takes the host away");

    operator.kill();
    let _operator = world.operator().await?;
    world.settled(&["older", "younger"]).await?;
    assert_eq!(
        condition(&world.server("younger").await?, "Exposed")["reason"],
        "HostConflict",
        "a restart changes no right"
    );

    world.delete("McpServer", "older").await?;
    world.condition("younger", "Exposed", "True", "Exposed", "").await?;
    world.settled(&["younger"]).await?;
    assert!(world.children("younger").await?.get("Ingress/younger").is_ok());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_clients_would_leave_out_is_rejected_before_any_pod_and_heals() -> Result<()> {
    let world = World::new("schemas").await?;
    let _operator = world.operator().await?;
    let spec = |kind: &str| {
        let city = json!({"type": kind, "x-mcp-header": "City"});
        json!({"tools": [{"name": "forecast", "inputSchema": {"type": "object", "properties": {"city": city}}, "http": {"url": "http://a/"}}]})
    };
    world.apply("weather", &spec("array")).await?;
    let words = "tools[forecast].inputSchema: city has an x-mcp-header";
    world.condition("weather", "Accepted", "False", "InvalidSpec", words).await?;
    world.condition("weather", "Stalled", "True", "InvalidSpec", words).await?;
    world.settled(&["weather"]).await?;
    assert!(world.children("weather").await?.get("Deployment/weather").is_err(), "no pod is made of it");
    world.apply("weather", &spec("string")).await?;
    world.condition("weather", "Accepted", "True", "Accepted", "").await?;
    world.settled(&["weather"]).await?;
    world.children("weather").await?.get("Deployment/weather")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_key_secret_rejects_and_heals() -> Result<()> {
    let world = World::new("keysecret").await?;
    let _operator = world.operator().await?;
    let spec = json!({"http": {"image": "a:1"}, "auth": {"keySecrets": [{"name": "from-vault"}]}});
    world.apply("weather", &spec).await?;
    world.condition("weather", "Accepted", "False", "KeySecretNotFound", "from-vault").await?;
    world.condition("weather", "Stalled", "True", "KeySecretNotFound", "from-vault").await?;
    world.settled(&["weather"]).await?;
    assert!(world.events("weather").await?.iter().any(|event| event.contains("from-vault")));
    assert!(world.children("weather").await?.get("Deployment/weather").is_err(), "nothing is served without its keys");

    let secret = |entries: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "from-vault"}, "data": entries});
    let good = base64("0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10");
    world.put(&secret(json!({"robot": good}))).await?;
    world.condition("weather", "Accepted", "True", "Accepted", "").await?;
    world.settled(&["weather"]).await?;
    assert!(condition(&world.server("weather").await?, "Stalled").is_null(), "Stalled is present only while it is so");
    let children = world.children("weather").await?;
    let before = children.canonical();

    // A weak key is refused and named, and the good one beside it works on.
    world.put(&secret(json!({"robot": good, "weak-one": base64("hunter2")}))).await?;
    world.condition("weather", "Accepted", "True", "KeyRefused", "weak-one").await?;
    let server = world.server("weather").await?;
    assert!(!server.to_string().contains("hunter2"), "the key's text is not repeated");
    assert!(!world.events("weather").await?.iter().any(|event| event.contains("hunter2")));
    world.put(&secret(json!({"robot": good}))).await?;
    world.condition("weather", "Accepted", "True", "Accepted", "").await?;
    world.settled(&["weather"]).await?;
    assert_eq!(world.children("weather").await?.canonical(), before);

    // Taken away again: what runs, runs on.
    world.kind("Secret").delete("from-vault", &DeleteParams::default()).await?;
    world.condition("weather", "Accepted", "False", "KeySecretNotFound", "from-vault").await?;
    world.settled(&["weather"]).await?;
    assert_eq!(world.children("weather").await?.canonical(), before, "a rejection changes no child");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exposure_lacks_keeps_nothing_else_back() -> Result<()> {
    let world = World::new("exposure").await?;
    let _operator = world.operator().await?;
    let mut spec = full("weather.exposure.example.com");
    spec["ingress"] = json!({"className": "later", "tls": {"secretName": "tls-later"}});
    world.apply("weather", &spec).await?;
    world.condition("weather", "Exposed", "False", "IngressClassNotFound", "later").await?;
    world.settled(&["weather"]).await?;
    let server = world.server("weather").await?;
    assert_eq!(condition(&server, "Accepted")["status"], "True", "{server:#}");
    let message = condition(&server, "Exposed");
    assert!(text(&message, "message").contains("tls-later"), "both are named: {message}");
    assert_eq!(world.children("weather").await?.names(), full_children("weather"), "every child is applied");

    let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "later"}, "spec": {"controller": "k8s.io/ingress-nginx"}});
    let classes: kube::Api<k8s_openapi::api::networking::v1::IngressClass> = kube::Api::all(world.client.clone());
    classes.create(&kube::api::PostParams::default(), &serde_json::from_value(class)?).await?;
    world.condition("weather", "Exposed", "False", "TlsSecretNotFound", "tls-later").await?;
    world.settled(&["weather"]).await?;
    let children = world.children("weather").await?;
    let annotations = &children.get("Ingress/weather")?["metadata"]["annotations"];
    assert_eq!(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"], "86400", "{annotations}");
    assert_eq!(annotations["nginx.ingress.kubernetes.io/ssl-redirect"], "true", "{annotations}");

    let certificate = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "tls-later"},
        "data": {"tls.crt": base64("a"), "tls.key": base64("b")}});
    world.put(&certificate).await?;
    world.condition("weather", "Exposed", "True", "Exposed", "").await?;
    classes.delete("later", &DeleteParams::default()).await?;
    world.condition("weather", "Exposed", "False", "IngressClassNotFound", "later").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_reference_is_told_and_the_deployment_applied() -> Result<()> {
    let world = World::new("references").await?;
    let _operator = world.operator().await?;
    let spec = json!({
        "http": {
            "image": "a:1",
            "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "not-needed", "optional": true}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        "pod": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]},
        "auth": {"anonymous": true},
    });
    world.apply("weather", &spec).await?;
    for name in ["token", "settings", "disk"] {
        world.condition("weather", "Accepted", "True", "ReferenceNotFound", name).await?;
    }
    world.settled(&["weather"]).await?;
    assert!(!condition(&world.server("weather").await?, "Accepted").to_string().contains("not-needed"));
    let before = world.children("weather").await?.canonical();
    before.get("Deployment/weather")?;
    world
        .put(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "data": {"k": "eA=="}}))
        .await?;
    world
        .put(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"A": "b"}}))
        .await?;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    world.put(&claim).await?;
    world.condition("weather", "Accepted", "True", "Accepted", "").await?;
    world.settled(&["weather"]).await?;
    assert_eq!(world.children("weather").await?.canonical(), before, "no pod is restarted when a reference appears");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_reaches_the_condition_in_words() -> Result<()> {
    let world = World::new("quota").await?;
    let _operator = world.operator().await?;
    let quota = |pods: &str| json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "narrow"}, "spec": {"hard": {"pods": pods}}});
    world.put(&quota("0")).await?;
    until("the quota to be in force", SOON, || async {
        let found = world.kind("ResourceQuota").get("narrow").await?;
        holds!(found.data["status"]["hard"]["pods"] == "0", "it is not")
    })
    .await?;
    world.apply("weather", &small()).await?;
    world.condition("weather", "Available", "False", "FailedCreate", "exceeded quota: narrow").await?;
    world.condition("weather", "Ready", "False", "FailedCreate", "exceeded quota").await?;
    let events = world.events("weather").await?;
    assert_eq!(events.iter().filter(|event| event.starts_with("FailedCreate")).count(), 1, "{events:?}");
    world.put(&quota("5")).await?;
    // The ReplicaSet's controller tries again at its own pace; a new rollout does so at once.
    world.cluster.kubectl(["rollout", "restart", "deployment/weather", "-n", "quota"]).await?;
    world.condition("weather", "Available", "False", "Progressing", "0 of 1 pods").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaler_that_nothing_measures_for_is_told_of_after_a_while_and_until_it_acts() -> Result<()> {
    if left_out("whether it is told that an autoscaler finds no metrics, because it may find some there")? {
        return Ok(());
    }
    let world = World::new("autoscaler").await?;
    let _operator = world.operator().await?;
    world.apply("weather", &patched(&small(), &scaled())).await?;
    let long_ago = (jiff::Timestamp::now() - Duration::from_secs(3600)).strftime("%FT%TZ").to_string();
    let (autoscalers, pods) = (world.kind("HorizontalPodAutoscaler"), world.kind("Pod"));
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": long_ago}]}});
    let pod = until("a pod", SOON, || async {
        let list = pods.list(&ListParams::default()).await?;
        list.iter().find_map(|pod| pod.metadata.name.clone()).context("there is none")
    })
    .await?;
    pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(&ready)).await?;
    let deployments = world.kind("Deployment");
    until("the Deployment to be available since long ago", SOON, || async {
        let mut found = deployments.get("weather").await?.data["status"]["conditions"].take();
        let mut conditions = found.as_array_mut().context("no conditions")?.iter_mut();
        let available = conditions.find(|condition| text(condition, "type") == "Available").context("no Available")?;
        ensure!(text(available, "status") == "True", "it is {available}");
        let since = available["lastTransitionTime"].take();
        available["lastTransitionTime"] = long_ago.as_str().into();
        let patch = json!({"status": {"conditions": found}});
        deployments.patch_status("weather", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        ensure!(since == long_ago.as_str(), "it is so since {since}"); // and stays so
        Ok(())
    })
    .await?;

    // The autoscaler's controller looks every 15 s.
    let mut conditions = until("the autoscaler to find no metrics", Duration::from_secs(60), || async {
        let found = autoscalers.get("weather").await?;
        let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let failing = conditions.iter().any(|condition| {
            (text(condition, "type"), text(condition, "status"), text(condition, "reason"))
                == ("ScalingActive", "False", "FailedGetResourceMetric")
        });
        ensure!(failing, "it says {conditions:?}");
        Ok(conditions)
    })
    .await?;
    world.condition("weather", "Ready", "True", "Ready", "").await?;
    world.settled(&["weather"]).await?;
    world.condition("weather", "Accepted", "True", "Accepted", "").await?;

    let mut say = async |status: &str| {
        let active = conditions.iter_mut().find(|condition| text(condition, "type") == "ScalingActive");
        let active = active.context("ScalingActive")?;
        active["status"] = status.into();
        active["lastTransitionTime"] = long_ago.as_str().into();
        let patch = json!({"status": {"conditions": conditions}});
        autoscalers.patch_status("weather", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        anyhow::Ok(())
    };
    say("False").await?;
    for kind in ["Accepted", "Ready"] {
        world.condition("weather", kind, "True", "AutoscalerInactive", "Install metrics-server").await?;
    }
    world.settled(&["weather"]).await?;
    let events = world.events("weather").await?;
    let told = events.iter().filter(|event| event.starts_with("AutoscalerInactive")).count();
    assert_eq!(told, 1, "{events:?}");
    say("True").await?;
    world.condition("weather", "Accepted", "True", "Accepted", "").await?;
    world.condition("weather", "Ready", "True", "Ready", "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_columns_scale_and_explain_are_as_kubernetes_users_know_them() -> Result<()> {
    let world = World::new("kubectl").await?;
    let _operator = world.operator_with(&["--base-domain", "mcp.example.org"]).await?;
    let kubectl =
        async |arguments: &str| world.cluster.kubectl(arguments.split_whitespace().chain(["-n", "kubectl"])).await;
    let mut spec = full("a.kubectl.example.com");
    spec["path"] = "/weather".into();
    world.apply("weather", &spec).await?;
    world.apply("based", &json!({"http": {"image": "a"}, "ingress": {"className": "traefik"}})).await?;
    world.apply("inside", &small()).await?;
    world.settled(&["weather", "based", "inside"]).await?;

    let url = async |name: &str| Ok::<_, anyhow::Error>(world.server(name).await?["status"]["url"].clone());
    assert_eq!(url("weather").await?, "http://a.kubectl.example.com/weather/mcp");
    assert_eq!(url("based").await?, "http://based.kubectl.mcp.example.org/mcp");
    assert_eq!(url("inside").await?, "http://inside.kubectl.svc.cluster.local/mcp");

    let server = world.server("weather").await?;
    let conditions = server["status"]["conditions"].as_array().context("conditions")?;
    let kinds: Vec<&str> = conditions.iter().map(|condition| text(condition, "type")).collect();
    assert_eq!(kinds, ["Accepted", "Available", "Verified", "Exposed", "Ready"]);
    assert!(
        conditions.iter().all(|condition| condition["observedGeneration"] == server["metadata"]["generation"]),
        "{conditions:?}"
    );

    let table = kubectl("get mcps weather").await?;
    let header: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "READY", "REASON", "REPLICAS", "URL", "AGE"]);
    assert!(table.contains("False") && table.contains("Progressing") && table.contains("/weather/mcp"), "{table}");
    assert!(kubectl("get mooring").await?.contains("weather"), "the category lists it");
    kubectl("wait --for=condition=Accepted mcps/weather --timeout=5s").await?;
    kubectl("wait --for=condition=Ready=False mcps/weather --timeout=5s").await?;

    kubectl("scale mcps/weather --replicas=3").await?;
    until("three replicas", SOON, || async {
        let found = world.kind("Deployment").get("weather").await?;
        holds!(found.data["spec"]["replicas"] == 3, "there are {}", found.data["spec"]["replicas"])
    })
    .await?;
    until("the scale subresource to tell", SOON, || async {
        let scale = kubectl("get mcps/weather --subresource=scale -o json").await?;
        let scale: Value = serde_json::from_str(&scale)?;
        ensure!(scale["status"]["replicas"] == 3, "{scale}");
        ensure!(
            scale["status"]["selector"]
                .as_str()
                .is_some_and(|labels| labels.contains("app.kubernetes.io/instance=weather")),
            "{scale}"
        );
        Ok(())
    })
    .await?;

    let said = kubectl("explain mcpserver.spec.http.port").await?;
    assert!(said.contains("Port on which the server speaks HTTP") && said.contains("Default: 8000"), "{said}");
    let fields = kubectl("explain mcpserver.spec").await?;
    assert!(fields.contains("networkPolicy") && fields.contains("keys are made with"), "{fields}");
    Ok(())
}
