//! The keys in `auth.keys`: which to mint, which to revoke, and what `<name>.keys` holds of them.
//!
//! | what happened | what follows |
//! |---|---|
//! | declared, no Secret `<name>.key.<key>` yet, or somebody deleted it | mint, with the principal of its predecessor |
//! | somebody deleted the entry in `<name>.keys` | revoke the Secret; the next pass mints |
//! | somebody put something else into the Secret | the same |
//! | somebody deleted `<name>.keys` | its declared entries are applied again; all others have ended |
//! | no longer declared | revoke the Secret; the entry goes with the next apply |
//!
//! The annotation `mooring.dev/declared` tells an entry that was deleted from one that was never applied.

use std::collections::BTreeMap;

use mooring_api::McpServer;
use mooring_api::spec::DeclaredKey;
use mooring_contract::{Key, KeyMetadata, KeyRecord};

use crate::observed::{DeclaredKeySecret, KeysSecret, Observed};
use crate::outcome::{Mint, Revoke};

/// What follows for the declared keys.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    /// To mint.
    pub(crate) mint: Vec<Mint>,
    /// To revoke.
    pub(crate) revoke: Vec<Revoke>,
    /// Entries of `<name>.keys`: public id to record.
    pub(crate) entries: BTreeMap<String, Vec<u8>>,
    /// Value of `mooring.dev/declared`: name to public id.
    pub(crate) ids: BTreeMap<String, String>,
    /// Value of `mooring.dev/subjects`: name to principal.
    pub(crate) subjects: BTreeMap<String, String>,
}

/// Decides it.
pub(crate) fn declared(server: &McpServer, observed: &Observed) -> Result<Declared, serde_json::Error> {
    let nothing = KeysSecret::default();
    let keys = observed.keys.as_ref().unwrap_or(&nothing);
    let wanted: BTreeMap<&str, &DeclaredKey> =
        server.spec.auth.iter().flat_map(|auth| &auth.keys).map(|key| (key.name.as_str(), key)).collect();
    let mut declared = Declared::default();
    for (name, wanted) in &wanted {
        match observed.declared_keys.get(*name) {
            None => declared.make(name, keys),
            Some(stored) => match &stored.key {
                Some(key) if !entry_was_deleted(name, key, keys) => declared.keep(wanted, stored, key, keys)?,
                _ => declared.rotate(name, stored, keys),
            },
        }
    }
    let dropped = observed.declared_keys.iter().filter(|(name, _)| !wanted.contains_key(name.as_str()));
    declared.revoke.extend(dropped.map(|(name, stored)| Revoke { key: name.clone(), uid: stored.uid.clone() }));
    Ok(declared)
}

fn entry_was_deleted(name: &str, key: &Key, keys: &KeysSecret) -> bool {
    keys.declared.get(name).is_some_and(|id| id == key.id()) && !keys.data.contains_key(key.id())
}

impl Declared {
    fn make(&mut self, name: &str, keys: &KeysSecret) {
        self.mint.push(Mint::DeclaredKey { key: name.to_owned(), subject: keys.subjects.get(name).cloned() });
        self.remember(name, keys);
    }

    fn rotate(&mut self, name: &str, stored: &DeclaredKeySecret, keys: &KeysSecret) {
        self.revoke.push(Revoke { key: name.to_owned(), uid: stored.uid.clone() });
        self.remember(name, keys);
    }

    /// Until the new key is there, the annotations keep what is known of the old one.
    fn remember(&mut self, name: &str, keys: &KeysSecret) {
        self.ids.extend(keys.declared.get_key_value(name).map(|(name, id)| (name.clone(), id.clone())));
        self.subjects.extend(keys.subjects.get_key_value(name).map(|(name, subject)| (name.clone(), subject.clone())));
    }

    fn keep(
        &mut self,
        wanted: &DeclaredKey,
        stored: &DeclaredKeySecret,
        key: &Key,
        keys: &KeysSecret,
    ) -> Result<(), serde_json::Error> {
        let subject = subject(&wanted.name, stored, key, keys);
        let metadata = KeyMetadata {
            name: wanted.name.clone(),
            subject: subject.clone(),
            created: stored.created,
            expires: wanted.expires.as_ref().map(|time| time.0),
        };
        self.entries.insert(key.id().to_owned(), KeyRecord::of(key, metadata).to_json()?.into_bytes());
        self.ids.insert(wanted.name.clone(), key.id().to_owned());
        self.subjects.insert(wanted.name.clone(), subject);
        Ok(())
    }
}

/// The principal is in the Secret. Where somebody removed it there, the last one that was applied counts, and then the
/// key's own id: two keys must never share one by accident.
fn subject(name: &str, stored: &DeclaredKeySecret, key: &Key, keys: &KeysSecret) -> String {
    if !stored.subject.is_empty() {
        return stored.subject.clone();
    }
    keys.subjects.get(name).cloned().unwrap_or_else(|| key.id().to_owned())
}
