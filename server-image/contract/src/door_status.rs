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
