//! Available: do pods serve? Old pods that serve during a rollout count; why new ones do not come is told all the same.

use jiff::Timestamp;
use mooring_api::{McpServer, Reason};

use super::Outcome;
use super::pods::{self, Failure};
use super::rollout;
use super::verdict::{State, Verdict};
use crate::observed::{Observed, ObservedDeployment};
use crate::outcome::Finding;

pub(super) fn available(server: &McpServer, observed: &Observed, outcome: Outcome<'_>, now: Timestamp) -> Verdict {
    let nothing = ObservedDeployment::default();
    let deployment = observed.deployment.as_ref().unwrap_or(&nothing);
    let wanted = server.spec.replicas.or(deployment.replicas).unwrap_or(1);
    let available = deployment.status.available_replicas.unwrap_or(0);
    if observed.deployment.is_none()
        && let Outcome::Rejected(rejection) = outcome
    {
        return Verdict::new(State::False, rejection.reason, "No pods are made until the spec is accepted.");
    }
    if waiting(outcome) {
        let message = "The children of an earlier server of this name are being removed first.";
        return Verdict::new(State::False, Reason::Progressing, message);
    }
    if wanted == 0 {
        return Verdict::new(
            State::False,
            Reason::ScaledToZero,
            "No replicas are wanted: scale the server up to use it.",
        );
    }
    if is_settled(deployment, wanted) {
        return Verdict::new(State::True, Reason::Available, format!("{wanted} of {wanted} pods are available."));
    }
    let progress = format!("{} of {wanted} pods are available", available.min(wanted));
    let state = if available > 0 { State::True } else { State::False };
    let because = |failure: Failure| {
        let advice =
            rollout::advice(server, deployment, &failure).map(|advice| format!(". {advice}")).unwrap_or_default();
        let after = if available > 0 { format!("{advice}. {progress} and go on serving.") } else { ".".to_owned() };
        let stem = failure.stem.map(|stem| capitalised(&stem));
        Verdict::new(state, failure.reason, capitalised(&failure.message) + &after).keeping(stem)
    };
    let missing = missing_references(outcome);
    let failure = failed_create(deployment)
        .or_else(|| pods::failure(observed.pods.values()))
        .or_else(|| rollout::volumes(observed, now));
    match failure {
        Some(failure) if missing.is_empty() || !follows_from_a_reference(failure.reason) => because(failure),
        _ => Verdict::of_findings(state, &missing).unwrap_or_else(|| {
            let newer = if available >= wanted { ", and newer ones are starting." } else { "." };
            Verdict::new(state, Reason::Progressing, progress + newer)
        }),
    }
}

/// Whether every wanted pod is of the newest template and available, and no older one is left.
fn is_settled(deployment: &ObservedDeployment, wanted: i32) -> bool {
    let status = &deployment.status;
    let observed = status.observed_generation.is_some_and(|generation| generation >= deployment.generation);
    let enough = |count: Option<i32>| count.unwrap_or(0) >= wanted;
    let none_older = status.replicas.unwrap_or(0) <= status.updated_replicas.unwrap_or(0);
    observed && none_older && enough(status.updated_replicas) && enough(status.available_replicas)
}

/// Quota and policy refusals stand on the Deployment.
fn failed_create(deployment: &ObservedDeployment) -> Option<Failure> {
    let conditions = deployment.status.conditions.as_deref().unwrap_or_default();
    let refused =
        conditions.iter().find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True")?;
    let words = refused.message.as_deref().unwrap_or("no reason is given");
    Some(Failure {
        reason: Reason::FailedCreate,
        message: format!("the cluster refuses to make pods: {words}"),
        stem: None,
    })
}

/// A missing object shows as one of these; the finding names it and the field.
fn follows_from_a_reference(reason: Reason) -> bool {
    matches!(reason, Reason::CreateContainerConfigError | Reason::FailedCreate | Reason::Unschedulable)
}

fn missing_references(outcome: Outcome<'_>) -> Vec<&Finding> {
    match outcome {
        Outcome::Planned { plan, .. } => {
            plan.findings.iter().filter(|finding| finding.reason == Reason::ReferenceNotFound).collect()
        }
        Outcome::Rejected(_) => Vec::new(),
    }
}

fn waiting(outcome: Outcome<'_>) -> bool {
    matches!(outcome, Outcome::Planned { applied, .. } if applied.waiting)
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
