//! Revisions: a short digest of a mounted directory, made by the operator from what it wrote and by the front door
//! from what it read. Where they agree, the pod enforces what the API server holds.

use sha2::{Digest, Sha256};

use crate::key::hex;

/// The digest of a directory's entries, name and bytes, in any order: 16 hexadecimal digits.
///
/// It is made from data that may hold plain keys of somebody else, of which 64 bits of a SHA-256 tell nothing.
pub fn revision<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_unstable();
    let mut digest = Sha256::new();
    for (name, bytes) in entries {
        // Lengths keep ("a", "bc") and ("ab", "c") apart.
        digest.update((name.len() as u64).to_be_bytes());
        digest.update(name.as_bytes());
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    }
    hex(digest.finalize().get(..8).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_boundaries_do() {
        let pairs =
            |list: &'static [(&'static str, &'static str)]| list.iter().map(|(name, text)| (*name, text.as_bytes()));
        assert_eq!(revision(pairs(&[("a", "1"), ("b", "2")])), revision(pairs(&[("b", "2"), ("a", "1")])));
        assert_ne!(revision(pairs(&[("a", "bc")])), revision(pairs(&[("ab", "c")])));
        assert_eq!(revision([]), "e3b0c44298fc1c14");
    }
}
