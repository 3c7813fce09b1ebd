//! One pass over one server: observe, plan, apply, status, publish. The order is here; what each step does is elsewhere.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mooring_api::{ConditionType, McpServer, McpServerStatus, Reason};
use mooring_plan::outcome::{Mint, Revisions};
use mooring_plan::{Applied, Observed, Outcome, Plan, Rejection, Settings, plan, refresh, status};

use crate::apply::{ApplyError, Writer};
use crate::clock;
use crate::key::ServerKey;
use crate::metrics::Pass;
use crate::observe::{ObserveError, Observer};
use crate::publish::{PublishError, Publisher};
use crate::refresh::Refresher;
use crate::world::World;

/// Longest time for one pass.
const LONGEST: Duration = Duration::from_secs(60);
/// Passes that may follow each other because Secrets were made or changed: one makes them, a rotation of session keys takes
/// three where no pod has to follow, and the last uses them.
const ROUNDS: usize = 5;
/// When to look again after the API server refused a child, at the soonest and at the latest: its reason, such as a quota,
/// may be gone.
const REFUSED_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// When to look again whether somebody else's object still has the name of a child. Looking writes nothing.
const CONFLICT_AGAIN: Duration = Duration::from_secs(10);
/// When to look again while an earlier server's children are in the way; their end is seen sooner where it is watched.
const WAITING_AGAIN: Duration = Duration::from_secs(2);

/// A step that could not be done. The pass is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Reading.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Writing children.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Writing the status.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The whole pass.
    #[error("the pass took longer than {} s", LONGEST.as_secs())]
    Timeout,
}

impl ReconcileError {
    /// How long the API server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Observe(error) => error.source.retry_after(),
            Self::Apply(error) => error.retry_after(),
            Self::Publish(PublishError(error)) => error.retry_after(),
            Self::Timeout => None,
        }
    }
}

/// How a pass ended, and when to look again without a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// For the metrics.
    pub pass: Pass,
    /// When to look again.
    pub again: Option<Duration>,
    /// Whether every child is as planned.
    pub whole: bool,
}

/// Makes passes.
#[derive(Clone)]
pub struct Reconciler {
    /// What is known.
    pub world: Arc<World>,
    /// Reads.
    pub observer: Observer,
    /// Writes children.
    pub writer: Writer,
    /// Writes statuses.
    pub publisher: Publisher,
    /// Asks front doors and touches pods.
    pub refresher: Refresher,
}

/// What was decided, and what came of it.
enum Decision {
    Planned { plan: Box<Plan>, applied: Applied },
    Rejected(Rejection),
}

impl Reconciler {
    /// One pass over a server. One that is gone or on its way out is left to the garbage collector.
    pub async fn reconcile(&self, key: &ServerKey) -> Result<Reconciled, ReconcileError> {
        match tokio::time::timeout(LONGEST, self.pass(key)).await {
            Ok(result) => result,
            Err(_) => Err(ReconcileError::Timeout),
        }
    }

    async fn pass(&self, key: &ServerKey) -> Result<Reconciled, ReconcileError> {
        let nothing = Reconciled { pass: Pass::Applied, again: None, whole: false };
        let Some(read) = self.world.server(key) else { return Ok(nothing) };
        let server = &read.server;
        if server.metadata.deletion_timestamp.is_some() {
            return Ok(nothing);
        }
        let (observed, decision) = match &read.unreadable {
            Some(error) => (Observed::default(), Decision::Rejected(unreadable(error))),
            None => self.decide_and_apply(key, server).await?,
        };
        let now = clock::now();
        let outcome = match &decision {
            Decision::Planned { plan, applied } => Outcome::Planned { plan, applied },
            Decision::Rejected(rejection) => Outcome::Rejected(rejection),
        };
        let old = self.world.current_status(key, &read);
        let new: McpServerStatus = status::status(&old, server, &observed, outcome, now);
        self.publisher.publish(key, server, &old, &new).await?;
        let next_change = status::next_change(server, &observed, now);
        let (pass, again) = match &decision {
            Decision::Planned { applied, .. } if applied.waiting => (Pass::Waiting, Some(WAITING_AGAIN)),
            Decision::Planned { applied, .. } if !applied.refused.is_empty() => {
                let conflicts = applied.refused.iter().all(|finding| finding.reason == Reason::NameConflict);
                (Pass::Applied, Some(if conflicts { CONFLICT_AGAIN } else { refused_again(&new, now) }))
            }
            Decision::Planned { .. } => (Pass::Applied, None),
            Decision::Rejected(_) => (Pass::Rejected, None),
        };
        let whole = matches!(&decision, Decision::Planned { applied, .. } if *applied == Applied::default());
        Ok(Reconciled { pass, again: again.into_iter().chain(next_change).min(), whole })
    }

    /// Plans and applies; where a plan asks for Secrets, they are made, observed and planned with in the same pass.
    async fn decide_and_apply(
        &self,
        key: &ServerKey,
        server: &McpServer,
    ) -> Result<(Observed, Decision), ReconcileError> {
        let settings: &Settings = self.world.settings();
        for _ in 0..ROUNDS {
            let observed = self.observer.observe(key, server).await?;
            let plan = match plan::plan(server, &observed, settings, clock::now()) {
                Ok(plan) => Box::new(plan),
                Err(rejection) => {
                    // A key that was revoked ends, whatever the spec says.
                    if let Some(session) = &observed.session {
                        self.refresher.want(key, &refresh::stored(server, &observed), &session.status_token);
                    }
                    return Ok((observed, Decision::Rejected(rejection)));
                }
            };
            let (steps, first): (Vec<_>, Vec<_>) =
                plan.mint.iter().cloned().partition(|mint| matches!(mint, Mint::SessionKeys { .. }));
            if !first.is_empty() {
                let applied = self.writer.mint(key, server, &first).await?;
                if applied == Applied::default() {
                    continue;
                }
                return Ok((observed, Decision::Planned { plan, applied }));
            }
            // A step that cannot be taken, such as in an immutable Secret, holds up nothing, and no revoked key.
            let stepped = self.writer.mint(key, server, &steps).await;
            if !steps.is_empty() && stepped.as_ref().is_ok_and(|stepped| *stepped == Applied::default()) {
                continue;
            }
            let applied = self.writer.apply(key, server, &plan).await;
            // Also where a child could not be written: a revoked key does not wait for it.
            if let Some(session) = &observed.session {
                // The keys as they are stored after the apply, which the plan could not know.
                let keys = self.observer.keys_revision(key, server).await?;
                self.refresher.want(key, &Revisions { keys, ..plan.revisions.clone() }, &session.status_token);
            }
            let mut applied = applied?;
            applied.refused.extend(stepped?.refused);
            return Ok((observed, Decision::Planned { plan, applied }));
        }
        let observed = self.observer.observe(key, server).await?;
        let applied = Applied { waiting: true, ..Applied::default() };
        match plan::plan(server, &observed, settings, clock::now()) {
            Ok(plan) => Ok((observed, Decision::Planned { plan: Box::new(plan), applied })),
            Err(rejection) => Ok((observed, Decision::Rejected(rejection))),
        }
    }
}

/// When to ask the API server again for a child that it refused: after as long as the server has not been ready for, so
/// that what passes is seen soon, and what stays costs little.
fn refused_again(status: &McpServerStatus, now: Timestamp) -> Duration {
    let (soonest, latest) = REFUSED_AGAIN;
    let since =
        status.condition(ConditionType::Ready).map(|condition| now.duration_since(condition.last_transition_time.0));
    since.and_then(|since| Duration::try_from(since).ok()).unwrap_or(latest).clamp(soonest, latest)
}

fn unreadable(error: &str) -> Rejection {
    Rejection {
        reason: Reason::Unreadable,
        field: "spec".to_owned(),
        message: format!(
            "the stored object is not a valid McpServer: {error}. It was written under another version of the CRD; apply it again in today's form."
        ),
    }
}

#[cfg(test)]
mod tests;
