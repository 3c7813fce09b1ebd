//! The status that follows from what is observed and from what came of the plan: one verdict for each condition, and
//! the few facts beside them. Messages hold what lasts, so that a server at rest has nothing to write.

mod accepted;
mod available;
mod exposed;
mod pods;
mod rollout;
mod verdict;
mod verified;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use mooring_api::status::KeyStatus;
use mooring_api::{ConditionType, McpServer, McpServerStatus, Reason};

use crate::observed::Observed;
use crate::outcome::{Applied, Plan, Rejection};
use crate::{autoscaling, names, peers, rotation};
pub(crate) use pods::{is_ready, ready_since};
use verdict::{State, Verdict};

/// What came of planning.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// There was a plan, and it was applied.
    Planned {
        /// The plan.
        plan: &'a Plan,
        /// What came of it.
        applied: &'a Applied,
    },
    /// The spec cannot be served. What runs, runs on.
    Rejected(&'a Rejection),
}

/// The status that follows. Applied to its own result it changes nothing.
pub fn status(
    old: &McpServerStatus,
    server: &McpServer,
    observed: &Observed,
    outcome: Outcome<'_>,
    now: Timestamp,
) -> McpServerStatus {
    let deployment = observed.deployment.as_ref().map(|deployment| &deployment.status);
    let (verified, server_status) = verified::verified(old, observed, now);
    let url = match outcome {
        Outcome::Planned { plan, .. } => Some(plan.url.clone()),
        Outcome::Rejected(_) => old.url.clone(),
    };
    let verdicts = Verdicts {
        accepted: accepted::accepted(observed, outcome),
        available: available::available(server, observed, outcome, now),
        verified,
        exposed: exposed::exposed(old, server, observed, outcome),
        stalled: accepted::stalled(outcome),
    };
    McpServerStatus {
        observed_generation: server.metadata.generation,
        conditions: verdicts.conditions(old, server.metadata.generation, url.as_deref(), now),
        url,
        replicas: Some(deployment.and_then(|status| status.replicas).unwrap_or(0)),
        ready_replicas: Some(deployment.and_then(|status| status.ready_replicas).unwrap_or(0)),
        selector: Some(names::selector(&server.name_any())),
        server: server_status,
        keys: keys(server, observed, now),
    }
}

/// How long until something changes by the passing of time alone: a key expires, the session key of
/// before is to go, or a backend, a volume, a pod that was not reached or an autoscaler has had its time. `None` where only the cluster can change it.
pub fn next_change(server: &McpServer, observed: &Observed, now: Timestamp) -> Option<Duration> {
    let declared = server.spec.auth.iter().flat_map(|auth| &auth.keys);
    let expiries = declared.filter_map(|key| key.expires.as_ref()).map(|time| time.0);
    let graces = verified::grace_ends(observed)
        .chain(rollout::grace_ends(observed))
        .chain(peers::grace_ends(observed))
        .chain(autoscaling::grace_end(server, observed));
    let rotates = observed.session.iter().filter_map(|session| rotation::retires(server, session));
    let moments = expiries.chain(graces).chain(rotates).filter(|moment| *moment > now);
    moments.min().and_then(|moment| Duration::try_from(moment.duration_since(now)).ok())
}

struct Verdicts {
    accepted: Verdict,
    available: Verdict,
    verified: Verdict,
    exposed: Verdict,
    stalled: Option<Verdict>,
}

impl Verdicts {
    fn conditions(
        self,
        old: &McpServerStatus,
        generation: Option<i64>,
        url: Option<&str>,
        now: Timestamp,
    ) -> Vec<Condition> {
        let condition =
            |kind: ConditionType, verdict: Verdict| verdict.condition(kind, old.condition(kind), generation, now);
        // What a message keeps from before is kept in the summary too, so the summary is made of the conditions.
        let mut conditions = vec![
            condition(ConditionType::Accepted, self.accepted),
            condition(ConditionType::Available, self.available),
            condition(ConditionType::Verified, self.verified),
            condition(ConditionType::Exposed, self.exposed),
        ];
        conditions.push(condition(ConditionType::Ready, ready(&conditions, url)));
        conditions.extend(self.stalled.map(|verdict| condition(ConditionType::Stalled, verdict)));
        conditions
    }
}

/// The summary: what fails, a failure before mere progress; else what somebody should know; else that all is well.
fn ready(conditions: &[Condition], url: Option<&str>) -> Verdict {
    let is = |condition: &Condition, reason: Reason| condition.reason == reason.as_str();
    let failing = |condition: &&Condition| condition.status == State::False.as_str();
    let first = conditions.iter().filter(failing).find(|condition| !is(condition, Reason::Progressing));
    if let Some(condition) = first.or_else(|| conditions.iter().find(failing)) {
        return Verdict::summary(State::False, condition);
    }
    let fine = [
        Reason::Accepted,
        Reason::Available,
        Reason::Progressing,
        Reason::HandshakeSucceeded,
        Reason::Exposed,
        Reason::NotRequested,
    ];
    let worth_knowing = |condition: &&Condition| {
        condition.status == State::True.as_str() && !fine.iter().any(|reason| is(condition, *reason))
    };
    if let Some(condition) = conditions.iter().find(worth_knowing) {
        return Verdict::summary(State::True, condition);
    }
    Verdict::new(State::True, Reason::Ready, format!("The server can be used at {}.", url.unwrap_or_default()))
}

/// The declared keys. A key that is not made yet has a name alone.
fn keys(server: &McpServer, observed: &Observed, now: Timestamp) -> Vec<KeyStatus> {
    let declared = server.spec.auth.iter().flat_map(|auth| &auth.keys);
    let mut keys: Vec<_> = declared
        .map(|declared| {
            let stored = observed.declared_keys.get(&declared.name);
            let key = stored.and_then(|stored| stored.key.as_ref());
            let expired = declared.expires.as_ref().is_some_and(|time| time.0 <= now);
            KeyStatus {
                name: declared.name.clone(),
                hint: key.map(|key| key.hint().to_owned()),
                created: stored.filter(|_| key.is_some()).map(|stored| Time(stored.created)),
                expires: declared.expires.clone(),
                expired: expired.then_some(true),
            }
        })
        .collect();
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    keys
}
