//! The status that follows from what is observed and from what came of the plan.

use jiff::Timestamp;
use mooring_api::{McpServer, McpServerStatus};

use crate::observed::Observed;
use crate::outcome::{Applied, Plan, Rejection};

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
    /// The spec cannot be served.
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
    let _ = (observed, outcome, now);
    McpServerStatus { observed_generation: server.metadata.generation, ..old.clone() }
}

/// How long until the status changes by the passing of time alone: a key expires, or a backend has had its time to
/// start. `None` where only events of the cluster change it.
pub fn next_change(_server: &McpServer, _observed: &Observed, _now: Timestamp) -> Option<std::time::Duration> {
    None
}
