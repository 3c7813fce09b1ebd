//! What `helm template` makes of the chart, as typed objects.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use mooring_tests::{command, parts, product};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The namespace of the release.
pub(crate) const NAMESPACE: &str = "mooring-system";

/// The values files that the chart ships, and none.
pub(crate) const VALUES: [Option<&str>; 3] = [None, Some("ci/full-values.yaml"), Some("ci/namespaced-values.yaml")];

pub(crate) fn chart() -> PathBuf {
    product::workspace().join("charts/mooring")
}

/// A file of the chart.
pub(crate) fn read(path: &str) -> Result<String> {
    let path = chart().join(path);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Helm with the chart as its last argument.
pub(crate) fn helm(arguments: &[&str], values: Option<&str>) -> Result<String> {
    let mut helm = Command::new(parts::helm()?);
    helm.args(arguments).arg(chart());
    if let Some(values) = values {
        helm.arg("--values").arg(chart().join(values));
    }
    command::run(&mut helm)
}

/// The objects of a release named `mooring`.
pub(crate) struct Rendered(Vec<Value>);

impl Rendered {
    pub(crate) fn of(values: Option<&str>) -> Result<Self> {
        Self::with(values, &[])
    }

    /// With further `--set` arguments.
    pub(crate) fn with(values: Option<&str>, set: &[&str]) -> Result<Self> {
        let mut arguments = vec!["template", "mooring", "--namespace", NAMESPACE];
        for set in set {
            arguments.extend(["--set", set]);
        }
        let text = helm(&arguments, values)?;
        Ok(Self(serde_saphyr::from_multiple(&text)?))
    }

    pub(crate) fn documents(&self) -> &[Value] {
        &self.0
    }

    /// Every object of a kind.
    pub(crate) fn all<T: k8s_openapi::Resource + DeserializeOwned>(&self) -> Result<Vec<T>> {
        let of_kind = self.0.iter().filter(|document| document["kind"] == T::KIND);
        of_kind.map(|document| Ok(serde_json::from_value(document.clone())?)).collect()
    }

    /// The only object of a kind.
    pub(crate) fn one<T: k8s_openapi::Resource + DeserializeOwned>(&self) -> Result<T> {
        let mut all = self.all::<T>()?;
        ensure!(all.len() == 1, "{} objects of kind {}", all.len(), T::KIND);
        all.pop().context("one object")
    }

    /// The operator's arguments.
    pub(crate) fn arguments(&self) -> Result<Vec<String>> {
        let pod = self.one::<Deployment>()?.spec.and_then(|spec| spec.template.spec).context("a pod")?;
        pod.containers.into_iter().next().and_then(|operator| operator.args).context("arguments")
    }
}

/// Reads a document as the type that its kind stands for, and fails where the type does not know a field.
pub(crate) fn typed(document: &Value) -> Result<()> {
    match document["kind"].as_str().context("a kind")? {
        "ClusterRole" => round_trip::<ClusterRole>(document),
        "ClusterRoleBinding" => round_trip::<ClusterRoleBinding>(document),
        "Deployment" => round_trip::<Deployment>(document),
        "NetworkPolicy" => round_trip::<NetworkPolicy>(document),
        "PodDisruptionBudget" => round_trip::<PodDisruptionBudget>(document),
        "Role" => round_trip::<Role>(document),
        "RoleBinding" => round_trip::<RoleBinding>(document),
        "Service" => round_trip::<Service>(document),
        "ServiceAccount" => round_trip::<ServiceAccount>(document),
        "ValidatingAdmissionPolicy" => round_trip::<ValidatingAdmissionPolicy>(document),
        "ValidatingAdmissionPolicyBinding" => round_trip::<ValidatingAdmissionPolicyBinding>(document),
        // The definition is compared with the generated one; the other kind is the Prometheus operator's, and unknown here.
        "CustomResourceDefinition" | "ServiceMonitor" => Ok(()),
        other => bail!("nobody expected a {other}"),
    }
}

fn round_trip<T: k8s_openapi::Resource + DeserializeOwned + Serialize>(document: &Value) -> Result<()> {
    ensure!(document["apiVersion"] == T::API_VERSION, "{} of {}", T::KIND, document["apiVersion"]);
    let back = serde_json::to_value(serde_json::from_value::<T>(document.clone())?)?;
    ensure!(back == *document, "{} has fields that its type does not know:\n{document:#}\nreads as\n{back:#}", T::KIND);
    Ok(())
}
