//! The PodDisruptionBudget: the drain of a node takes one pod at a time. A server of one pod has none, because its drain
//! takes that pod either way.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use mooring_api::McpServer;

use crate::names;
use crate::observed::Observed;

/// The PodDisruptionBudget, where there may be more than one pod: by the spec, or, where that leaves the number to
/// somebody else, by what the Deployment has.
pub(crate) fn disruption_budget(server: &McpServer, observed: &Observed) -> Option<PodDisruptionBudget> {
    let autoscaled = || server.spec.autoscaling.as_ref().map(|autoscaling| autoscaling.max_replicas);
    let scaled = || observed.deployment.as_ref().and_then(|deployment| deployment.replicas);
    server.spec.replicas.or_else(autoscaled).or_else(scaled).filter(|most| *most > 1)?;
    let name = server.name_any();
    let spec = PodDisruptionBudgetSpec {
        max_unavailable: Some(IntOrString::Int(1)),
        selector: Some(LabelSelector { match_labels: Some(names::selector_labels(&name)), ..LabelSelector::default() }),
        // A pod that does not serve must not keep its node from being drained.
        unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        ..PodDisruptionBudgetSpec::default()
    };
    Some(PodDisruptionBudget {
        metadata: names::metadata(server, name),
        spec: Some(spec),
        ..PodDisruptionBudget::default()
    })
}
