//! The session keys in force: built from the entries of the mounted Secret, asked by the id that a token carries in clear.
//! Pure: it reads no file. From each key two subkeys are derived once, one that seals and one that proves.

use mooring_contract::door_status::{RefusedKey, SessionKeyIds};
use mooring_contract::key::hex;
use mooring_contract::{SessionKey, Slot};
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hmac;

use crate::directory::Entries;

/// Name under which refused entries are told.
const SECRET: &str = "session";

/// The public id of a key.
pub type KeyId = [u8; 4];

/// One key, ready for use.
pub struct InForce {
    /// Its public id.
    pub id: KeyId,
    /// Seals and opens tokens.
    pub seal: LessSafeKey,
    /// Proves to other pods that this one has the key.
    pub proof: hmac::Key,
}

impl std::fmt::Debug for InForce {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "InForce({})", hex(&self.id))
    }
}

impl InForce {
    /// `None` only where the cryptographic library refuses 32 bytes, which it does not.
    pub fn new(key: &SessionKey) -> Option<Self> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, key.expose());
        let seal = UnboundKey::new(&AES_256_GCM, hmac::sign(&root, b"mooring session token").as_ref()).ok()?;
        let proof = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, b"mooring peer proof").as_ref());
        Some(Self { id: key.id_bytes(), seal: LessSafeKey::new(seal), proof })
    }
}

/// The keys in force: one that seals, and those that open besides it.
#[derive(Debug)]
pub struct Ring {
    current: InForce,
    next: Option<InForce>,
    previous: Option<InForce>,
}

impl Ring {
    /// Builds the ring; `None` where no key is `current`. With it comes what was refused.
    pub fn build(entries: &Entries) -> (Option<Self>, Vec<RefusedKey>) {
        let refused_key =
            |entry: &str, reason: String| RefusedKey { secret: SECRET.to_owned(), entry: entry.to_owned(), reason };
        let unreadable = entries.unreadable().map(|(entry, reason)| refused_key(entry, reason.to_owned()));
        let mut refused: Vec<_> = unreadable.collect();
        let mut slot = |slot: Slot| {
            let parsed = SessionKey::parse(entries.get(slot.entry())?);
            let refuse = |error: mooring_contract::SessionKeyError| {
                refused.push(refused_key(slot.entry(), error.to_string()));
            };
            parsed.map_err(refuse).ok().as_ref().and_then(InForce::new)
        };
        let (next, current, previous) = (slot(Slot::Next), slot(Slot::Current), slot(Slot::Previous));
        (current.map(|current| Self { current, next, previous }), refused)
    }

    /// The key that seals.
    pub fn current(&self) -> &InForce {
        &self.current
    }

    /// The key with this id.
    pub fn find(&self, id: KeyId) -> Option<&InForce> {
        [Some(&self.current), self.next.as_ref(), self.previous.as_ref()].into_iter().flatten().find(|key| key.id == id)
    }

    /// The ids, by slot.
    pub fn ids(&self) -> SessionKeyIds {
        let id = |key: &InForce| hex(&key.id);
        SessionKeyIds {
            next: self.next.as_ref().map(id),
            current: Some(id(&self.current)),
            previous: self.previous.as_ref().map(id),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use mooring_contract::session_key::ENTROPY;

    use super::*;

    /// The entry of a key.
    pub fn entry(number: u8) -> String {
        let created = "2026-11-30T00:00:00Z".parse().unwrap();
        SessionKey::from_entropy(&[number; ENTROPY], created).to_json().unwrap()
    }

    /// A ring with these slots, each a key's number.
    pub fn ring(slots: &[(&str, u8)]) -> Ring {
        entries(slots).0.unwrap()
    }

    fn entries(slots: &[(&str, u8)]) -> (Option<Ring>, Vec<RefusedKey>) {
        let dir = tempfile::tempdir().unwrap();
        for (slot, number) in slots {
            std::fs::write(dir.path().join(slot), entry(*number)).unwrap();
        }
        std::fs::write(dir.path().join("status-token"), "t").unwrap();
        Ring::build(&crate::directory::read(dir.path()).unwrap())
    }

    #[test]
    fn all_slots_open_and_current_seals() {
        let ring = ring(&[("next", 3), ("current", 2), ("previous", 1)]);
        assert_eq!(ring.current().id, [2; 4]);
        for number in 1..=3 {
            assert_eq!(ring.find([number; 4]).unwrap().id, [number; 4]);
        }
        assert!(ring.find([4; 4]).is_none());
        let ids = ring.ids();
        assert!(ids.has("01010101") && ids.has("03030303") && ids.current.as_deref() == Some("02020202"));
    }

    #[test]
    fn without_a_current_key_there_is_no_ring_and_faults_are_told() {
        assert!(entries(&[]).0.is_none());
        assert!(entries(&[("next", 1)]).0.is_none());
        let broken =
            Entries::from([("current".to_owned(), entry(1).into_bytes()), ("next".to_owned(), b"{}".to_vec())]);
        let (ring, refused) = Ring::build(&broken);
        assert!(ring.is_some_and(|ring| ring.ids().next.is_none()));
        assert_eq!((refused[0].secret.as_str(), refused[0].entry.as_str()), ("session", "next"));
    }
}
