//! The byte stream of one HTTP/2 connection, followed just closely enough to know whether a head is on its way (RFC 9113
//! sections 4.1, 6.2 and 6.10). It does no I/O, keeps no bytes and refuses nothing: frames that are malformed, or not in
//! order, are for the HTTP library, which ends their connection.

/// Bytes of a frame before its payload.
const PREFIX: u8 = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;

/// Where the stream stands, behind the first line of the connection preface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// How many of a frame's first bytes have arrived.
    prefix: u8,
    /// How much of its payload is to come.
    payload: usize,
    kind: u8,
    flags: u8,
    /// Whether something has begun that is not whole with the frame.
    open: bool,
}

impl Default for Frames {
    /// The connection preface is whole with the first frame (section 3.4).
    fn default() -> Self {
        Self { prefix: 0, payload: 0, kind: 0, flags: 0, open: true }
    }
}

impl Frames {
    /// Follows the next bytes. Tells whether at any point of them no head was on its way: one that is on its way behind
    /// them has then begun within them.
    pub fn follow(&mut self, mut bytes: &[u8]) -> bool {
        let mut between = false;
        while let Some((first, rest)) = bytes.split_first() {
            if self.prefix < PREFIX {
                self.begin(*first);
                bytes = rest;
            } else {
                let skipped = self.payload.min(bytes.len());
                self.payload -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
            }
            if self.prefix == PREFIX && self.payload == 0 {
                self.end();
            }
            between |= !self.is_in_head();
        }
        between
    }

    /// Whether a head has begun that is not whole. What a frame is that has just begun is not known, so it may be one.
    pub fn is_in_head(&self) -> bool {
        self.open || (1..PREFIX).contains(&self.prefix)
    }

    fn begin(&mut self, byte: u8) {
        match self.prefix {
            0..3 => self.payload = (self.payload << 8) | usize::from(byte),
            3 => self.kind = byte,
            4 => self.flags = byte,
            _ => {} // whose stream it is
        }
        self.prefix += 1;
        self.open |= self.prefix == PREFIX && self.is_of_head();
    }

    /// A frame of another kind within a head is an error of the connection.
    fn end(&mut self) {
        self.prefix = 0;
        self.open = self.is_of_head() && self.flags & END_HEADERS == 0;
    }

    fn is_of_head(&self) -> bool {
        matches!(self.kind, HEADERS | CONTINUATION)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, length: u32) -> Vec<u8> {
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.extend(std::iter::repeat_n(0xa5, length.try_into().unwrap()));
        bytes
    }

    /// Whether a head is on its way behind each byte.
    fn standings(bytes: &[u8]) -> Vec<bool> {
        let mut frames = Frames::default();
        let mut standing = |byte: &u8| {
            let between = frames.follow(&[*byte]);
            assert_eq!(between, !frames.is_in_head());
            frames.is_in_head()
        };
        bytes.iter().map(&mut standing).collect()
    }

    #[test]
    fn a_head_begins_with_its_first_byte_and_ends_with_its_last() {
        const SETTINGS: u8 = 0x4;
        let (data, ping, unknown) = (frame(0, 1, 5), frame(6, END_HEADERS, 8), frame(0xee, END_HEADERS, 3));
        let whole = [
            frame(HEADERS, END_HEADERS, 7),
            frame(HEADERS, END_HEADERS | 0x8 | 0x20 | 0x1, 40), // padded, with priority, and the end of its stream
            frame(HEADERS, END_HEADERS, 0),
            [frame(HEADERS, 0, 7), frame(CONTINUATION, END_HEADERS, 4)].concat(),
            [frame(HEADERS, 0x1, 0), frame(CONTINUATION, 0, 0), frame(CONTINUATION, END_HEADERS, 0)].concat(),
            [frame(HEADERS, 0, 300), frame(CONTINUATION, 0x1, 70_000), frame(CONTINUATION, END_HEADERS, 1)].concat(),
        ];
        let settings = frame(SETTINGS, 0, 6);
        for head in whole {
            let bytes = [&settings[..], &data, &head, &ping, &unknown, &head].concat();
            let standings = standings(&bytes);
            let mut expected = Vec::new();
            expected.extend([vec![true; 14], vec![false]].concat()); // the preface
            let other = |length: usize| [vec![true; 8], vec![false; length - 8]].concat();
            let head = [vec![true; head.len() - 1], vec![false]].concat();
            expected.extend([other(data.len()), head.clone(), other(ping.len()), other(unknown.len()), head].concat());
            assert_eq!(standings, expected);
        }
    }

    #[test]
    fn a_frame_out_of_order_ends_what_it_interrupts() {
        for (kind, expected) in [(0, false), (HEADERS, true), (CONTINUATION, true)] {
            let bytes = [frame(HEADERS, 0, 2), frame(kind, 0, 3)].concat();
            assert!(standings(&bytes[..bytes.len() - 1]).into_iter().all(|in_head| in_head));
            assert_eq!(standings(&bytes).last(), Some(&expected), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn the_pieces_make_no_difference(
            frames in prop::collection::vec((0_u8..11, any::<u8>(), 0_u32..40), 0..12),
            rest in prop::collection::vec(any::<u8>(), 0..40),
            cuts in prop::collection::vec(0_usize..600, 0..8),
        ) {
            let mut bytes: Vec<u8> = frames.into_iter().flat_map(|(kind, flags, length)| frame(kind, flags, length)).collect();
            bytes.extend(rest);
            let standings = standings(&bytes);
            let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut frames = Frames::default();
            for pair in cuts.windows(2) {
                let between = frames.follow(&bytes[pair[0]..pair[1]]);
                prop_assert_eq!(between, standings[pair[0]..pair[1]].contains(&false));
                prop_assert_eq!(frames.is_in_head(), pair[1].checked_sub(1).is_none_or(|last| standings[last]));
            }
        }
    }
}
