//! The life of the keys that seal sessions: which step is due. A new key is distributed as *next*, where it opens, and
//! seals as *current* only once every front door has it; what it replaces opens as *previous* until the last session that
//! it sealed is past its age, counted from when every front door seals with the newer one. So a rotation ends no session,
//! whatever pod a request reaches.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use mooring_api::{McpServer, Reason};
use mooring_contract::SessionKey;
use mooring_contract::door_status::SessionKeyIds;
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
        return match session.settled {
            Some(_) => is_past(retires(server, session), now).then_some(KeyStep::Retire),
            None => behind(Slot::Current, current, observed).is_empty().then_some(KeyStep::Settle),
        };
    }
    let Some(next) = key(Slot::Next) else {
        let is_due = is_asked(server, session) || is_past(current.created().checked_add(PERIOD).ok(), now);
        return is_due.then_some(KeyStep::Prepare);
    };
    let is_ready = behind(Slot::Next, next, observed).is_empty();
    is_ready.then(|| KeyStep::Advance { next: next.clone(), current: current.clone() })
}

/// What a rotation waits for.
pub(crate) fn waiting(server: &McpServer, session: &SessionSecret, observed: &Observed) -> Option<Finding> {
    let finding =
        |message: String| Finding { reason: Reason::SessionKeysWaiting, field: "sessions".to_owned(), message };
    let key = |slot: Slot| session.keys.get(&slot);
    if let Some(retires) = retires(server, session) {
        return is_asked(server, session).then(|| {
            finding(format!(
                "the session keys were rotated not long ago; what {ANNOTATION_ROTATE} asks for follows at {retires}, when the sessions of before have ended"
            ))
        });
    }
    let (slot, newest, until_then) = match (key(Slot::Previous), key(Slot::Next)) {
        (Some(_), _) => (Slot::Current, key(Slot::Current)?, "the one before it stays for their sessions"),
        (None, Some(next)) => (Slot::Next, next, "the one before it is used"),
        (None, None) => return None,
    };
    let behind = behind(slot, newest, observed);
    (!behind.is_empty()).then(|| {
        finding(format!(
            "the session keys are being rotated, and the newest waits for {}, which did not report it yet; until then {until_then}",
            behind.join(", ")
        ))
    })
}

fn is_asked(server: &McpServer, session: &SessionSecret) -> bool {
    request(server).is_some_and(|request| session.rotated.as_ref() != Some(request))
}

fn is_past(moment: Option<Timestamp>, now: Timestamp) -> bool {
    moment.is_some_and(|moment| moment <= now)
}

/// When the last session that *previous* sealed is past its age; not known while a front door may seal with it still. A
/// key that has become old is no matter of the hour.
pub(crate) fn retires(server: &McpServer, session: &SessionSecret) -> Option<Timestamp> {
    session.keys.get(&Slot::Previous)?;
    let age = Duration::from_millis(desired::sessions(server).max_age_ms);
    session.settled?.checked_add(age).ok()
}

/// The pods that may still be asked to open a session and do not say that they have the key, to open with it or, in its
/// slot *current*, to seal with it. A front door that reports no key at all is of a version that seals nothing.
fn behind(slot: Slot, key: &SessionKey, observed: &Observed) -> Vec<String> {
    let id = key.id();
    let has =
        |ids: &SessionKeyIds| if slot == Slot::Current { ids.current.as_ref() == Some(&id) } else { ids.has(&id) };
    let is_behind = |pod: &ObservedPod| {
        may_serve(pod)
            && match &pod.door {
                Door::Answered(door) => !door.session_keys.is_empty() && !has(&door.session_keys),
                Door::Unasked | Door::Unauthorized | Door::Unreachable(_) => true,
            }
    };
    observed.pods.iter().filter(|(_, pod)| is_behind(pod)).map(|(name, _)| name.clone()).collect()
}

/// Whether a pod serves or may yet: its node has mounted the keys as they were at that moment, although no front door
/// may run yet. One that stops does so no more once its front door has ended, however long its server takes.
fn may_serve(pod: &ObservedPod) -> bool {
    let stopped = pod.terminating && pod.front_door().is_some_and(|state| state.terminated.is_some());
    let ended = stopped || matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut conditions = pod.status.conditions.iter().flatten();
    !ended && conditions.any(|condition| condition.type_ == "PodScheduled" && condition.status == "True")
}
