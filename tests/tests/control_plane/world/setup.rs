//! The control plane that the tests share, and what a test finds in it before its operator starts.

use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::networking::v1::IngressClass;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mooring_tests::cluster::somebody_elses;
use mooring_tests::installed::DEFINITION;
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options, left_out, product};
use serde_json::json;
use tokio::sync::OnceCell;

use super::specs::CLASS;
use super::{ACCOUNT, SOON, Scope};

/// The control plane that the tests of this suite share. It ends with this process.
pub(crate) async fn cluster() -> Result<&'static Cluster> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER
        .get_or_try_init(|| async {
            let cluster = control_plane().await?;
            install_crd(&cluster).await?;
            install_class(&cluster).await?;
            anyhow::Ok(cluster)
        })
        .await
}

/// A control plane of a test's own, without the CustomResourceDefinition.
pub(crate) async fn control_plane() -> Result<Cluster> {
    Cluster::start(Level::ControlPlane, Options { audit: true, ..Options::default() }).await
}

/// Applies `crds/` as a user would, and waits until it serves.
pub(crate) async fn install_crd(cluster: &Cluster) -> Result<()> {
    let file = product::workspace().join("crds/mcpservers.yaml");
    cluster.kubectl(["apply", "-f", &file.to_string_lossy()]).await?;
    cluster.mark(&["customresourcedefinition", DEFINITION]).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("mooring.dev", "v1alpha1", "McpServer"));
    let servers: Api<DynamicObject> = Api::all_with(cluster.client().await?, &resource);
    until("McpServers to be served", SOON, || async { Ok(servers.list(&ListParams::default()).await?) }).await?;
    Ok(())
}

/// Makes the IngressClass [`CLASS`] where there is none. No controller need be there to serve it.
pub(crate) async fn install_class(cluster: &Cluster) -> Result<()> {
    let classes: Api<IngressClass> = Api::all(cluster.client().await?);
    if classes.get_metadata_opt(CLASS).await?.is_some() {
        return Ok(());
    }
    let class = json!({"metadata": {"name": CLASS}, "spec": {"controller": "traefik.io/ingress-controller"}});
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    cluster.mark(&["ingressclass", CLASS]).await
}

/// Whether the cluster is somebody else's, on which this test cannot run: then it says so, and why.
pub(crate) fn left_out(why: &str) -> Result<bool> {
    let there = somebody_elses()?.is_some();
    if there {
        left_out::left_out(&format!("control plane {}", left_out::this_test()), why)?;
    }
    Ok(there)
}

/// Makes a namespace and waits until pods can be made in it.
pub(super) async fn make_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.namespace(name, &[]).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await?, name);
    until("the namespace's default ServiceAccount", SOON, || async { Ok(accounts.get("default").await?) }).await?;
    Ok(())
}

/// Gives the operator its account, with exactly the rights that the chart gives.
pub(super) async fn grant(cluster: &Cluster, namespace: &str, scope: Scope, folder: &Path) -> Result<()> {
    let chart = product::workspace().join("charts/mooring");
    let chart = chart.to_string_lossy();
    let mut arguments = vec!["template", ACCOUNT, &chart, "--namespace", namespace];
    arguments.extend(["--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccount.yaml"]);
    let namespaces = format!("namespaces={{{namespace}}}");
    if scope == Scope::Namespaced {
        arguments.extend(["--set", "scope=Namespaced", "--set", &namespaces]);
    }
    let file = folder.join("rights.yaml");
    std::fs::write(&file, cluster.helm(arguments).await?)?;
    let file = file.to_string_lossy();
    cluster.kubectl(["apply", "--server-side", "-n", namespace, "-f", &file]).await?;
    cluster.mark(&["-n", namespace, "-f", &file]).await
}
