//! The life of the keys that seal sessions: which step is due. A new key is distributed as *next*, where it opens, and
//! seals as *current* only once every front door has it; what it replaces opens as *previous* until the last session that
//! it sealed is past its age. So a rotation ends no session, whatever pod a request reaches.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use mooring_api::{McpServer, Reason};
use mooring_contract::SessionKey;
use mooring_contract::session_key::Slot;

use crate::desired;
use crate::names::ANNOTATION_ROTATE;
use crate::observed::{Door, Observed, ObservedPod, SessionSecret};
use crate::outcome::{Finding, KeyStep};

/// How long a key seals.
const PERIOD: Duration = Duration::from_hours(30 * 24);

/// What the McpServer's annotation asks for: whenever it says something else, the keys are rotated once.
pub(crate) fn request(server: &McpServer) -> Option<&String> {
    server.annotations().get(ANNOTATION_ROTATE)
}

/// The step that is due.
pub(crate) fn step(
    server: &McpServer,
    session: &SessionSecret,
    observed: &Observed,
    now: Timestamp,
) -> Option<KeyStep> {
    let key = |slot: Slot| session.keys.get(&slot);
    let Some(current) = key(Slot::Current) else { return Some(KeyStep::First) };
    if key(Slot::Previous).is_some() {
        return is_past(retires(server, session), now).then_some(KeyStep::Retire);
    }
    let Some(next) = key(Slot::Next) else {
        let is_due = is_asked(server, session) || is_past(current.created().checked_add(PERIOD).ok(), now);
        return is_due.then_some(KeyStep::Prepare);
    };
    behind(next, observed).is_empty().then(|| KeyStep::Advance { next: next.clone(), current: current.clone() })
}

/// What a rotation waits for.
pub(crate) fn waiting(server: &McpServer, session: &SessionSecret, observed: &Observed) -> Option<Finding> {
    let finding =
        |message: String| Finding { reason: Reason::SessionKeysWaiting, field: "sessions".to_owned(), message };
    if let Some(next) = session.keys.get(&Slot::Next) {
        let behind = behind(next, observed);
        return (!behind.is_empty()).then(|| {
            finding(format!(
                "the session keys are being rotated, and the newest waits for {}, which did not report it yet; until then the one before it is used",
                behind.join(", ")
            ))
        });
    }
    let retires = retires(server, session).filter(|_| is_asked(server, session))?;
    Some(finding(format!(
        "the session keys were rotated not long ago; what {ANNOTATION_ROTATE} asks for follows at {retires}, when the sessions of before have ended"
    )))
}

fn is_asked(server: &McpServer, session: &SessionSecret) -> bool {
    request(server).is_some_and(|request| session.rotated.as_ref() != Some(request))
}

fn is_past(moment: Option<Timestamp>, now: Timestamp) -> bool {
    moment.is_some_and(|moment| moment <= now)
}

/// When the last session that *previous* sealed is past its age. A key that has become old is no matter of the hour.
pub(crate) fn retires(server: &McpServer, session: &SessionSecret) -> Option<Timestamp> {
    session.keys.get(&Slot::Previous)?;
    let age = Duration::from_millis(desired::sessions(server).max_age_ms);
    session.advanced.unwrap_or(Timestamp::UNIX_EPOCH).checked_add(age).ok()
}

/// The pods that may still be asked to open a session and do not say that they have the key. A front door that reports no
/// key at all is of a version that seals nothing.
fn behind(key: &SessionKey, observed: &Observed) -> Vec<String> {
    let id = key.id();
    let is_behind = |pod: &ObservedPod| {
        may_serve(pod)
            && match &pod.door {
                Door::Answered(door) => !door.session_keys.is_empty() && !door.session_keys.has(&id),
                Door::Unasked | Door::Unauthorized | Door::Unreachable(_) => true,
            }
    };
    observed.pods.iter().filter(|(_, pod)| is_behind(pod)).map(|(name, _)| name.clone()).collect()
}

/// Whether a pod serves or may yet: its node has mounted the keys as they were at that moment, although no front door
/// may run yet.
fn may_serve(pod: &ObservedPod) -> bool {
    let ended = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut conditions = pod.status.conditions.iter().flatten();
    !ended && conditions.any(|condition| condition.type_ == "PodScheduled" && condition.status == "True")
}
