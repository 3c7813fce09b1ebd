//! The keys in force: built from the entries of mounted directories, asked with what a request presents. Pure: it reads
//! no file and no clock. It never holds a key, only hashes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use mooring_contract::door_status::RefusedKey;
use mooring_contract::key::public_id;
use mooring_contract::{KeyEntry, KeyHash, KeyMetadata, KeyRecord};
use subtle::ConstantTimeEq as _;

use crate::directory::Entries;

/// Name under which refused entries of `<name>.keys` are told.
const OWN_SECRET: &str = "keys";
/// What a key that nobody has is compared with, so that an unknown id takes as long as a known one.
const NOBODY: [u8; 32] = [0; 32];

/// One key at rest.
#[derive(Debug)]
pub struct StoredKey {
    /// Public id of a record; Secret and entry name of others. What logs and `/status` call the key.
    pub id: String,
    /// The principal: the record's subject; for a plain key, its id.
    pub subject: String,
    hash: KeyHash,
    expires: Option<Timestamp>,
    last_used: Arc<AtomicI64>, // milliseconds since the epoch; 0 is never
}

impl StoredKey {
    /// When it stops to be accepted.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Whether it is past its expiry at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Notes a use.
    pub fn used(&self, now: Timestamp) {
        self.last_used.store(now.as_millisecond(), Ordering::Relaxed);
    }
}

/// All keys in force, and what was refused.
#[derive(Debug, Default)]
pub struct KeySet {
    by_id: HashMap<String, Arc<StoredKey>>,
    by_hash: HashMap<KeyHash, Arc<StoredKey>>,
    refused: Vec<RefusedKey>,
    /// Revision of the keys directory.
    pub revision: String,
    /// Revision of each directory of `auth.keySecrets`.
    pub secret_revisions: BTreeMap<String, String>,
}

impl KeySet {
    /// Builds the set. `own` holds records only; `secrets` records or plain keys. When a key was last used is carried
    /// over from `previous`.
    pub fn build(own: &Entries, secrets: &BTreeMap<String, Entries>, previous: &Self) -> Self {
        let mut set = Self {
            revision: own.revision(),
            secret_revisions: secrets.iter().map(|(name, entries)| (name.clone(), entries.revision())).collect(),
            ..Self::default()
        };
        for (entry, bytes) in own.iter() {
            match KeyEntry::parse(bytes) {
                Ok(KeyEntry::Record(record)) => set.add(entry.to_owned(), record, previous),
                Ok(KeyEntry::Plain { .. }) => set.refuse(OWN_SECRET, entry, "only hashed records belong here"),
                Err(error) => set.refuse(OWN_SECRET, entry, &error.to_string()),
            }
        }
        for (entry, reason) in own.unreadable() {
            set.refuse(OWN_SECRET, entry, reason);
        }
        for (secret, entries) in secrets {
            for (entry, reason) in entries.unreadable() {
                set.refuse(secret, entry, reason);
            }
            for (entry, bytes) in entries.iter() {
                let id = format!("{secret}/{entry}");
                match KeyEntry::parse(bytes) {
                    Ok(KeyEntry::Record(record)) => set.add(id, record, previous),
                    Ok(KeyEntry::Plain { key_hash }) => {
                        set.insert(id.clone(), id, key_hash, None, previous);
                    }
                    Err(error) => set.refuse(secret, entry, &error.to_string()),
                }
            }
        }
        set
    }

    fn add(&mut self, id: String, record: KeyRecord, previous: &Self) {
        let KeyMetadata { subject, expires, .. } = record.metadata;
        self.insert(id, subject, record.key_hash, expires, previous);
    }

    fn insert(&mut self, id: String, subject: String, hash: KeyHash, expires: Option<Timestamp>, previous: &Self) {
        let last_used = previous.by_id.get(&id).map(|key| Arc::clone(&key.last_used)).unwrap_or_default();
        let key = Arc::new(StoredKey { id, subject, hash, expires, last_used });
        // Where two entries hold the same key, the one that lives longer counts.
        let longer = |other: &Arc<StoredKey>| match (other.expires, expires) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(theirs), Some(ours)) => ours > theirs,
        };
        if self.by_hash.get(&key.hash).is_none_or(longer) {
            self.by_hash.insert(key.hash, Arc::clone(&key));
        }
        self.by_id.insert(key.id.clone(), key);
    }

    fn refuse(&mut self, secret: &str, entry: &str, reason: &str) {
        self.refused.push(RefusedKey { secret: secret.into(), entry: entry.into(), reason: reason.into() });
    }

    /// The key that was presented, if it is in force at `now`. A key of ours is found by its public id, others by their
    /// hash; then hashes are compared in constant time, for an unknown id too.
    pub fn find(&self, presented: &str, now: Timestamp) -> Option<&Arc<StoredKey>> {
        let presented_hash = KeyHash::of(presented);
        let by_id = public_id(presented).and_then(|id| self.by_id.get(id));
        let candidate = by_id.or_else(|| self.by_hash.get(&presented_hash));
        let stored = candidate.map_or(&NOBODY, |key| key.hash.as_bytes());
        let equal = bool::from(stored.ct_eq(presented_hash.as_bytes()));
        candidate.filter(|key| equal && !key.is_expired(now))
    }

    /// Whether a key that was accepted before is still in force at `now`.
    pub fn still_holds(&self, key: &StoredKey, now: Timestamp) -> bool {
        let same = |other: &&Arc<StoredKey>| other.hash == key.hash;
        let current = self.by_id.get(&key.id).filter(same).or_else(|| self.by_hash.get(&key.hash));
        current.is_some_and(|current| !current.is_expired(now))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// What was refused.
    pub fn refused(&self) -> &[RefusedKey] {
        &self.refused
    }

    /// When each key was last used.
    pub fn last_used(&self) -> BTreeMap<String, Timestamp> {
        let used = |key: &Arc<StoredKey>| match key.last_used.load(Ordering::Relaxed) {
            0 => None,
            milliseconds => Timestamp::from_millisecond(milliseconds).ok(),
        };
        self.by_id.iter().filter_map(|(id, key)| Some((id.clone(), used(key)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use mooring_contract::KeyMetadata;
    use mooring_contract::key::{ENTROPY, Key};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn record(key: &Key, subject: &str, expires: Option<&str>) -> Vec<u8> {
        let metadata = KeyMetadata {
            name: "laptop".into(),
            subject: subject.into(),
            created: at("2026-01-01T00:00:00Z"),
            expires: expires.map(at),
        };
        KeyRecord::of(key, metadata).to_json().unwrap().into_bytes()
    }

    const UUID: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";

    fn set() -> (KeySet, Key, Key, Key) {
        let (one, expiring, hashed) =
            (Key::from_entropy(&[1; ENTROPY]), Key::from_entropy(&[2; ENTROPY]), Key::from_entropy(&[3; ENTROPY]));
        let own = Entries::from([
            (one.id().to_owned(), record(&one, "s1", None)),
            (expiring.id().to_owned(), record(&expiring, "s2", Some("2027-01-01T00:00:00Z"))),
            ("plain".to_owned(), UUID.as_bytes().to_vec()),
            ("broken".to_owned(), b"{".to_vec()),
        ]);
        let vault = Entries::from([
            ("ci".to_owned(), format!("{UUID}\n").into_bytes()),
            ("weak".to_owned(), b"hunter2".to_vec()),
            ("hashed".to_owned(), record(&hashed, "s3", None)),
        ]);
        (KeySet::build(&own, &BTreeMap::from([("vault".to_owned(), vault)]), &KeySet::default()), one, expiring, hashed)
    }

    #[test]
    fn keys_are_found_and_others_are_not() {
        let (set, one, expiring, hashed) = set();
        let now = at("2026-12-31T23:59:59Z");
        let found = |text: &str, now| set.find(text, now).map(|key| key.id.clone());
        assert_eq!(found(one.expose(), now), Some(one.id().into()));
        assert_eq!(found(expiring.expose(), now), Some(expiring.id().into()));
        assert_eq!(found(expiring.expose(), at("2027-01-01T00:00:00Z")), None);
        assert_eq!(found(UUID, now), Some("vault/ci".into()));
        assert_eq!(found(hashed.expose(), now), Some("vault/hashed".into()));
        for wrong in [
            "",
            "hunter2",
            one.id(),
            &one.hash().to_string(),
            &one.expose()[..60],
            Key::from_entropy(&[9; ENTROPY]).expose(),
        ] {
            assert_eq!(found(wrong, now), None, "{wrong}");
        }
        // The right id with another secret.
        let mut entropy = [1; ENTROPY];
        entropy[39] = 0;
        let forged = Key::from_entropy(&entropy);
        assert_eq!(forged.id(), one.id());
        assert_eq!(found(forged.expose(), now), None);
        let reasons: Vec<_> = set.refused().iter().map(|refused| (&*refused.secret, &*refused.entry)).collect();
        assert_eq!(reasons, [("keys", "broken"), ("keys", "plain"), ("vault", "weak")]);
    }

    #[test]
    fn last_use_survives_a_reload_and_a_revoked_key_does_not() {
        let (first, one, expiring, _) = set();
        let now = at("2026-06-01T00:00:00Z");
        let key = Arc::clone(first.find(one.expose(), now).unwrap());
        key.used(now);
        let own = Entries::from([(one.id().to_owned(), record(&one, "s1", None))]);
        let second = KeySet::build(&own, &BTreeMap::new(), &first);
        assert_eq!(second.last_used(), BTreeMap::from([(one.id().to_owned(), now)]));
        assert!(second.still_holds(&key, now));
        let gone = first.find(expiring.expose(), now).unwrap();
        assert!(first.still_holds(gone, now));
        assert!(!first.still_holds(gone, at("2027-01-01T00:00:00Z")));
        assert!(!second.still_holds(gone, now));
    }
}
