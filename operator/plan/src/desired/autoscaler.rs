//! The HorizontalPodAutoscaler, where the spec asks for one. The number of pods is then its own: the Deployment is sent
//! without.

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget,
    ResourceMetricSource,
};
use kube::ResourceExt as _;
use mooring_api::McpServer;

use crate::names;

/// The HorizontalPodAutoscaler.
pub(crate) fn autoscaler(server: &McpServer) -> Option<HorizontalPodAutoscaler> {
    let wanted = server.spec.autoscaling.as_ref()?;
    let name = server.name_any();
    let cpu = ResourceMetricSource {
        name: "cpu".to_owned(),
        target: MetricTarget {
            type_: "Utilization".to_owned(),
            average_utilization: Some(wanted.target_cpu()),
            ..MetricTarget::default()
        },
    };
    let spec = HorizontalPodAutoscalerSpec {
        min_replicas: Some(wanted.min_replicas()),
        max_replicas: wanted.max_replicas,
        metrics: Some(vec![MetricSpec { type_: "Resource".to_owned(), resource: Some(cpu), ..MetricSpec::default() }]),
        scale_target_ref: CrossVersionObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: "Deployment".to_owned(),
            name: name.clone(),
        },
        ..HorizontalPodAutoscalerSpec::default()
    };
    Some(HorizontalPodAutoscaler {
        metadata: names::metadata(server, name),
        spec: Some(spec),
        ..HorizontalPodAutoscaler::default()
    })
}
