//! Secrets with random content, made once and never applied. The randomness is given: the same bytes make the same
//! Secret.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use mooring_api::McpServer;
use mooring_contract::session_key::Slot;
use mooring_contract::{Key, KeyMetadata, KeyRecord, SessionKey, mount};
use serde_json::{Value, json};

use crate::names::{self, ANNOTATION_SUBJECT, LABEL_KEY};

/// The entry of `<name>.key.<key>` which holds the key's text.
pub const KEY_ENTRY: &str = "key";

/// `<name>.session`, with the bearer token for `/status` and the key that seals sessions.
pub fn session_secret(server: &McpServer, status_token: &str, key: &SessionKey) -> Result<Secret, serde_json::Error> {
    let data = BTreeMap::from([
        (mount::STATUS_TOKEN_FILE.to_owned(), bytes(status_token)),
        (Slot::Current.entry().to_owned(), bytes(&key.to_json()?)),
    ]);
    Ok(Secret {
        metadata: names::metadata(server, names::session(&server.name_any())),
        data: Some(data),
        ..Secret::default()
    })
}

/// A JSON merge patch (RFC 7386) that puts a key into `<name>.session`, as long as that is as it was seen.
pub fn session_key_patch(uid: &str, resource_version: &str, key: &SessionKey) -> Result<Value, serde_json::Error> {
    Ok(json!({
        "metadata": {"uid": uid, "resourceVersion": resource_version},
        "data": {Slot::Current.entry(): bytes(&key.to_json()?)},
    }))
}

/// `<name>.key.<key>`, with the key's text for the workload that uses it.
pub fn declared_key_secret(server: &McpServer, key_name: &str, key: &Key, subject: &str) -> Secret {
    let mut metadata = names::metadata(server, names::declared_key(&server.name_any(), key_name));
    metadata.labels.get_or_insert_default().insert(LABEL_KEY.to_owned(), key_name.to_owned());
    metadata.annotations = Some(BTreeMap::from([(ANNOTATION_SUBJECT.to_owned(), subject.to_owned())]));
    Secret { metadata, data: Some(BTreeMap::from([(KEY_ENTRY.to_owned(), bytes(key.expose()))])), ..Secret::default() }
}

/// The entry of `<name>.keys` for a key that was just made: its public id, and the record.
pub fn key_record(
    key: &Key,
    name: &str,
    subject: &str,
    created: Timestamp,
    expires: Option<Timestamp>,
) -> (String, KeyRecord) {
    let metadata = KeyMetadata { name: name.to_owned(), subject: subject.to_owned(), created, expires };
    (key.id().to_owned(), KeyRecord::of(key, metadata))
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}
