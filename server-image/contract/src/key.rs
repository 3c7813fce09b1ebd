//! API keys: `mk_<id>_<secret><checksum>`. The id is public and finds the record; the secret has 256 random bits; the
//! checksum tells a mistyped key from a wrong one, and lets secret scanners find leaked keys without false alarms.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Random bytes that [`Key::from_entropy`] takes: 8 for the id, 32 for the secret.
pub const ENTROPY: usize = 40;
const ID_LENGTH: usize = 11; // 62^11 > 2^64
const SECRET_LENGTH: usize = 43; // 62^43 > 2^256
const CHECKSUM_LENGTH: usize = 6; // 62^6 > 2^32
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// One API key, in plain text. It has no `Display` and its `Debug` shows the public id alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    text: String,
}

/// Why a text is no key of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It does not have the form of a key.
    #[error("this is not a Mooring key: a key looks like mk_<id>_<secret>")]
    Form,
    /// It has the form, and the checksum does not fit.
    #[error("this key was mistyped or cut off: its checksum does not fit")]
    Checksum,
}

impl Key {
    /// Makes a key of random bytes. The caller brings the randomness.
    pub fn from_entropy(entropy: &[u8; ENTROPY]) -> Self {
        let (id, secret) = entropy.split_at(8);
        let body = format!("mk_{}_{}", base62(id, ID_LENGTH), base62(secret, SECRET_LENGTH));
        let text = format!("{body}{}", checksum(&body));
        Self { text }
    }

    /// Reads a key, checking form and checksum.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let rest = text.strip_prefix("mk_").ok_or(KeyError::Form)?;
        let (id, secret) = rest.split_once('_').ok_or(KeyError::Form)?;
        let alphanumeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if id.len() != ID_LENGTH
            || secret.len() != SECRET_LENGTH + CHECKSUM_LENGTH
            || !alphanumeric(id)
            || !alphanumeric(secret)
        {
            return Err(KeyError::Form);
        }
        let (body, found) = text.split_at(text.len() - CHECKSUM_LENGTH);
        if checksum(body) != found {
            return Err(KeyError::Checksum);
        }
        Ok(Self { text: text.to_owned() })
    }

    /// The public id, under which the record is stored.
    pub fn id(&self) -> &str {
        public_id(&self.text).unwrap_or_default()
    }

    /// Six characters of the public id, for people to tell keys apart.
    pub fn hint(&self) -> &str {
        hint(self.id())
    }

    /// What is stored at rest.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.text)
    }

    /// The key itself. The only way out; whoever calls it must not log it.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({})", self.id())
    }
}

/// The public id in what may be a key. Whether it is one, its hash tells.
pub fn public_id(text: &str) -> Option<&str> {
    let (id, _) = text.strip_prefix("mk_")?.split_once('_')?;
    (id.len() == ID_LENGTH).then_some(id)
}

/// Six characters of a public id.
pub fn hint(id: &str) -> &str {
    id.get(..6).unwrap_or(id)
}

/// The SHA-256 of a whole key, in text `sha256:` and 64 hexadecimal digits. One hash suffices, because a key is random and
/// cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyHash([u8; 32]);

/// Why a text is no hash of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key's hash is sha256: and 64 lower-case hexadecimal digits")]
pub struct NoKeyHash;

impl KeyHash {
    /// The hash of a key, of ours or of others.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for KeyHash {
    type Err = NoKeyHash;

    fn from_str(text: &str) -> Result<Self, NoKeyHash> {
        let digits = text.strip_prefix("sha256:").ok_or(NoKeyHash)?.as_bytes();
        let half = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(NoKeyHash),
        };
        let (pairs, []) = digits.as_chunks() else { return Err(NoKeyHash) };
        let bytes: Result<Vec<u8>, NoKeyHash> =
            pairs.iter().map(|[high, low]| Ok(half(*high)? << 4 | half(*low)?)).collect();
        bytes?.try_into().map(Self).map_err(|_| NoKeyHash)
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for KeyHash {
    type Error = NoKeyHash;

    fn try_from(text: String) -> Result<Self, NoKeyHash> {
        text.parse()
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16);
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).filter_map(digit).collect()
}

/// A big-endian number in base 62, padded to `length` digits: the same bytes have one spelling only.
pub fn base62(bytes: &[u8], length: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits: Vec<u8> = (0..length)
        .map(|_| {
            let mut remainder = 0_u32;
            for byte in &mut number {
                let value = remainder * 256 + u32::from(*byte);
                *byte = u8::try_from(value / 62).unwrap_or_default(); // remainder < 62, so the quotient is < 256
                remainder = value % 62;
            }
            ALPHABET.get(remainder as usize).copied().unwrap_or(b'0')
        })
        .collect();
    digits.reverse();
    digits.into_iter().map(char::from).collect()
}

fn checksum(body: &str) -> String {
    base62(Sha256::digest(body.as_bytes()).get(..4).unwrap_or_default(), CHECKSUM_LENGTH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_has_the_documented_form() {
        let key = Key::from_entropy(&[7; ENTROPY]);
        insta::assert_snapshot!(key.expose());
        assert_eq!(key.hint(), &key.id()[..6]);
        assert_eq!(format!("{key:?}"), format!("Key({})", key.id()));
    }

    #[test]
    fn what_is_no_key_is_told_from_what_was_mistyped() {
        let key = Key::from_entropy(&[9; ENTROPY]);
        for text in ["", "mk_", "mk__", "mk_short_secret", "sk_live_1234", "mk_ünïcödé_x"] {
            assert_eq!(Key::parse(text), Err(KeyError::Form), "{text}");
        }
        let mut mistyped = key.expose().to_owned();
        let last = if mistyped.ends_with('0') { "1" } else { "0" };
        mistyped.replace_range(mistyped.len() - 1.., last);
        assert_eq!(Key::parse(&mistyped), Err(KeyError::Checksum));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let hash = Key::from_entropy(&[7; ENTROPY]).hash().to_string();
        let (shorter, longer) = (&hash[..hash.len() - 1], format!("{hash}0"));
        let (upper, other) = (hash.to_uppercase(), hash.replace("sha256", "sha512"));
        for text in ["", "sha256:", "sha256:00", shorter, &longer, &upper, &other, &hash.replace(':', "")] {
            assert_eq!(text.parse::<KeyHash>(), Err(NoKeyHash), "{text}");
        }
        // FIPS 180-2, appendix B.1.
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of("abc").to_string(), abc);
    }

    proptest! {
        #[test]
        fn every_hash_is_read_back(key in ".*") {
            let hash = KeyHash::of(&key);
            prop_assert_eq!(hash.to_string().parse(), Ok(hash));
        }

        #[test]
        fn every_key_is_read_back(entropy in prop::array::uniform32(any::<u8>()), id in prop::array::uniform8(any::<u8>())) {
            let bytes: Vec<u8> = id.iter().chain(&entropy).copied().collect();
            let key = Key::from_entropy(bytes.as_slice().try_into().unwrap());
            let read = Key::parse(key.expose()).unwrap();
            prop_assert_eq!(read.id(), key.id());
            prop_assert_eq!(read.hash(), key.hash());
            prop_assert_eq!(key.expose().len(), 3 + ID_LENGTH + 1 + SECRET_LENGTH + CHECKSUM_LENGTH);
        }

        #[test]
        fn different_secrets_have_different_spellings(a in prop::array::uniform32(any::<u8>()), b in prop::array::uniform32(any::<u8>())) {
            prop_assert_eq!(a == b, base62(&a, SECRET_LENGTH) == base62(&b, SECRET_LENGTH));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            let _ = Key::parse(&text);
        }
    }
}
