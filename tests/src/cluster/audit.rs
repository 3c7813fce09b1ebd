//! The API server's audit log: what was asked of it, by whom, and what it answered.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One request that the API server answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: AuditUser,
    /// The client's own name for itself.
    #[serde(default)]
    pub user_agent: String,
    /// What was asked for; none for a path that is no resource.
    pub object_ref: Option<AuditObject>,
    /// What was answered.
    pub response_status: Option<AuditStatus>,
    /// `ResponseStarted` (watches only) or `ResponseComplete`.
    pub stage: String,
    /// When the request came, RFC 3339 with microseconds.
    pub request_received_timestamp: String,
    /// When this event was written, RFC 3339 with microseconds.
    pub stage_timestamp: String,
}

/// Who asked.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    /// The user, or `system:serviceaccount:<namespace>:<name>`.
    #[serde(default)]
    pub username: String,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditObject {
    /// The plural, such as `deployments`.
    pub resource: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    /// The API group; empty for the core.
    pub api_group: String,
    /// Empty for what is not in a namespace.
    pub namespace: String,
    /// Empty for lists and for generated names.
    pub name: String,
}

/// What was answered.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditStatus {
    /// The HTTP status.
    #[serde(default)]
    pub code: u16,
}

impl AuditEvent {
    /// Whether the request could have changed something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// The plural of what was asked for; empty where it was no resource.
    pub fn resource(&self) -> &str {
        self.object_ref.as_ref().map_or("", |object| &object.resource)
    }

    /// The HTTP status; 0 where none was logged.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }
}

/// Reads the log as it stands. A last line that is still being written is left out.
pub(super) fn read(path: &Path) -> Result<Vec<AuditEvent>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).with_context(|| format!("audit event {line}"))).collect()
}
