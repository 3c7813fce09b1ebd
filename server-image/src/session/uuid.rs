//! UUIDs in their canonical spelling (RFC 9562 section 4): what pods are called, and what most servers call sessions. The
//! others, among them those in Python, leave the hyphens out.

use std::fmt::Write as _;

/// The groups of digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// The bytes of a UUID in lower case; `None` for any other spelling.
pub fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let mut digits = Vec::with_capacity(32);
    let mut groups = text.split(|byte| *byte == b'-');
    for length in GROUPS {
        digits.extend_from_slice(groups.next().filter(|group| group.len() == length)?);
    }
    if groups.next().is_some() {
        return None;
    }
    parse_bare(&digits)
}

/// The same without hyphens.
pub fn parse_bare(digits: &[u8]) -> Option<[u8; 16]> {
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = pair.iter().try_fold(0, |byte, letter| Some(byte << 4 | digit(*letter)?))?;
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

/// The spelling.
pub fn spell(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
    }
    text
}

/// The same without hyphens.
pub fn spell_bare(bytes: [u8; 16]) -> String {
    spell(bytes).replace('-', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_is_read_as_itself_alone() {
        let (text, bare) = ("0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10", "0b6f4d5e8f0e4f439e581b6a3f4c2d10");
        assert_eq!(parse(text.as_bytes()).map(spell).as_deref(), Some(text));
        assert_eq!(parse_bare(bare.as_bytes()).map(spell_bare).as_deref(), Some(bare));
        assert_eq!((parse(bare.as_bytes()), parse_bare(text.as_bytes())), (None, None));
        for none in [
            "",
            "0B6F4D5E-8F0E-4F43-9E58-1B6A3F4C2D10",
            "0B6F4D5E8F0E4F439E581B6A3F4C2D10",
            "0b6f4d5e-8f0e-4f43-9e581-b6a3f4c2d10",
            "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d1",
            "0b6f4d5e8f0e4f439e581b6a3f4c2d1",
            "0b6f4d5e8f0e4f439e581b6a3f4c2d100",
            "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10-",
            "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d1g",
            "0b6f4d5e8f0e4f439e581b6a3f4c2d1g",
            "{0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10}",
        ] {
            assert_eq!((parse(none.as_bytes()), parse_bare(none.as_bytes())), (None, None), "{none}");
        }
    }
}
