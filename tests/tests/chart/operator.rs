//! The real operator with the arguments and the rights that the chart gives it, and with no others. It runs as a process
//! beside an API server whose audit log tells every request that was refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams};
use mooring::rbac::rules;
use mooring_tests::cluster::AuditEvent;
use mooring_tests::left_out::{left_out, this_test};
use mooring_tests::operator_process::OperatorProcess;
use mooring_tests::wait::until;
use mooring_tests::{Cluster, installed};
use serde_json::json;

use crate::cluster::{apply_hello, definition, helm, namespaces, on_a_cluster};
use crate::rendered::{Rendered, chart};

const ACCOUNT: &str = "system:serviceaccount:mooring-system:mooring";
const PATIENCE: Duration = Duration::from_secs(30);

/// A kubeconfig with the token of the operator's ServiceAccount, and no other credential.
async fn kubeconfig(cluster: &Cluster, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("operator.kubeconfig");
    std::fs::copy(cluster.kubeconfig(), &path)?;
    let file = path.display().to_string();
    let token = cluster.kubectl(["create", "token", "mooring", "--namespace", "mooring-system"]).await?;
    let token = format!("--token={}", token.trim());
    cluster.kubectl(["config", "--kubeconfig", &file, "set-credentials", "operator", &token]).await?;
    cluster.kubectl(["config", "--kubeconfig", &file, "set-context", "--current", "--user=operator"]).await?;
    let who =
        cluster.kubectl(["--kubeconfig", &file, "auth", "whoami", "--output", "jsonpath={.status.userInfo.username}"]);
    ensure!(who.await? == ACCOUNT, "the kubeconfig is somebody else's");
    Ok(path)
}

/// Starts the operator as the chart's pod would, on a port of its own.
async fn operator(cluster: &Cluster, folder: &Path, values: Option<&str>) -> Result<OperatorProcess> {
    let arguments = Rendered::of(values)?.arguments()?;
    let flags = arguments.iter().filter(|argument| *argument != "operator" && !argument.starts_with("--listen="));
    let kubeconfig = kubeconfig(cluster, folder).await?;
    let operator = OperatorProcess::start(&kubeconfig, &folder.join("operator.log"), flags)?;
    operator.ready().await?;
    Ok(operator)
}

/// The kinds of `hello`'s children that are there.
async fn children(cluster: &Cluster, namespace: &str) -> Result<BTreeSet<&'static str>> {
    let client = cluster.client().await?;
    let mut found = BTreeSet::new();
    macro_rules! look {
        ($($kind:ident $name:literal),+) => {$(
            let api: Api<$kind> = Api::namespaced(client.clone(), namespace);
            if api.get_metadata_opt($name).await?.is_some() {
                found.insert(concat!(stringify!($kind), " ", $name));
            }
        )+};
    }
    look!(Deployment "hello", Service "hello", NetworkPolicy "hello", ServiceAccount "hello", ConfigMap "hello.config");
    look!(Secret "hello.keys", Secret "hello.session", Secret "hello.key.first", Ingress "hello");
    look!(HorizontalPodAutoscaler "hello", PodDisruptionBudget "hello");
    Ok(found)
}

async fn wait_for_children(cluster: &Cluster, namespace: &str, expected: &[&str]) -> Result<()> {
    until(&format!("the children in {namespace}"), PATIENCE, || async {
        let found = children(cluster, namespace).await?;
        ensure!(found == expected.iter().copied().collect(), "there are {found:?}");
        Ok(())
    })
    .await
}

const CHILDREN: [&str; 8] = [
    "ConfigMap hello.config",
    "Deployment hello",
    "NetworkPolicy hello",
    "Secret hello.key.first",
    "Secret hello.keys",
    "Secret hello.session",
    "Service hello",
    "ServiceAccount hello",
];

/// Has every kind of child made, changed and removed. An operator that may read IngressClasses calls one missing that is;
/// one that may not calls none missing.
async fn exercise(cluster: &Cluster, namespace: &str, reads_classes: bool) -> Result<()> {
    apply_hello(cluster, namespace).await?;
    wait_for_children(cluster, namespace, &CHILDREN).await?;
    let servers = installed::servers(cluster, namespace).await?;
    let change = async |spec: serde_json::Value| {
        servers.patch("hello", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await
    };
    let more = json!({
        "ingress": {"className": "absent"}, "hosts": ["hello.example.com"], "autoscaling": {"maxReplicas": 2},
    });
    change(more).await?;
    let mut expected = CHILDREN.to_vec();
    let optional = ["HorizontalPodAutoscaler hello", "Ingress hello", "PodDisruptionBudget hello"];
    expected.extend(optional);
    wait_for_children(cluster, namespace, &expected).await?;
    let verdict = if reads_classes { "False IngressClassNotFound" } else { "True Exposed" };
    until(&format!("Exposed to be {verdict}"), PATIENCE, || async {
        let server = servers.get("hello").await?;
        let conditions = server.data["status"]["conditions"].as_array().context("no conditions yet")?;
        let exposed = conditions.iter().find(|condition| condition["type"] == "Exposed").context("no Exposed yet")?;
        let text = |field: &str| exposed[field].as_str().unwrap_or_default().to_owned();
        ensure!(format!("{} {}", text("status"), text("reason")) == verdict, "it is {exposed}");
        ensure!(exposed["observedGeneration"].as_i64() == server.metadata.generation, "of an older spec");
        Ok(())
    })
    .await?;
    // What is no longer wanted goes.
    let less = json!({
        "ingress": null, "hosts": null, "autoscaling": null, "networkPolicy": {"enabled": false},
        "pod": {
            "serviceAccountName": "default",
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}],
        },
        "auth": {"keys": [], "anonymous": true},
    });
    change(less).await?;
    let gone = ["NetworkPolicy hello", "Secret hello.key.first", "ServiceAccount hello"];
    expected.retain(|child| !gone.contains(child) && !optional.contains(child));
    wait_for_children(cluster, namespace, &expected).await?;
    until("a status", PATIENCE, || async {
        let server = servers.get("hello").await?;
        let observed = server.data["status"]["observedGeneration"].as_i64();
        ensure!(observed.is_some() && observed == server.metadata.generation, "of {observed:?}");
        Ok(())
    })
    .await?;
    until("an event", PATIENCE, || async {
        let events =
            cluster.kubectl(["get", "events.events.k8s.io", "--namespace", namespace, "--output", "name"]).await?;
        ensure!(!events.is_empty(), "none yet");
        Ok(())
    })
    .await
}

/// Whether somebody can tell what the operator asked for; else it is said that this part is left out.
fn is_audited(cluster: &Cluster) -> Result<bool> {
    let own = matches!(cluster, Cluster::Local(_));
    if !own {
        left_out(&format!("chart {}, the requests", this_test()), "the API server's audit log tells of them")?;
    }
    Ok(own)
}

/// Everything that the operator asked for.
fn asked(cluster: &Cluster) -> Result<Vec<AuditEvent>> {
    let mut events = cluster.audit()?;
    events.retain(|event| event.user.username == ACCOUNT);
    ensure!(events.len() > 20, "the operator asked for next to nothing");
    Ok(events)
}

/// What the API server refused the operator, as `verb group/resource in namespace`.
fn refused(cluster: &Cluster) -> Result<BTreeSet<String>> {
    Ok(asked(cluster)?
        .into_iter()
        .filter(|event| event.code() == 403)
        .map(|event| {
            let object = event.object_ref.unwrap_or_default();
            format!("{} {}/{} in {:?}", event.verb, object.api_group, object.resource, object.namespace)
        })
        .collect())
}

/// Rights that this test gives no occasion for: pods are touched where they run, an event that is repeated is patched, and
/// the rest is asked by the API server (OwnerReferencesPermissionEnforcement) before it lets an owner reference be set.
const UNUSED: [&str; 5] =
    ["delete /configmaps", "delete /services", "delete apps/deployments", "patch /pods", "patch events.k8s.io/events"];

/// What the operator says that it needs and did not ask for.
fn unused(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let served = rules().iter().flat_map(|rule| {
        let verbs = move |resource| rule.verbs.iter().map(move |verb| format!("{verb} {}/{resource}", rule.group));
        rule.resources.iter().flat_map(verbs)
    });
    let mut unused: BTreeSet<String> = served.collect();
    for event in asked(cluster)? {
        let object = event.object_ref.unwrap_or_default();
        let resource = [object.resource, object.subresource].join("/");
        unused.remove(&format!("{} {}/{}", event.verb, object.api_group, resource.trim_end_matches('/')));
        // An apply that makes an object needs both rights, and is logged as the one.
        if event.verb == "patch" && event.response_status.is_some_and(|status| status.code == 201) {
            unused.remove(&format!("create {}/{}", object.api_group, resource.trim_end_matches('/')));
        }
    }
    Ok(unused)
}

#[tokio::test]
async fn its_rights_in_the_cluster_are_enough() -> Result<()> {
    on_a_cluster(true, async |cluster| {
        namespaces(cluster, &["team-a", "team-b"]).await?;
        helm(cluster, "install", "mooring", &[]).await?;
        let folder = tempfile::tempdir()?;
        let operator = operator(cluster, folder.path(), None).await?;
        exercise(cluster, "team-a", true).await.with_context(|| operator.log_text())?;
        exercise(cluster, "team-b", true).await.with_context(|| operator.log_text())?;
        if !is_audited(cluster)? {
            return Ok(());
        }
        assert_eq!(refused(cluster)?, BTreeSet::new());
        // The Lease is renewed every few seconds.
        until("every right to be used", PATIENCE, || async {
            let unused = unused(cluster)?;
            ensure!(unused == UNUSED.into_iter().map(str::to_owned).collect(), "unused are {unused:?}");
            Ok(())
        })
        .await
    })
    .await
}

/// Two namespaces and not a right beyond: these are served like any, and what is elsewhere is neither served nor seen.
#[tokio::test]
async fn its_rights_in_two_namespaces_are_enough_for_these() -> Result<()> {
    on_a_cluster(true, async |cluster| {
        namespaces(cluster, &["team-a", "team-b", "team-c"]).await?;
        cluster.kubectl(["apply", "--filename", &definition()]).await?;
        let values = chart().join("ci/namespaced-values.yaml").display().to_string();
        helm(cluster, "install", "mooring", &["--values", &values]).await?;
        apply_hello(cluster, "team-c").await?;
        let folder = tempfile::tempdir()?;
        let operator = operator(cluster, folder.path(), Some("ci/namespaced-values.yaml")).await?;
        exercise(cluster, "team-a", false).await.with_context(|| operator.log_text())?;
        exercise(cluster, "team-b", false).await.with_context(|| operator.log_text())?;
        assert_eq!(children(cluster, "team-c").await?, BTreeSet::new());
        if !is_audited(cluster)? {
            return Ok(());
        }
        // It asks for IngressClasses, and does without.
        let classes =
            refused(cluster)?.into_iter().all(|what| what.ends_with("networking.k8s.io/ingressclasses in \"\""));
        assert!(classes, "{:?}", refused(cluster)?);
        let in_scope = ["team-a", "team-b", "mooring-system", ""];
        for event in asked(cluster)? {
            let namespace = event.object_ref.unwrap_or_default().namespace;
            assert!(in_scope.contains(&namespace.as_str()), "it asked for something in {namespace}");
        }
        Ok(())
    })
    .await
}
