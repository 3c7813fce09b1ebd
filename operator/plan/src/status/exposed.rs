//! Exposed: are hosts and Ingress as asked? An ingress controller that reports no address holds nothing back.

use mooring_api::{ConditionType, McpServer, McpServerStatus, Reason};

use super::Outcome;
use super::accepted::is_ingress;
use super::verdict::{State, Verdict};
use crate::observed::Observed;
use crate::outcome::Finding;

pub(super) fn exposed(old: &McpServerStatus, server: &McpServer, observed: &Observed, outcome: Outcome<'_>) -> Verdict {
    let (plan, applied) = match outcome {
        Outcome::Planned { plan, applied } => (plan, applied),
        Outcome::Rejected(rejection) => {
            let unknown =
                || Verdict::new(State::Unknown, rejection.reason, "Nothing is exposed until the spec is accepted.");
            return old.condition(ConditionType::Exposed).map_or_else(unknown, Verdict::again);
        }
    };
    if server.spec.ingress.is_none() {
        let message = "No Ingress is asked for; the Service is the way in.";
        return Verdict::new(State::True, Reason::NotRequested, message);
    }
    let refused = applied.refused.iter().filter(|finding| is_ingress(finding));
    let findings: Vec<_> = plan.findings.iter().filter(|finding| concerns_exposure(finding)).chain(refused).collect();
    Verdict::of_findings(State::False, &findings).unwrap_or_else(|| {
        let message = match observed.ingress_addresses.as_slice() {
            [] => "The Ingress is applied; its controller has reported no address, and some never do.".to_owned(),
            addresses => {
                let mut addresses = addresses.to_vec();
                addresses.sort();
                format!("The ingress controller serves it at {}.", addresses.join(", "))
            }
        };
        Verdict::new(State::True, Reason::Exposed, message)
    })
}

fn concerns_exposure(finding: &Finding) -> bool {
    matches!(
        finding.reason,
        Reason::NoHosts
            | Reason::HostConflict
            | Reason::IngressClassNotFound
            | Reason::TlsSecretNotFound
            | Reason::AnnotationRefused
    )
}
