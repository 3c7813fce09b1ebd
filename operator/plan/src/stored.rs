//! Reading what is stored in our own Secrets. What somebody overwrote with something else is taken as absent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use mooring_contract::session_key::Slot;
use mooring_contract::{Key, SessionKey, mount};

use crate::mint;
use crate::names::{
    ANNOTATION_DECLARED, ANNOTATION_ROTATED, ANNOTATION_SETTLED, ANNOTATION_SUBJECT, ANNOTATION_SUBJECTS,
};
use crate::observed::{DeclaredKeySecret, KeysSecret, SessionSecret};

/// The entries of any Secret, with their bytes.
pub fn entries(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(name, bytes)| (name.clone(), bytes.0.clone())).collect()
}

impl KeysSecret {
    /// Reads `<name>.keys`.
    pub fn from_secret(secret: &Secret) -> Self {
        Self {
            uid: secret.uid().unwrap_or_default(),
            data: entries(secret),
            declared: annotation_map(secret, ANNOTATION_DECLARED),
            subjects: annotation_map(secret, ANNOTATION_SUBJECTS),
        }
    }
}

impl SessionSecret {
    /// Reads `<name>.session`.
    pub fn from_secret(secret: &Secret) -> Self {
        let entry = |slot: Slot| secret.data.as_ref().and_then(|data| data.get(slot.entry()));
        let key = |slot: Slot| SessionKey::parse(&entry(slot)?.0).ok().map(|key| (slot, key));
        Self {
            uid: secret.uid().unwrap_or_default(),
            resource_version: secret.resource_version().unwrap_or_default(),
            status_token: text(secret, mount::STATUS_TOKEN_FILE),
            keys: Slot::ALL.into_iter().filter_map(key).collect(),
            rotated: secret.annotations().get(ANNOTATION_ROTATED).cloned(),
            settled: secret.annotations().get(ANNOTATION_SETTLED).and_then(|time| time.parse().ok()),
        }
    }
}

impl DeclaredKeySecret {
    /// Reads `<name>.key.<key>`.
    pub fn from_secret(secret: &Secret) -> Self {
        Self {
            uid: secret.uid().unwrap_or_default(),
            key: Key::parse(text(secret, mint::KEY_ENTRY).trim_end()).ok(),
            subject: secret.annotations().get(ANNOTATION_SUBJECT).cloned().unwrap_or_default(),
            created: secret.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        }
    }
}

fn text(secret: &Secret, entry: &str) -> String {
    let bytes = secret.data.as_ref().and_then(|data| data.get(entry));
    bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
}

fn annotation_map(secret: &Secret, annotation: &str) -> BTreeMap<String, String> {
    let text = secret.annotations().get(annotation);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}
