//! One entry of a key Secret: a record with a hash, or, in a Secret that somebody else manages, a plain key.
//!
//! `<name>.keys` holds records only, each under its key's public id. A Secret of `auth.keySecrets` may hold records,
//! or plain texts, each under the key's name.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::key::{Key, KeyHash};

/// A key at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRecord {
    /// The hash of the whole key.
    pub key_hash: KeyHash,
    /// Whose it is and how long it lives.
    pub metadata: KeyMetadata,
}

/// What is known of a key besides its hash. An unknown field could be a restriction, so it refuses the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyMetadata {
    /// The name that people gave it.
    pub name: String,
    /// The principal: random at create, copied by a rotation.
    pub subject: String,
    /// When it was made.
    pub created: Timestamp,
    /// From when on it is refused; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// One entry of a key Secret, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEntry {
    /// A record with a hash.
    Record(KeyRecord),
    /// A plain key, of which only the hash is kept. Its entry name is its name and, prefixed, its subject.
    Plain {
        /// Its hash.
        key_hash: KeyHash,
    },
}

/// Why an entry is refused. No variant carries any of the entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Too short to be unguessable.
    #[error("it is shorter than 32 characters: use a longer random text, for example a UUID")]
    TooShort,
    /// Cannot be sent in a header.
    #[error("it has characters that a header cannot carry: use printable ASCII without spaces")]
    NotPrintable,
    /// A line of a file of variables: the key is what stands behind the `=`.
    #[error("it looks like NAME=value, as files of variables have it: write the value alone")]
    Assignment,
    /// Meant as a record, and none.
    #[error(
        "it is no key record: it needs keyHash (sha256: and 64 hexadecimal digits) and metadata with name, subject and created, and nothing else"
    )]
    BadRecord,
}

/// Fewest characters of a plain key.
pub const PLAIN_MINIMUM: usize = 32;

impl KeyEntry {
    /// Understands the bytes of one entry. A trailing newline, which files bring along, is not part of a plain key.
    pub fn parse(bytes: &[u8]) -> Result<Self, EntryError> {
        let text = std::str::from_utf8(bytes).map_err(|_| EntryError::NotPrintable)?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.starts_with('{') {
            return KeyRecord::parse(text).map(Self::Record);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EntryError::NotPrintable);
        }
        if is_assignment(text) {
            return Err(EntryError::Assignment);
        }
        if text.len() < PLAIN_MINIMUM {
            return Err(EntryError::TooShort);
        }
        Ok(Self::Plain { key_hash: KeyHash::of(text) })
    }
}

/// Whether a text begins with the name of a variable, in capitals as they mostly are. Base64 may end with `=`.
fn is_assignment(text: &str) -> bool {
    let belongs = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.split_once('=').is_some_and(|(name, value)| {
        name.len() > 2
            && name.bytes().all(belongs)
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && !value.trim_matches('=').is_empty()
    })
}

impl KeyRecord {
    /// The record of a key that was just made.
    pub fn of(key: &Key, metadata: KeyMetadata) -> Self {
        Self { key_hash: key.hash(), metadata }
    }

    /// Reads a record.
    pub fn parse(text: &str) -> Result<Self, EntryError> {
        serde_json::from_str(text).map_err(|_| EntryError::BadRecord)
    }

    /// The entry's text, with sorted keys.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&serde_json::to_value(self)?)
    }

    /// Whether the key is past its expiry at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.metadata.expires.is_some_and(|expires| expires <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ENTROPY;

    fn record() -> KeyRecord {
        let metadata = KeyMetadata {
            name: "laptop".into(),
            subject: "s1".into(),
            created: "2026-11-29T00:00:00Z".parse().unwrap(),
            expires: Some("2027-01-01T00:00:00Z".parse().unwrap()),
        };
        KeyRecord::of(&Key::from_entropy(&[1; ENTROPY]), metadata)
    }

    #[test]
    fn a_record_is_read_back_and_never_holds_the_key() {
        let text = record().to_json().unwrap();
        assert_eq!(KeyEntry::parse(text.as_bytes()).unwrap(), KeyEntry::Record(record()));
        assert!(!text.contains(Key::from_entropy(&[1; ENTROPY]).expose()));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn expiry_counts_from_its_instant_on() {
        assert!(!record().is_expired("2026-12-31T23:59:59Z".parse().unwrap()));
        assert!(record().is_expired("2027-01-01T00:00:00Z".parse().unwrap()));
    }

    #[test]
    fn entries_are_judged() {
        let uuid = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";
        let cases: &[(&str, Result<(), EntryError>)] = &[
            (uuid, Ok(())),
            ("0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10\n", Ok(())),
            ("0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10\r\n", Ok(())),
            ("hunter2", Err(EntryError::TooShort)),
            ("", Err(EntryError::TooShort)),
            ("0b6f4d5e-8f0e-4f43-9e58 1b6a3f4c2d10", Err(EntryError::NotPrintable)),
            ("schlüssel-schlüssel-schlüssel-schlüssel", Err(EntryError::NotPrintable)),
            ("MOORING_API_KEY=0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10", Err(EntryError::Assignment)),
            ("KEY2=hunter2", Err(EntryError::Assignment)),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567==", Ok(())),
            ("aB=DEFGHIJKLMNOPQRSTUVWXYZ234567=", Ok(())),
            ("=0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10", Ok(())),
            ("{}", Err(EntryError::BadRecord)),
            (
                r#"{"keyHash":"sha256:00","metadata":{"name":"a","subject":"b","created":"2026-11-29T00:00:00Z"}}"#,
                Err(EntryError::BadRecord),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(&KeyEntry::parse(text.as_bytes()).map(|_| ()), expected, "{text}");
        }
        assert_eq!(KeyEntry::parse(uuid.as_bytes()), KeyEntry::parse(format!("{uuid}\n").as_bytes()));
    }

    #[test]
    fn an_unknown_restriction_refuses_the_record() {
        let mut value = serde_json::to_value(record()).unwrap();
        value["metadata"]["onlyOnSundays"] = true.into();
        assert_eq!(KeyRecord::parse(&value.to_string()), Err(EntryError::BadRecord));
    }
}
