//! Verified: did the backend answer the front door's own MCP handshake? Asked are the front doors of ready pods; where
//! no pod is ready, one that has tried for a while tells why.

use std::time::Duration;

use jiff::Timestamp;
use mooring_api::status::ServerStatus;
use mooring_api::{ConditionType, McpServerStatus, Reason};
use mooring_contract::DoorStatus;
use mooring_contract::door_status::Handshake;

use super::pods;
use super::verdict::{State, Verdict};
use crate::observed::{Door, Observed, ObservedPod};
use crate::text::{cut, one_line};

/// How long a backend may take to start before its silence is told.
const GRACE: Duration = Duration::from_secs(30);
/// Longest error of a handshake that is told.
const ERROR_BYTES: usize = 400;

pub(super) fn verified(old: &McpServerStatus, observed: &Observed, now: Timestamp) -> (Verdict, Option<ServerStatus>) {
    let pods = pods::newest_first(observed.pods.values());
    let (ready, starting): (Vec<&ObservedPod>, Vec<_>) = pods.into_iter().partition(|pod| pods::is_ready(pod));
    if let Some(handshake) = ready.iter().filter_map(|pod| answer(pod)).find_map(|door| door.handshake.as_ref()) {
        return (succeeded(handshake), Some(server_status(handshake)));
    }
    let waited = starting.iter().filter(|pod| grace_end(pod).is_none_or(|end| end <= now));
    // A ready pod is ready because its backend answered: an error that its front door told was told before that.
    let mut errors = waited.filter_map(|pod| answer(pod));
    if let Some(error) = errors.find_map(|door| door.handshake_error.as_deref()) {
        let words = one_line(error);
        let message = format!("The backend answered no MCP handshake: {}", cut(&words, ERROR_BYTES));
        return (Verdict::new(State::False, Reason::HandshakeFailed, message), None);
    }
    if ready.iter().any(|pod| matches!(pod.door, Door::Unauthorized | Door::Unreachable(_))) {
        let message =
            "The operator cannot reach the pods' management port, so it cannot tell; the server may well work.";
        return (Verdict::new(State::Unknown, Reason::PodsUnreachable, message), old.server.clone());
    }
    // An operator that has just started has asked nobody yet, and of pods that have just become ready it holds older
    // answers: what was found before still stands.
    let some_ready = !ready.is_empty();
    match old.condition(ConditionType::Verified).filter(|_| some_ready) {
        Some(before) => (Verdict::again(before), old.server.clone()),
        None => (Verdict::new(State::Unknown, Reason::HandshakePending, "No pod has been asked yet."), None),
    }
}

/// When the silence of each starting backend will be told.
pub(super) fn grace_ends(observed: &Observed) -> impl Iterator<Item = Timestamp> {
    let starting = observed.pods.values().filter(|pod| !pod.terminating && !pods::is_ready(pod));
    starting.filter(|pod| answer(pod).is_some_and(|door| door.handshake_error.is_some())).filter_map(grace_end)
}

/// The end of a pod's grace, counted from the start of its front door.
fn grace_end(pod: &ObservedPod) -> Option<Timestamp> {
    let running = pod.front_door().and_then(|state| state.running.as_ref());
    let running = running.and_then(|running| running.started_at.as_ref());
    running.map(|time| time.0).or(pod.created).and_then(|start| start.checked_add(GRACE).ok())
}

fn answer(pod: &ObservedPod) -> Option<&DoorStatus> {
    match &pod.door {
        Door::Answered(door) => Some(door),
        Door::Unasked | Door::Unauthorized | Door::Unreachable(_) => None,
    }
}

fn succeeded(handshake: &Handshake) -> Verdict {
    let newest = handshake.protocol_versions.first().map(|version| format!(" with protocol {version}"));
    let who = format!("{} {}", handshake.name, handshake.version);
    let message = format!("{} answered an MCP handshake{}.", who.trim(), newest.unwrap_or_default());
    Verdict::new(State::True, Reason::HandshakeSucceeded, message)
}

fn server_status(handshake: &Handshake) -> ServerStatus {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    ServerStatus {
        name: text(&handshake.name),
        version: text(&handshake.version),
        protocol_versions: handshake.protocol_versions.clone(),
        tool_count: handshake.tool_count.and_then(|count| i32::try_from(count).ok()),
    }
}
