//! Bytes as text of digits and letters, in one spelling only: blocks of up to 32 bytes, each a big-endian number in base
//! 62 of fixed length. What no block encodes to is refused, so that no two texts mean the same bytes.

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Bytes of a whole block: 62^43 > 2^256, with less waste than any other size below 64.
const BYTES: usize = 32;
/// Digits of a whole block.
const DIGITS: usize = digits(BYTES);

/// A block as a number, most significant limb first.
type Number = [u32; BYTES / 4];

/// Digits of a block of so many bytes, up to [`BYTES`]: the least with 62^digits >= 256^bytes. log2(62) is 5.9542.
const fn digits(bytes: usize) -> usize {
    (bytes * 8 * 1000).div_ceil(5954)
}

/// Encodes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(digits(bytes.len()) + 1);
    for block in bytes.chunks(BYTES) {
        let mut number = number(block);
        let begin = text.len();
        for _ in 0..digits(block.len()) {
            let digit = divide(&mut number);
            text.push(ALPHABET.get(digit).copied().unwrap_or(b'0'));
        }
        if let Some(block) = text.get_mut(begin..) {
            block.reverse();
        }
    }
    String::from_utf8(text).unwrap_or_default() // ASCII
}

/// Decodes; `None` where [`encode`] would never write this.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for block in text.chunks(DIGITS) {
        let length = (1..=BYTES).find(|length| digits(*length) == block.len())?;
        let mut number = Number::default();
        for letter in block {
            multiply(&mut number, digit(*letter)?)?;
        }
        let whole: Vec<u8> = number.iter().flat_map(|limb| limb.to_be_bytes()).collect();
        let (above, block) = whole.split_at_checked(BYTES - length)?;
        if above.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(block);
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u32> {
    Some(match letter {
        b'0'..=b'9' => u32::from(letter - b'0'),
        b'A'..=b'Z' => u32::from(letter - b'A') + 10,
        b'a'..=b'z' => u32::from(letter - b'a') + 36,
        _ => return None,
    })
}

fn number(block: &[u8]) -> Number {
    let mut number = Number::default();
    for (limb, bytes) in number.iter_mut().rev().zip(block.rchunks(4)) {
        *limb = bytes.iter().fold(0, |limb, byte| (limb << 8) | u32::from(*byte));
    }
    number
}

/// Divides by 62 in place; the remainder.
fn divide(number: &mut Number) -> usize {
    let mut remainder = 0;
    for limb in number {
        let (quotient, rest) =
            (((remainder << 32) | u64::from(*limb)) / 62, ((remainder << 32) | u64::from(*limb)) % 62);
        *limb = low(quotient);
        remainder = rest;
    }
    usize::try_from(remainder).unwrap_or_default()
}

/// Multiplies by 62 in place and adds; `None` where the number has no room for it.
fn multiply(number: &mut Number, digit: u32) -> Option<()> {
    let mut carry = u64::from(digit);
    for limb in number.iter_mut().rev() {
        let product = u64::from(*limb) * 62 + carry;
        *limb = low(product);
        carry = product >> 32;
    }
    (carry == 0).then_some(())
}

fn low(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_length_of_a_block_has_its_own_number_of_digits() {
        let lengths: Vec<_> = (1..=BYTES).map(digits).collect();
        assert!(lengths.is_sorted_by(|a, b| a < b));
        assert_eq!((digits(1), digits(16), DIGITS), (2, 22, 43));
    }

    #[test]
    fn known_texts() {
        for (bytes, text) in [
            (&[][..], ""),
            (&[0], "00"),
            (&[61], "0z"),
            (&[62], "10"),
            (&[255], "47"),
            (&[0, 0], "000"),
            (&[255, 255], "H31"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes));
        }
        let largest = encode(&[255; BYTES]);
        assert_eq!(decode(largest.as_bytes()), Some(vec![255; BYTES]));
        for none in ["0", "48", "zz", "0-", "0000", "H32", "é0", &"z".repeat(DIGITS)] {
            assert_eq!(decode(none.as_bytes()), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn there_is_one_spelling(text in "[0-9A-Za-z]{0,140}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
