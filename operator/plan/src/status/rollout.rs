//! Why a newer pod does not come while older ones serve, and what to do about it: for the time of a rollout there must be
//! room for both.

use std::time::Duration;

use jiff::Timestamp;
use mooring_api::spec::RolloutStrategy;
use mooring_api::{McpServer, Reason};

use super::pods::{self, Failure};
use crate::observed::{Observed, ObservedDeployment, ObservedPod};

/// How long volumes may take before that is told.
const GRACE: Duration = Duration::from_secs(30);
const RECREATE: &str = "or set rollout.strategy: Recreate, which stops the older ones first";

/// What to do where a newer pod fails for want of room beside older ones.
pub(super) fn advice(server: &McpServer, deployment: &ObservedDeployment, failure: &Failure) -> Option<String> {
    let status = &deployment.status;
    let has_older = status.replicas.unwrap_or(0) > status.updated_replicas.unwrap_or(0);
    let recreates = server.spec.rollout.clone().unwrap_or_default().strategy() == RolloutStrategy::Recreate;
    if !has_older || recreates {
        return None;
    }
    let because = |words: &str| failure.message.contains(words);
    let cause = match failure.reason {
        Reason::FailedCreate if because("quota") => {
            "The quota has to leave room for a newer pod beside the older ones: raise it"
        }
        Reason::Unschedulable if because("anti-affinity") => {
            "The older pods keep newer ones off their nodes: let them share one in pod.affinity"
        }
        Reason::Unschedulable if because("ReadWriteOncePod") || because("volume node affinity") => {
            "An older pod may hold a volume that a newer one needs: use one that several pods can mount (ReadWriteMany)"
        }
        Reason::Unschedulable if because("Insufficient") || because("Too many pods") => {
            "The nodes have to leave room for a newer pod beside the older ones: add one"
        }
        Reason::VolumesNotReady if has_claims(server) => {
            "A ReadWriteOnce volume stays on the node of an older pod: use one that several nodes can mount (ReadWriteMany)"
        }
        _ => return None,
    };
    Some(format!("{cause}, {RECREATE}"))
}

fn has_claims(server: &McpServer) -> bool {
    let volumes = server.spec.pod.iter().flat_map(|pod| &pod.volumes);
    volumes.into_iter().any(|volume| volume.persistent_volume_claim.is_some())
}

/// The newest pod that has waited too long for its volumes.
pub(super) fn volumes(observed: &Observed, now: Timestamp) -> Option<Failure> {
    let waits = |pod: &&ObservedPod| grace_end(pod).is_some_and(|end| end <= now);
    pods::newest_first(observed.pods.values()).into_iter().find(waits).map(|_| Failure {
        reason: Reason::VolumesNotReady,
        message: "a pod has a node, and waits there for its volumes or its network: its events say for which"
            .to_owned(),
        stem: None,
    })
}

/// When the wait of each pod for its volumes will be told.
pub(super) fn grace_ends(observed: &Observed) -> impl Iterator<Item = Timestamp> {
    observed.pods.values().filter(|pod| !pod.terminating).filter_map(grace_end)
}

/// The end of the grace of a pod that has a node and whose containers cannot be made yet.
fn grace_end(pod: &ObservedPod) -> Option<Timestamp> {
    let condition = |kind: &str, status: &str| {
        let mut conditions = pod.status.conditions.iter().flatten();
        conditions.find(|condition| condition.type_ == kind && condition.status == status)
    };
    condition("PodReadyToStartContainers", "False")?;
    let since = condition("PodScheduled", "True")?.last_transition_time.as_ref()?;
    since.0.checked_add(GRACE).ok()
}
