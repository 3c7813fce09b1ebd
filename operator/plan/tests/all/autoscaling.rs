//! When and how it is told that an autoscaler does not act.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mooring_api::Reason;
use mooring_plan::observed::{InactiveAutoscaler, ObservedDeployment, ObservedPod};
use mooring_plan::plan::plan;
use mooring_plan::status::next_change;
use serde_json::{Value, json};

use crate::statuses::{deployment, handshaken, pods, ready};
use crate::world::{fixture, now, settings, world};

const LONG_AGO: &str = "2026-06-01T08:00:00Z";
const NO_API: &str = "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";

/// A condition of a HorizontalPodAutoscaler.
fn condition(kind: &str, status: &str, reason: &str, message: &str, since: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

/// An autoscaler that finds no metrics, since then.
pub fn unmeasured(since: &str) -> Option<InactiveAutoscaler> {
    inactive(&[condition("ScalingActive", "False", "FailedGetResourceMetric", NO_API, since)])
}

fn inactive(conditions: &[Value]) -> Option<InactiveAutoscaler> {
    InactiveAutoscaler::from_conditions(&serde_json::from_value::<Vec<_>>(json!(conditions)).unwrap())
}

/// A Deployment that has had pods to serve since then.
pub fn available_since(since: &str) -> ObservedDeployment {
    let mut deployment = deployment(2, 2, 2);
    let condition = json!([{"type": "Available", "status": "True", "lastTransitionTime": since}]);
    deployment.status.conditions = serde_json::from_value(condition).unwrap();
    deployment
}

/// What is told of an autoscaler with these conditions, long after its pods became ready.
fn told(conditions: &[Value]) -> Vec<String> {
    let server = fixture("autoscaling");
    let mut observed = world(&server);
    observed.inactive_autoscaler = inactive(conditions);
    observed.deployment = Some(available_since(LONG_AGO));
    observed.pods = pods([ready(handshaken())]);
    let findings = plan(&server, &observed, &settings(""), now()).unwrap().findings;
    findings.into_iter().map(|finding| format!("{} {}: {}", finding.reason, finding.field, finding.message)).collect()
}

#[test]
fn what_lasts_of_its_own_words_comes_with_what_to_do() {
    let able = |status: &str, reason: &str, message: &str| condition("AbleToScale", status, reason, message, LONG_AGO);
    let active =
        |status: &str, reason: &str, message: &str| condition("ScalingActive", status, reason, message, LONG_AGO);
    let within = condition("ScalingLimited", "False", "DesiredWithinRange", "", LONG_AGO);
    let unmeasured = active("False", "FailedGetResourceMetric", NO_API);
    let missing = "failed to get cpu utilization: missing request for cpu in container proxy of Pod busy-7f9-x2";
    let many = "pods by selector a=b are controlled by multiple HPAs: [demo/theirs demo/busy]";
    insta::assert_yaml_snapshot!(BTreeMap::from([
        ("new", told(&[])),
        ("acts", told(&[able("True", "ReadyForNewScale", ""), active("True", "ValidMetricFound", ""), within.clone()])),
        ("no metrics", told(&[able("True", "SucceededGetScale", ""), unmeasured.clone(), within])),
        ("a container without a request", told(&[active("False", "FailedGetResourceMetric", missing)])),
        ("two of them", told(&[active("False", "AmbiguousSelector", many)])),
        ("no Deployment", told(&[unmeasured, able("False", "FailedGetScale", "not found")])),
    ]));
}

/// When it is told that no metrics are found since `since`, in seconds from now, which is 12:00:00.
fn told_in(of: &str, since: &str, available: &str, pod: Option<ObservedPod>) -> Option<u64> {
    let server = fixture(of);
    let mut observed = world(&server);
    observed.inactive_autoscaler = unmeasured(since);
    observed.deployment = Some(available_since(available));
    observed.pods = pods(pod);
    let is_told = |at: Timestamp| {
        let findings = plan(&server, &observed, &settings(""), at).unwrap().findings;
        findings.iter().any(|finding| finding.reason == Reason::AutoscalerInactive)
    };
    if is_told(now()) {
        return Some(0);
    }
    let pause = next_change(&server, &observed, now())?;
    is_told(now().checked_add(pause).unwrap()).then_some(pause.as_secs())
}

#[test]
fn a_start_is_no_matter_of_the_autoscaler() {
    let serves = || Some(ready(handshaken()));
    let stops = ObservedPod { terminating: true, ..ready(handshaken()) };
    let only_just = "2026-06-01T11:59:00Z";
    let cases = [
        ("nothing measures", "autoscaling", LONG_AGO, LONG_AGO, serves(), Some(0)),
        ("only just", "autoscaling", only_just, LONG_AGO, serves(), Some(120)),
        ("a server that only just serves", "autoscaling", LONG_AGO, only_just, serves(), Some(120)),
        ("pods that are starting", "autoscaling", LONG_AGO, LONG_AGO, Some(ObservedPod::default()), None),
        ("pods that stop", "autoscaling", LONG_AGO, LONG_AGO, Some(stops), None),
        ("no pods", "autoscaling", LONG_AGO, LONG_AGO, None, None),
        ("one that is on its way out", "http-minimal", LONG_AGO, LONG_AGO, serves(), None),
    ];
    for (name, of, since, available, pod, told) in cases {
        assert_eq!(told_in(of, since, available, pod), told, "{name}");
    }
}
