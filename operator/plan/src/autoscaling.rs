//! An autoscaler that does not act, in its own words and with what to do about it. Of pods that have just become ready
//! nobody measured anything yet, and where no pod is ready that is the news: neither is told.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition;
use mooring_api::{McpServer, Reason};

use crate::observed::{InactiveAutoscaler, Observed};
use crate::outcome::Finding;
use crate::status::is_ready;
use crate::text::{cut, one_line};

/// Longer than it takes until the first pods are measured: metrics-server looks twice, each minute by default, and the
/// autoscaler leaves out what it saw just after a pod became ready.
const GRACE: Duration = Duration::from_mins(3);
/// Longest words of the autoscaler.
const DETAIL_BYTES: usize = 400;
/// What says no more than that the autoscaler does not act.
const PREAMBLE: &str = "the HPA was unable to compute the replica count: ";
/// What follows is the name of a pod, or names in no order: it differs from one look to the next.
const NAMES: [&str; 2] = [" of Pod ", ": ["];

impl InactiveAutoscaler {
    /// Reads the conditions of a HorizontalPodAutoscaler. `ScalingLimited` only says that its number is within limits.
    pub fn from_conditions(conditions: &[HorizontalPodAutoscalerCondition]) -> Option<Self> {
        let failing =
            |kind: &str| conditions.iter().find(|condition| condition.type_ == kind && condition.status == "False");
        // One that cannot reach the Deployment measures nothing: what it says of that is of before.
        let condition = failing("AbleToScale").or_else(|| failing("ScalingActive"))?;
        let words = one_line(condition.message.as_deref().unwrap_or_default());
        let words = words.strip_prefix(PREAMBLE).unwrap_or(&words);
        let lasting = NAMES.iter().filter_map(|names| words.find(names)).min().unwrap_or(words.len());
        Some(Self {
            reason: condition.reason.clone().unwrap_or_default(),
            message: cut(words, lasting.min(DETAIL_BYTES)).to_owned(),
            since: condition.last_transition_time.as_ref()?.0,
        })
    }
}

/// What the autoscaler says, once it has said so for a while.
pub(crate) fn inactive(server: &McpServer, observed: &Observed, now: Timestamp) -> Option<Finding> {
    let InactiveAutoscaler { reason, message, .. } = observed.inactive_autoscaler.as_ref()?;
    grace_end(server, observed).filter(|end| *end <= now)?;
    Some(Finding {
        reason: Reason::AutoscalerInactive,
        field: "autoscaling".to_owned(),
        message: format!("the HorizontalPodAutoscaler does not act ({reason}): {message}. {}", advice(reason, message)),
    })
}

/// When it is told that the autoscaler does not act.
pub(crate) fn grace_end(server: &McpServer, observed: &Observed) -> Option<Timestamp> {
    server.spec.autoscaling.as_ref()?;
    let since = observed.inactive_autoscaler.as_ref()?.since;
    observed.pods.values().find(|pod| is_ready(pod))?;
    since.max(available_since(observed)?).checked_add(GRACE).ok()
}

/// Since when there are pods that serve, which rollouts replace.
fn available_since(observed: &Observed) -> Option<Timestamp> {
    let conditions = observed.deployment.as_ref()?.status.conditions.iter().flatten();
    let mut available = conditions.filter(|condition| condition.type_ == "Available" && condition.status == "True");
    Some(available.next()?.last_transition_time.as_ref()?.0)
}

fn advice(reason: &str, message: &str) -> &'static str {
    match reason {
        "AmbiguousSelector" => "Delete the other one, or take autoscaling out of the spec",
        "FailedGetResourceMetric" if message.contains("missing request") => {
            "Every container has to request CPU, those that something else adds to the pods too"
        }
        "FailedGetResourceMetric" => {
            "Install metrics-server, or look why it does not measure the pods: kubectl top pods"
        }
        _ => "kubectl describe hpa says more",
    }
}
