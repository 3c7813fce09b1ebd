//! Laws that hold for any bytes, each a function that panics where its law is broken. Fuzz targets feed them for long,
//! the tests for a moment.

use jiff::Timestamp;
use mooring_contract::{SessionKey, Slot, session_key};
use serde_json::Value;

use crate::directory::Entries;
use crate::peek::{self, Reading};
use crate::session::base62;
use crate::session::keys::Ring;
use crate::session::token::{self, Place, Scope};
use crate::sse::event::{Decoder, Event, TooLarge};
use crate::stream::Boundary;
use crate::who::Subject;
use crate::wire::fault::Fault;
use crate::wire::frames::Frames;
use crate::wire::framing::Framing;
use crate::wire::limits::WireLimits;

/// The verdict on a byte stream does not depend on the pieces in which it arrives, and what passes is never more than came.
///
/// # Panics
/// Where it does.
pub fn framing(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let whole = followed([bytes].into_iter());
    assert!(whole.0 <= bytes.len(), "more passed than came");
    assert_eq!(followed(bytes.chunks(usize::from(*size).max(1))), whole, "the pieces change the verdict");
}

fn followed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (usize, Option<Fault>, u64) {
    let limits = WireLimits { header_bytes: 512, header_count: 6, uri_bytes: 64, ..WireLimits::management() };
    let (mut framing, mut held, mut passed) = (Framing::default(), Vec::new(), 0);
    for piece in pieces {
        held.extend_from_slice(piece);
        let step = framing.follow(&held, &limits);
        passed += step.bytes;
        held.drain(..step.bytes);
        if step.fault.is_some() {
            return (passed, step.fault, framing.heads());
        }
    }
    (passed, None, framing.heads())
}

/// Where a byte stream of HTTP/2 stands does not depend on the pieces in which it arrives.
///
/// # Panics
/// Where it does.
pub fn frames(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let (mut whole, mut parts) = (Frames::default(), Frames::default());
    let between = whole.follow(bytes);
    let pieces = bytes.chunks(usize::from(*size).max(1));
    assert_eq!(
        pieces.fold(false, |between, piece| parts.follow(piece) | between),
        between,
        "the pieces change the time"
    );
    assert_eq!(parts, whole, "the pieces change where it stands");
}

/// Any body is judged, and what is taken for a request says the same to another parser.
///
/// # Panics
/// Where it does not.
pub fn peek(bytes: &[u8]) {
    let Ok(Reading::One(message)) = peek::peek(bytes) else { return };
    // Numbers beyond the range of `f64` pass as they came, and are no value.
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        assert_eq!(value.get("method").and_then(Value::as_str), message.method(), "two readings");
    }
}

/// Which events a stream has, and where it stands between two of them, does not depend on how it is cut; and no more of it
/// is held than one event may have.
///
/// # Panics
/// Where it does, or where more is.
pub fn events(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let pieces = || bytes.chunks(usize::from(*size).max(1));
    let (mut whole, mut parts) = (Boundary::default(), Boundary::default());
    whole.pass(bytes);
    pieces().for_each(|piece| parts.pass(piece));
    assert_eq!(whole.is_between_events(), parts.is_between_events(), "the cuts change the boundary");
    assert_eq!(decoded([bytes].into_iter()), decoded(pieces()), "the cuts change the events");
}

/// Bytes that an event may have here.
const EVENT: usize = 64;
/// A byte that is no text becomes a character of three.
const WIDEST: usize = 3;

fn decoded<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Event>, Option<TooLarge>) {
    let (mut decoder, mut events) = (Decoder::up_to(EVENT), Vec::new());
    for mut piece in pieces {
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
        assert!(piece.is_empty(), "bytes are left");
        assert!(decoder.held() <= EVENT * WIDEST, "more is held than an event may have");
    }
    (events, None)
}

/// No text is a token but one that was sealed, and every one has one spelling.
///
/// # Panics
/// Where that is not so.
pub fn token(bytes: &[u8]) {
    if let Some(decoded) = base62::decode(bytes) {
        assert_eq!(base62::encode(&decoded).as_bytes(), bytes, "two spellings");
    }
    let key = SessionKey::from_entropy(&[0; session_key::ENTROPY], Timestamp::UNIX_EPOCH);
    let entries = key.to_json().map(|key| Entries::from([(Slot::Current.entry().to_owned(), key.into_bytes())]));
    let Some(ring) = entries.ok().and_then(|entries| Ring::build(&entries).0) else { return };
    let scope = Scope { server: "", subject: &Subject::Anonymous, place: Place::Header };
    assert!(token::open(&ring, &scope, bytes).is_none(), "nobody sealed it");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    type Law = fn(&[u8]);
    /// By the name of its fuzz target.
    const LAWS: [(&str, Law); 5] = [
        ("events", super::events),
        ("frames", super::frames),
        ("framing", super::framing),
        ("peek", super::peek),
        ("token", super::token),
    ];

    /// A seed is what a fuzz target begins with.
    #[test]
    fn laws_hold_for_the_seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
        let names = |folder: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(folder).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&folder.join("fuzz_targets")), LAWS.map(|(law, _)| format!("{law}.rs")));
        for (law, holds) in LAWS {
            let seeds = folder.join("seeds").join(law);
            assert!(!names(&seeds).is_empty(), "{law} has no seed");
            for seed in names(&seeds) {
                println!("{law} {seed}");
                holds(&std::fs::read(seeds.join(seed)).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn laws_hold_for_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for (_, holds) in LAWS {
                holds(&bytes);
            }
        }
    }
}
