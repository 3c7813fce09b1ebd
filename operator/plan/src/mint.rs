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

use crate::names::{self, ANNOTATION_ROTATED, ANNOTATION_SETTLED, ANNOTATION_SUBJECT, LABEL_KEY};
use crate::outcome::KeyStep;
use crate::rotation;

/// The entry of `<name>.key.<key>` which holds the key's text.
pub const KEY_ENTRY: &str = "key";

/// `<name>.session`, with the bearer token for `/status` and the key that seals sessions.
pub fn session_secret(server: &McpServer, status_token: &str, key: &SessionKey) -> Result<Secret, serde_json::Error> {
    let data = BTreeMap::from([
        (mount::STATUS_TOKEN_FILE.to_owned(), bytes(status_token)),
        (Slot::Current.entry().to_owned(), bytes(&key.to_json()?)),
    ]);
    let mut metadata = names::metadata(server, names::session(&server.name_any()));
    let heeded = rotation::request(server).map(|request| (ANNOTATION_ROTATED.to_owned(), request.clone()));
    metadata.annotations = heeded.map(|heeded| BTreeMap::from([heeded]));
    Ok(Secret { metadata, data: Some(data), ..Secret::default() })
}

/// A JSON merge patch (RFC 7386) that takes a step in the life of session keys, as long as the Secret is as it was seen.
/// `made` is a new key, for the steps that need one; `now` is when it is taken.
pub fn session_keys_patch(
    server: &McpServer,
    (uid, resource_version): (&str, &str),
    step: &KeyStep,
    made: &SessionKey,
    now: Timestamp,
) -> Result<Value, serde_json::Error> {
    let [next, current, previous] = Slot::ALL.map(Slot::entry);
    let entry = |key: &SessionKey| Ok::<_, serde_json::Error>(bytes(&key.to_json()?));
    let heeded = json!({ANNOTATION_ROTATED: rotation::request(server)});
    let (data, annotations) = match step {
        KeyStep::First => (json!({current: entry(made)?}), heeded),
        KeyStep::Prepare => (json!({next: entry(made)?}), heeded),
        KeyStep::Advance { next: key, current: replaced } => {
            (json!({next: null, current: entry(key)?, previous: entry(replaced)?}), json!({ANNOTATION_SETTLED: null}))
        }
        KeyStep::Settle => (json!({}), json!({ANNOTATION_SETTLED: now})),
        KeyStep::Retire => (json!({previous: null}), json!({ANNOTATION_SETTLED: null})),
    };
    let metadata = json!({"uid": uid, "resourceVersion": resource_version, "annotations": annotations});
    Ok(json!({"metadata": metadata, "data": data}))
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
