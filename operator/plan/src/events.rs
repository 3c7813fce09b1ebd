//! Events: on a change of a condition's status or reason alone, so that a server at rest makes none. Bad news is told
//! once, where it arises; good news when it ends bad news, and when the server becomes ready.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mooring_api::{ConditionType, McpServer, McpServerStatus, Reason};

use crate::text::cut;

/// Longest note that the API server takes.
const NOTE_BYTES: usize = 1024;

/// An event to publish on the McpServer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Normal or Warning.
    pub kind: EventKind,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message, at most 1 kB.
    pub note: String,
    /// What the operator was doing.
    pub action: String,
}

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// Somebody may have to act.
    Warning,
}

/// The events for the change from `old` to `new`.
pub fn events(_server: &McpServer, old: &McpServerStatus, new: &McpServerStatus) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for kind in ConditionType::ALL {
        let event = event(kind, old.condition(kind), new.condition(kind));
        // The same reason in two conditions is the same news.
        events.extend(event.filter(|event| !events.iter().any(|other| other.reason == event.reason)));
    }
    events
}

fn event(kind: ConditionType, old: Option<&Condition>, new: Option<&Condition>) -> Option<Event> {
    let new = new?;
    if old.is_some_and(|old| old.status == new.status && old.reason == new.reason) {
        return None;
    }
    let was_bad = old.is_some_and(|old| tone(old) == Tone::Bad);
    let (action, told) = match kind {
        ConditionType::Accepted => ("Accept", was_bad),
        ConditionType::Available => ("Deploy", was_bad),
        ConditionType::Verified => ("Verify", was_bad),
        ConditionType::Exposed => ("Expose", was_bad),
        ConditionType::Ready => ("Serve", true),
        ConditionType::Stalled => return None, // it repeats Accepted
    };
    let event_kind = match (tone(new), kind) {
        (Tone::Bad, ConditionType::Ready) => return None, // it repeats another condition
        (Tone::Bad, _) => EventKind::Warning,
        (Tone::Good, _) if told => EventKind::Normal,
        (Tone::Good | Tone::Neutral, _) => return None,
    };
    Some(Event {
        kind: event_kind,
        reason: new.reason.clone(),
        note: cut(&new.message, NOTE_BYTES).to_owned(),
        action: action.to_owned(),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tone {
    Good,
    Neutral,
    Bad,
}

fn tone(condition: &Condition) -> Tone {
    let is = |reasons: &[Reason]| reasons.iter().any(|reason| reason.as_str() == condition.reason);
    if is(&[Reason::Progressing, Reason::ScaledToZero, Reason::HandshakePending, Reason::NotRequested]) {
        return Tone::Neutral;
    }
    let good = [Reason::Accepted, Reason::Available, Reason::HandshakeSucceeded, Reason::Exposed, Reason::Ready];
    if is(&good) { Tone::Good } else { Tone::Bad }
}
