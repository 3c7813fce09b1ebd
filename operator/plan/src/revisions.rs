//! The revisions that every front door reports once it has read what the API server holds.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use mooring_contract::door_status::SessionKeyIds;
use mooring_contract::revision::revision;
use mooring_contract::{SessionKey, Slot};

use crate::declared::Declared;
use crate::observed::{KeysSecret, Observed, SessionSecret};
use crate::outcome::Revisions;

/// The revisions after the plan is applied.
pub(crate) fn revisions(config_map: &ConfigMap, declared: &Declared, observed: &Observed) -> Revisions {
    let config = config_map.data.iter().flatten().map(|(name, text)| (name.as_str(), text.as_bytes()));
    let secrets = observed.key_secrets.iter();
    Revisions {
        config: revision(config),
        keys: observed.keys.as_ref().filter(|keys| is_applied(declared, keys)).map(|keys| of_entries(&keys.data)),
        key_secrets: secrets.map(|(name, entries)| (name.clone(), of_entries(entries))).collect(),
        session_keys: observed.session.as_ref().map(session_keys).unwrap_or_default(),
    }
}

fn session_keys(session: &SessionSecret) -> SessionKeyIds {
    let [next, current, previous] = Slot::ALL.map(|slot| session.keys.get(&slot).map(SessionKey::id));
    SessionKeyIds { next, current, previous }
}

/// Whether another apply would leave the Secret as it is: others' entries are known only from what is stored.
fn is_applied(declared: &Declared, keys: &KeysSecret) -> bool {
    let there = declared.entries.iter().all(|(id, record)| keys.data.get(id) == Some(record));
    let dropped = keys.declared.values().filter(|id| !declared.entries.contains_key(*id));
    there && declared.ids == keys.declared && dropped.into_iter().all(|id| !keys.data.contains_key(id))
}

/// The revision of a directory with these entries.
pub(crate) fn of_entries(entries: &BTreeMap<String, Vec<u8>>) -> String {
    revision(entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())))
}
