//! Accepted: is the spec served as written? And Stalled: will nothing change until somebody acts?

use mooring_api::Reason;

use super::Outcome;
use super::verdict::{State, Verdict};
use crate::observed::{Door, Observed};
use crate::outcome::{Applied, Finding};

pub(super) fn accepted(observed: &Observed, outcome: Outcome<'_>) -> Verdict {
    let (plan, applied) = match outcome {
        Outcome::Planned { plan, applied } => (plan, applied),
        Outcome::Rejected(rejection) => {
            let message = format!("{}: {}", rejection.field, rejection.message);
            return Verdict::new(State::False, rejection.reason, message);
        }
    };
    if let Some(verdict) = Verdict::of_findings(State::False, &refused(applied)) {
        return verdict;
    }
    if let Some(error) = refused_config(observed, &plan.revisions.config) {
        let message =
            format!("A front door keeps its last good config, because it does not understand the newest: {error}");
        return Verdict::new(State::False, Reason::ConfigRefused, message);
    }
    // It is served, less what these name.
    let told = |finding: &&Finding| {
        matches!(
            finding.reason,
            Reason::KeyRefused
                | Reason::ReferenceNotFound
                | Reason::SessionKeysWaiting
                | Reason::PeersUnreachable
                | Reason::AutoscalerInactive
        )
    };
    let findings: Vec<_> = plan.findings.iter().chain(&applied.refused).filter(told).collect();
    Verdict::of_findings(State::True, &findings)
        .unwrap_or_else(|| Verdict::new(State::True, Reason::Accepted, "The spec is served as written."))
}

pub(super) fn stalled(outcome: Outcome<'_>) -> Option<Verdict> {
    match outcome {
        Outcome::Rejected(rejection) => {
            let message = format!("{}: {}", rejection.field, rejection.message);
            Some(Verdict::new(State::True, rejection.reason, message))
        }
        Outcome::Planned { applied, .. } => {
            let conflicts = refused(applied).into_iter().filter(|finding| finding.reason == Reason::NameConflict);
            Verdict::of_findings(State::True, &conflicts.collect::<Vec<_>>())
        }
    }
}

/// Children that were not applied, but for the Ingress: that is a matter of exposure. Where a step of the session keys was
/// refused, those that are there serve on.
fn refused(applied: &Applied) -> Vec<&Finding> {
    let is_step = |finding: &Finding| finding.reason == Reason::SessionKeysWaiting;
    applied.refused.iter().filter(|finding| !is_ingress(finding) && !is_step(finding)).collect()
}

/// `field` of a child that was refused begins with its kind.
pub(super) fn is_ingress(finding: &Finding) -> bool {
    finding.field.starts_with("Ingress")
}

fn refused_config<'a>(observed: &'a Observed, revision: &str) -> Option<&'a str> {
    observed.pods.values().filter(|pod| !pod.terminating).find_map(|pod| match &pod.door {
        Door::Answered(door) if door.config_revision != revision => door.config_error.as_deref(),
        Door::Answered(_) | Door::Unasked | Door::Unauthorized | Door::Unreachable(_) => None,
    })
}
