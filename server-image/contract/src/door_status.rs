//! The document at `/status` on the management port: what one front door has in force and what its backend answered.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What one front door says of itself. Unknown fields are ignored, so that operator and front door may differ in age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DoorStatus {
    /// Version of the front door.
    pub version: String,
    /// Whether `/health/ready` answers 200.
    pub ready: bool,
    /// Revision of the config directory in force (see [`crate::revision`]).
    pub config_revision: String,
    /// Why the newest config file is not in force, when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
    /// Revision of the keys directory in force.
    pub keys_revision: String,
    /// Revision of each directory of `auth.keySecrets` in force, by Secret name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub key_secret_revisions: BTreeMap<String, String>,
    /// Key entries that are not accepted, by Secret and entry name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_keys: Vec<RefusedKey>,
    /// What the backend answered to the front door's own handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Handshake>,
    /// Why the last handshake failed, when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_error: Option<String>,
    /// When each key was last used since this front door started, by key id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys_last_used: BTreeMap<String, Timestamp>,
    /// Ids of the session keys in force, by slot. All absent: no session is sealed.
    #[serde(skip_serializing_if = "SessionKeyIds::is_empty")]
    pub session_keys: SessionKeyIds,
    /// Sessions that this front door owns.
    pub sessions: u64,
    /// Pods that own sessions which were asked for here, and that could not be reached. One that could be reached again,
    /// or was not asked for any more for some minutes, is not told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreachable_peers: Vec<UnreachablePeer>,
}

/// Ids of session keys, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionKeyIds {
    /// Opens, and does not seal yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Seals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Opens what was sealed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

impl SessionKeyIds {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the key with this id is in force, in whatever slot.
    pub fn has(&self, id: &str) -> bool {
        [&self.next, &self.current, &self.previous].into_iter().flatten().any(|other| other == id)
    }
}

/// A pod that could not be reached at its peer port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreachablePeer {
    /// UID of the pod.
    pub pod_uid: String,
    /// Its address.
    pub address: String,
    /// What went wrong.
    pub reason: Unreachable,
    /// Since when.
    pub since: Timestamp,
}

/// Why a pod could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unreachable {
    /// Nothing listens there, or it hangs up at once: the pod is gone, or its front door is starting or stopping.
    Refused,
    /// No answer at all: the pod is gone, or a network policy drops what is sent.
    TimedOut,
    /// Another error of the network.
    Failed,
    /// What answered could not prove to be that pod: another one has its address, or the session keys differ.
    Unproved,
    /// A reason that a newer front door knows.
    #[serde(other)]
    Other,
}

/// A key entry that the front door does not accept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedKey {
    /// Name of the Secret.
    pub secret: String,
    /// Name of the entry.
    pub entry: String,
    /// What is wrong with it, without any of its bytes.
    pub reason: String,
}

/// What an MCP handshake answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handshake {
    /// `serverInfo.name`.
    pub name: String,
    /// `serverInfo.version`.
    pub version: String,
    /// Protocol versions that the server admits, newest first.
    pub protocol_versions: Vec<String>,
    /// How many tools `tools/list` told of; absent where the server has none to list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<u32>,
}
