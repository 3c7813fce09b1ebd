//! The keys that seal sessions, at rest in the Secret `<name>.session`: up to three, each in a slot of its own. Every slot
//! opens what was sealed with its key; `current` alone seals.
//!
//! A rotation puts a new key into `next`, waits until every pod reports it, makes it `current` (and the old one
//! `previous`), and takes `previous` away when the last session sealed with it is past `sessions.maxAge`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::key::hex;

/// Random bytes that [`SessionKey::from_entropy`] takes: 4 for the id, 32 for the secret.
pub const ENTROPY: usize = 36;

/// Where a key stands in its life. It is also the name of the Secret's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Distributed, but not used yet.
    Next,
    /// Seals.
    Current,
    /// Used before.
    Previous,
}

impl Slot {
    /// All slots, youngest first.
    pub const ALL: [Self; 3] = [Self::Next, Self::Current, Self::Previous];

    /// The Secret's entry.
    pub const fn entry(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Current => "current",
            Self::Previous => "previous",
        }
    }
}

/// One key. Its `Debug` shows the public id alone.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey {
    id: [u8; 4],
    secret: [u8; 32],
    created: Timestamp,
}

/// Why an entry is no session key. No variant carries any of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionKeyError {
    /// Not the JSON of a key.
    #[error("it is no session key: it needs id (8 hexadecimal digits), key (32 bytes in base64) and created")]
    Form,
}

#[derive(Serialize, Deserialize)]
struct Record {
    id: String,
    key: String,
    created: Timestamp,
}

impl SessionKey {
    /// Makes a key of random bytes. The caller brings the randomness.
    pub fn from_entropy(entropy: &[u8; ENTROPY], created: Timestamp) -> Self {
        let (mut id, mut secret) = ([0; 4], [0; 32]);
        let (first, rest) = entropy.split_at(4);
        id.copy_from_slice(first);
        secret.copy_from_slice(rest);
        Self { id, secret, created }
    }

    /// Reads an entry. Unknown fields are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, SessionKeyError> {
        let record: Record = serde_json::from_slice(bytes).map_err(|_| SessionKeyError::Form)?;
        let id = u32::from_str_radix(&record.id, 16).map_err(|_| SessionKeyError::Form)?.to_be_bytes();
        let secret = STANDARD.decode(&record.key).ok().and_then(|bytes| bytes.try_into().ok());
        let key = Self { id, secret: secret.ok_or(SessionKeyError::Form)?, created: record.created };
        // One spelling only: what `/status` reports is compared with what stands here.
        if key.id() == record.id { Ok(key) } else { Err(SessionKeyError::Form) }
    }

    /// The entry's text, with sorted keys.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let record = Record { id: self.id(), key: STANDARD.encode(self.secret), created: self.created };
        serde_json::to_string(&serde_json::to_value(record)?)
    }

    /// The public id: 8 hexadecimal digits.
    pub fn id(&self) -> String {
        hex(&self.id)
    }

    /// The public id's bytes.
    pub fn id_bytes(&self) -> [u8; 4] {
        self.id
    }

    /// The key itself. The only way out; whoever calls it must not log it.
    pub fn expose(&self) -> &[u8; 32] {
        &self.secret
    }

    /// When it was made.
    pub fn created(&self) -> Timestamp {
        self.created
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SessionKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SessionKey {
        SessionKey::from_entropy(
            &std::array::from_fn(|place| u8::try_from(place).unwrap()),
            "2026-11-30T00:00:00Z".parse().unwrap(),
        )
    }

    #[test]
    fn a_key_is_read_back_and_its_debug_shows_the_id_alone() {
        let text = key().to_json().unwrap();
        assert_eq!(SessionKey::parse(text.as_bytes()), Ok(key()));
        insta::assert_snapshot!(text);
        assert_eq!(format!("{:?}", key()), "SessionKey(00010203)");
    }

    #[test]
    fn what_is_none_is_refused() {
        let good = |id: &str, key: &str| format!(r#"{{"id":"{id}","key":"{key}","created":"2026-11-30T00:00:00Z"}}"#);
        let secret = STANDARD.encode([7; 32]);
        assert!(SessionKey::parse(good("0a0b0c0d", &secret).as_bytes()).is_ok());
        let cases = [
            String::new(),
            "{}".to_owned(),
            good("0A0B0C0D", &secret),
            good("a0b0c0d", &secret),
            good("+a0b0c0d", &secret),
            good("0a0b0c0d0", &secret),
            good("0a0b0c0g", &secret),
            good("0a0b0c0d", &STANDARD.encode([7; 31])),
            good("0a0b0c0d", &STANDARD.encode([7; 33])),
            good("0a0b0c0d", secret.trim_end_matches('=')),
        ];
        for text in cases {
            assert_eq!(SessionKey::parse(text.as_bytes()), Err(SessionKeyError::Form), "{text}");
        }
    }
}
