//! What needs no cluster: the chart lints, renders, refuses what it should, and agrees with the code that it installs.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PodSpec, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mooring_contract::port;
use mooring_plan::names;
use mooring_tests::{command, operator_process};
use serde_json::{Map, Value};

use crate::rendered::{Rendered, VALUES, helm, read, typed};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn yaml(path: &str) -> Result<Value> {
    Ok(serde_saphyr::from_str(&read(path)?)?)
}

fn pod(rendered: &Rendered) -> Result<PodSpec> {
    rendered.one::<Deployment>()?.spec.and_then(|spec| spec.template.spec).context("a pod")
}

#[test]
fn it_lints_without_a_warning() -> Result<()> {
    for values in VALUES {
        let said = helm(&["lint", "--strict"], values)?;
        assert!(!said.contains("[WARNING]") && !said.contains("[ERROR]"), "{values:?}: {said}");
    }
    Ok(())
}

#[test]
fn its_objects_have_no_unknown_field() -> Result<()> {
    for values in VALUES {
        for document in Rendered::of(values)?.documents() {
            typed(document).with_context(|| format!("{values:?}, {}", document["metadata"]["name"]))?;
        }
    }
    Ok(())
}

#[test]
fn its_versions_are_those_of_the_workspace() -> Result<()> {
    let chart = yaml("Chart.yaml")?;
    assert_eq!(chart["version"], VERSION);
    assert_eq!(chart["appVersion"], VERSION);

    let rendered = Rendered::of(None)?;
    let image = pod(&rendered)?.containers[0].image.clone().unwrap_or_default();
    assert!(image.ends_with(&format!("/mooring:{VERSION}")), "{image}");
    let door = rendered.arguments()?.into_iter().find(|argument| argument.starts_with("--front-door-image=")).unwrap();
    assert!(door.ends_with(&format!("/mooring-server:{VERSION}")), "{door}");
    Ok(())
}

#[test]
fn a_digest_stands_above_a_tag() -> Result<()> {
    let rendered = Rendered::of(Some("ci/full-values.yaml"))?;
    let door = rendered.arguments()?.into_iter().find(|argument| argument.starts_with("--front-door-image="));
    assert_eq!(
        door.as_deref(),
        Some(
            "--front-door-image=registry.example.com/mooring/mooring-server@sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
        )
    );
    Ok(())
}

/// The definition in the chart is the generated one, marked so that Helm never deletes it, and, where there is no
/// cluster to look at, no hook: GitOps tools delete hooks.
#[test]
fn its_definition_is_the_generated_one() -> Result<()> {
    assert_eq!(read("files/mcpservers.yaml")?, mooring_api::crd::yaml()?, "run `cargo xtask generate`");

    let rendered = Rendered::of(None)?;
    let mut definitions = rendered.documents().iter().filter(|document| document["kind"] == "CustomResourceDefinition");
    let mut definition = definitions.next().cloned().context("a definition")?;
    let metadata = definition["metadata"].as_object_mut().unwrap();
    assert_eq!(metadata.remove("annotations").unwrap(), serde_json::json!({"helm.sh/resource-policy": "keep"}));
    assert_eq!(metadata.remove("labels").unwrap(), serde_json::json!({"app.kubernetes.io/managed-by": "Helm"}));
    assert_eq!(definition, mooring_api::crd::definition()?);

    let without = Rendered::with(None, &["crds.enabled=false"])?;
    assert!(without.documents().iter().all(|document| document["kind"] != "CustomResourceDefinition"));
    Ok(())
}

/// The operator itself says that it takes every argument.
#[test]
fn the_operator_takes_its_arguments() -> Result<()> {
    let operator = operator_process::binary()?;
    for values in VALUES {
        let arguments = Rendered::of(values)?.arguments()?;
        assert_eq!(arguments[0], "operator");
        // Help is printed only once everything before it was understood.
        command::run(Command::new(&operator).args(&arguments).arg("--help")).with_context(|| format!("{values:?}"))?;
    }
    let unknown = command::run(Command::new(&operator).args(["operator", "--no-such-flag", "--help"]));
    assert!(unknown.is_err(), "the check above would see an argument that the operator does not know");
    Ok(())
}

/// The *restricted* Pod Security profile and what scanners ask for beyond it. The API server's own check of the profile
/// is part of the tests on a cluster.
#[test]
fn its_pod_has_no_more_than_it_needs() -> Result<()> {
    for values in VALUES {
        let rendered = Rendered::of(values)?;
        let pod = pod(&rendered)?;
        assert_eq!(pod.host_network.or(pod.host_pid).or(pod.host_ipc), None);
        assert_eq!(pod.volumes, None);
        assert_eq!(pod.enable_service_links, Some(false));
        assert_eq!(pod.automount_service_account_token, Some(true));
        let account = rendered.one::<ServiceAccount>()?;
        assert_eq!(account.automount_service_account_token, Some(false));
        assert_eq!(account.metadata.name, pod.service_account_name);
        let context = pod.security_context.context("a security context")?;
        assert_eq!(
            (context.run_as_non_root, context.run_as_user, context.run_as_group),
            (Some(true), Some(65532), Some(65532))
        );
        assert_eq!(context.seccomp_profile.map(|profile| profile.type_).as_deref(), Some("RuntimeDefault"));

        assert_eq!(pod.containers.len(), 1);
        let operator = &pod.containers[0];
        let context = operator.security_context.clone().context("a security context")?;
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_eq!(context.read_only_root_filesystem, Some(true));
        assert_eq!(context.capabilities.and_then(|capabilities| capabilities.drop), Some(vec!["ALL".to_owned()]));
        let resources = operator.resources.clone().context("resources")?;
        assert!(
            resources.requests.is_some_and(|requests| requests.contains_key("cpu") && requests.contains_key("memory"))
        );
        assert_ne!(operator.liveness_probe, operator.readiness_probe);
        let path = |probe: &Option<k8s_openapi::api::core::v1::Probe>| {
            probe.as_ref().and_then(|probe| probe.http_get.as_ref()).and_then(|get| get.path.clone())
        };
        assert_eq!(path(&operator.liveness_probe).as_deref(), Some("/livez"));
        assert_eq!(path(&operator.readiness_probe).as_deref(), Some("/readyz"));
    }
    Ok(())
}

#[test]
fn more_than_one_replica_brings_a_disruption_budget() -> Result<()> {
    assert!(Rendered::of(None)?.all::<PodDisruptionBudget>()?.is_empty());
    let rendered = Rendered::with(None, &["replicas=2"])?;
    let budget = rendered.one::<PodDisruptionBudget>()?.spec.context("a spec")?;
    assert_eq!(budget.max_unavailable, Some(IntOrString::Int(1)));
    assert_eq!(budget.selector, rendered.one::<Deployment>()?.spec.map(|spec| spec.selector));
    assert!(pod(&rendered)?.affinity.is_some_and(|affinity| affinity.pod_anti_affinity.is_some()));
    Ok(())
}

#[test]
fn its_names_and_ports_are_those_of_the_code() -> Result<()> {
    let policy = Rendered::of(None)?.one::<NetworkPolicy>()?.spec.context("a spec")?;
    let management = Some(IntOrString::Int(port::MANAGEMENT.into()));
    let rule = policy
        .egress
        .unwrap_or_default()
        .into_iter()
        .find(|rule| rule.ports.iter().flatten().any(|port| port.port == management))
        .context("a rule for the management port")?;
    let labels = rule.to.unwrap_or_default()[0].pod_selector.clone().and_then(|pods| pods.match_labels);
    assert_eq!(labels.unwrap_or_default().get("app.kubernetes.io/name").map(String::as_str), Some(names::APP));

    let policy = Rendered::of(Some("ci/full-values.yaml"))?.one::<ValidatingAdmissionPolicy>()?;
    let expression = policy.spec.and_then(|spec| spec.validations).unwrap_or_default()[0].expression.clone();
    assert!(expression.contains(&format!("'{}'", names::ANNOTATION_REFRESH)), "{expression}");
    Ok(())
}

/// Each value has its place in the schema and the other way round, except the maps and lists that Kubernetes describes.
#[test]
fn its_values_and_its_schema_agree() -> Result<()> {
    fn of_values(values: &Map<String, Value>, path: &str, out: &mut BTreeSet<String>) {
        for (name, value) in values {
            match value.as_object().filter(|map| !map.is_empty() && name != "resources") {
                Some(map) => of_values(map, &format!("{path}.{name}"), out),
                None => drop(out.insert(format!("{path}.{name}"))),
            }
        }
    }
    fn of_schema(schema: &Value, path: &str, out: &mut BTreeSet<String>) {
        for (name, schema) in schema["properties"].as_object().unwrap() {
            if schema.get("properties").is_some() && name != "resources" {
                assert_eq!(schema["additionalProperties"], false, "{path}.{name} takes any key");
                of_schema(schema, &format!("{path}.{name}"), out);
            } else {
                out.insert(format!("{path}.{name}"));
            }
        }
    }
    let (mut values, mut schema) = (BTreeSet::new(), BTreeSet::from([]));
    of_values(yaml("values.yaml")?.as_object().unwrap(), "", &mut values);
    of_schema(&serde_json::from_str(&read("values.schema.json")?)?, "", &mut schema);
    assert!(schema.remove(".global"), "Helm sets it in the charts of a chart");
    assert_eq!(values, schema);
    Ok(())
}

#[test]
fn it_refuses_values_that_cannot_be_meant() -> Result<()> {
    let refused = [
        ("replica=2", "'replica' not allowed"),
        ("image.name=x", "'name' not allowed"),
        ("image=x", "/image"),
        ("image.repository=mooring:1", "/image/repository"),
        ("image.tag=a b", "/image/tag"),
        ("image.digest=sha256:12", "/image/digest"),
        ("frontDoor.pullSecrets={A}", "/frontDoor/pullSecrets/0"),
        ("imagePullSecrets={a}", "/imagePullSecrets/0"),
        ("scope=All", "/scope"),
        ("scope=Namespaced", "/namespaces"),
        ("namespaces={a}", "/namespaces"),
        ("baseDomain=.example.com", "/baseDomain"),
        ("trustedProxies={ingress}", "/trustedProxies/0"),
        ("trustedProxies={10.0.0.5:80}", "/trustedProxies/0"),
        ("upgrade.policy=auto", "/upgrade/policy"),
        ("upgrade.parallelism=0", "/upgrade/parallelism"),
        ("concurrency=none", "/concurrency"),
        ("log.format=JSON", "/log/format"),
        ("extraArgs={operator}", "/extraArgs/0"),
        ("replicas=-1", "/replicas"),
        ("networkPolicy.apiServerPorts={70000}", "/networkPolicy/apiServerPorts"),
        ("metrics.serviceMonitor.interval=often", "/metrics/serviceMonitor/interval"),
    ];
    for (set, expected) in refused {
        let Err(error) = Rendered::with(None, &[set]) else { panic!("{set} was accepted") };
        let said = format!("{error:#}");
        ensure!(said.contains(expected), "{set}: {said}");
    }
    for accepted in ["image.repository=localhost:5000/mooring", "scope=Namespaced,namespaces={team-a}", "global.x=1"] {
        Rendered::with(None, &[accepted]).with_context(|| accepted)?;
    }
    Ok(())
}
