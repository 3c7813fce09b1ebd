//! Who may do what: the operator, by what it says that it needs and under the admission policy, and people.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use mooring::rbac::{Where, rules};
use mooring_tests::Cluster;
use mooring_tests::wait::until;
use serde_json::Value;

use crate::cluster::{helm, namespaces, on_a_cluster, write};
use crate::rendered::{NAMESPACE, Rendered, VALUES};

const OPERATOR: &str = "system:serviceaccount:mooring-system:mooring";

/// Whether the API server would let somebody do something. An empty namespace means all of them.
async fn may(cluster: &Cluster, user: &str, verb: &str, what: &str, namespace: &str) -> Result<bool> {
    let (resource, group) = what.split_once('.').unwrap_or((what, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let attributes = ResourceAttributes {
        group: text(group),
        namespace: text(namespace),
        resource: text(resource),
        subresource: text(subresource),
        verb: text(verb),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: text(user),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client().await?);
    Ok(reviews.create(&PostParams::default(), &review).await?.status.context("a decision")?.allowed)
}

/// What the built-in roles give to people once the chart is there.
#[tokio::test]
async fn view_edit_and_admin_reach_mcpservers_and_view_reaches_no_key() -> Result<()> {
    const SERVERS: &str = "mcpservers.mooring.dev";
    on_a_cluster(false, async |cluster| {
        namespaces(cluster, &["team-a", "team-b"]).await?;
        for (user, role) in [("vera", "view"), ("eduard", "edit"), ("ada", "admin")] {
            let (role, user) = (format!("--clusterrole={role}"), format!("--user={user}"));
            cluster.kubectl(["create", "rolebinding", &user[7..], &role, &user, "--namespace", "team-a"]).await?;
        }
        assert!(!may(cluster, "ada", "get", SERVERS, "team-a").await?, "before the chart");
        helm(cluster, "install", "mooring", &[]).await?;
        until("the roles to be put together", Duration::from_secs(20), || async {
            ensure!(may(cluster, "ada", "deletecollection", SERVERS, "team-a").await?, "not yet");
            Ok(())
        })
        .await?;
        let table: [(&str, &str, [bool; 3]); 9] = [
            ("get", SERVERS, [true, true, true]),
            ("watch", SERVERS, [true, true, true]),
            ("get", "mcpservers/status.mooring.dev", [true, true, true]),
            ("create", SERVERS, [false, true, true]),
            ("patch", SERVERS, [false, true, true]),
            ("patch", "mcpservers/scale.mooring.dev", [false, true, true]),
            ("delete", SERVERS, [false, true, true]),
            ("deletecollection", SERVERS, [false, false, true]),
            ("patch", "mcpservers/status.mooring.dev", [false, false, false]),
        ];
        for (verb, what, expected) in table {
            for (user, expected) in ["vera", "eduard", "ada"].into_iter().zip(expected) {
                assert_eq!(may(cluster, user, verb, what, "team-a").await?, expected, "{user}: {verb} {what}");
                assert!(!may(cluster, user, verb, what, "team-b").await?, "{user}: {verb} {what}, elsewhere");
            }
        }
        for verb in ["get", "list", "watch"] {
            assert!(!may(cluster, "vera", verb, "secrets", "team-a").await?, "a viewer reads keys");
        }
        Ok(())
    })
    .await
}

/// A pod for the tests of the admission policy.
const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "pod", "labels": {"app": "a"}, "annotations": {"note": "1"}},
    "spec": {"containers": [{"name": "server", "image": "example.com/server:1"}]}}"#;

#[tokio::test]
async fn the_admission_policy_leaves_the_operator_one_annotation_of_a_pod() -> Result<()> {
    let refused = [
        r#"{"metadata": {"annotations": {"note": "2"}}}"#,
        r#"{"metadata": {"annotations": {"note": null}}}"#,
        r#"{"metadata": {"annotations": {"other": "1"}}}"#,
        r#"{"metadata": {"annotations": {"mooring.dev/refresh": "3", "other": "1"}}}"#,
        r#"{"metadata": {"labels": {"app": "b"}}}"#,
        r#"{"metadata": {"labels": null}}"#,
        r#"{"metadata": {"finalizers": ["example.com/hold"]}}"#,
        r#"{"spec": {"containers": [{"name": "server", "image": "example.com/other:1"}]}}"#,
        r#"{"spec": {"activeDeadlineSeconds": 1}}"#,
    ];
    on_a_cluster(false, async |cluster| {
        namespaces(cluster, &["team-a"]).await?;
        let folder = tempfile::tempdir()?;
        let file = write(folder.path(), "pod.json", POD)?.display().to_string();
        until("a pod to be admitted", Duration::from_secs(20), || async {
            // The namespace's ServiceAccount comes a moment after it.
            cluster.kubectl(["create", "--namespace", "team-a", "--filename", &file]).await
        })
        .await?;
        let mut config =
            Config::from_custom_kubeconfig(Kubeconfig::read_from(cluster.kubeconfig())?, &KubeConfigOptions::default())
                .await?;
        config.auth_info.impersonate = Some(OPERATOR.to_owned());
        let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, "team-a");
        let patch = async |change: &str, dry_run: bool| {
            let patch = Patch::Strategic(serde_json::from_str::<Value>(change)?);
            let params = PatchParams { dry_run, ..PatchParams::default() };
            anyhow::Ok(pods.patch("pod", &params, &patch).await?)
        };
        // RBAC alone lets the operator do all of it.
        helm(cluster, "install", "mooring", &[]).await?;
        for change in refused {
            patch(change, true).await.with_context(|| change)?;
        }
        helm(cluster, "upgrade", "mooring", &["--set", "admissionPolicy.enabled=true"]).await?;
        until("the policy to be in force", Duration::from_secs(30), || async {
            ensure!(patch(refused[0], true).await.is_err(), "it is not");
            Ok(())
        })
        .await?;
        for change in refused {
            let Err(error) = patch(change, false).await else { panic!("{change} was let in") };
            let said = format!("{error:#}");
            assert!(said.contains("mooring.dev/refresh, nothing else"), "{change}: {said}");
        }
        for revision in [r#""1""#, r#""2""#, "null"] {
            let change = format!(r#"{{"metadata": {{"annotations": {{"mooring.dev/refresh": {revision}}}}}}}"#);
            patch(&change, false).await.with_context(|| change)?;
        }
        // Nobody else is bound by it.
        cluster.kubectl(["label", "pod", "pod", "--namespace", "team-a", "--overwrite", "app=b"]).await?;
        Ok(())
    })
    .await
}

type Rights = BTreeSet<(String, String, String)>;

/// Group, resource and verb of each right.
fn granted(rules: Option<Vec<PolicyRule>>) -> Rights {
    let mut rights = Rights::new();
    for rule in rules.unwrap_or_default() {
        for (group, resource) in
            rule.api_groups.iter().flatten().flat_map(|group| {
                rule.resources.iter().flatten().map(move |resource| (group.clone(), resource.clone()))
            })
        {
            rights.extend(rule.verbs.iter().map(|verb| (group.clone(), resource.clone(), verb.clone())));
        }
        assert_eq!(rule.non_resource_urls, None);
    }
    rights
}

fn needed(places: &[Where]) -> Rights {
    let mut rights = Rights::new();
    for rule in rules().iter().filter(|rule| places.contains(&rule.place)) {
        for resource in rule.resources {
            rights.extend(rule.verbs.iter().map(|verb| (rule.group.into(), (*resource).into(), (*verb).into())));
        }
    }
    rights
}

/// What the chart grants is what the operator says that it needs: no right less, no right more.
#[test]
fn its_rights_are_those_that_the_operator_needs() -> Result<()> {
    let cluster = Rendered::of(None)?;
    let of_name = |roles: Vec<ClusterRole>, name: &str| {
        let mut found = roles.into_iter().filter(|role| role.metadata.name.as_deref() == Some(name));
        found.next().context("no such role")
    };
    let role = of_name(cluster.all()?, "mooring.mooring-system")?;
    assert_eq!(granted(role.rules), needed(&[Where::Served, Where::Cluster]));
    let lease = cluster.one::<Role>()?;
    assert_eq!(lease.metadata.namespace.as_deref(), Some("mooring-system"));
    for rule in lease.rules.iter().flatten().filter(|rule| !rule.verbs.contains(&"create".to_owned())) {
        assert_eq!(rule.resource_names, Some(vec!["mooring".to_owned()]), "another's Lease");
    }
    assert!(cluster.arguments()?.contains(&"--lease-name=mooring".to_owned()));
    assert_eq!(granted(lease.rules), needed(&[Where::Own]));

    let scoped = Rendered::with(Some("ci/namespaced-values.yaml"), &["rbac.clusterRead=true"])?;
    let mut namespaces = BTreeSet::new();
    for role in scoped.all::<Role>()?.into_iter().filter(|role| role.metadata.name.as_deref() == Some("mooring")) {
        assert_eq!(granted(role.rules), needed(&[Where::Served]));
        namespaces.extend(role.metadata.namespace);
    }
    assert_eq!(namespaces, BTreeSet::from(["team-a".to_owned(), "team-b".to_owned()]));
    assert_eq!(granted(of_name(scoped.all()?, "mooring.mooring-system")?.rules), needed(&[Where::Cluster]));
    assert!(Rendered::of(Some("ci/namespaced-values.yaml"))?.all::<ClusterRole>()?.is_empty());

    let none = Rendered::with(None, &["rbac.create=false"])?;
    assert!(none.all::<ClusterRole>()?.is_empty() && none.all::<Role>()?.is_empty());
    Ok(())
}

/// Every binding gives to the operator's account, and to nobody else, a role that is there.
#[test]
fn its_bindings_bind_its_own_account_to_its_own_roles() -> Result<()> {
    for values in VALUES {
        let rendered = Rendered::of(values)?;
        let template = rendered.one::<Deployment>()?.spec.context("a spec")?.template;
        let account = template.spec.and_then(|pod| pod.service_account_name);
        let cluster_roles: BTreeSet<_> = rendered.all::<ClusterRole>()?.into_iter().map(|r| r.metadata.name).collect();
        let role_key = |meta: &ObjectMeta| (meta.namespace.clone(), meta.name.clone());
        let roles: BTreeSet<_> = rendered.all::<Role>()?.iter().map(|role| role_key(&role.metadata)).collect();
        let mut subjects = Vec::new();
        for binding in rendered.all::<ClusterRoleBinding>()? {
            assert!(cluster_roles.contains(&Some(binding.role_ref.name)));
            subjects.extend(binding.subjects.unwrap_or_default());
        }
        let bindings = rendered.all::<RoleBinding>()?;
        assert_eq!(bindings.len(), roles.len());
        for binding in bindings {
            assert!(roles.contains(&(binding.metadata.namespace, Some(binding.role_ref.name))));
            subjects.extend(binding.subjects.unwrap_or_default());
        }
        assert!(!subjects.is_empty());
        for subject in subjects {
            assert_eq!((subject.kind.as_str(), Some(subject.name)), ("ServiceAccount", account.clone()));
            assert_eq!(subject.namespace.as_deref(), Some(NAMESPACE));
        }
    }
    Ok(())
}
