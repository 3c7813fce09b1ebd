use proptest::prelude::*;

use super::*;
use crate::session::keys::tests::ring;

const ALPHABET: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn alice() -> Subject {
    Subject::Key("alice".into())
}

fn scope(subject: &Subject) -> Scope<'_> {
    Scope { server: "u-1", subject, place: Place::Header }
}

fn contents(id: impl Into<Bytes>) -> Contents {
    let owner = Pod { uid: Uid([7; 16]), address: [10, 0, 0, 9].into() };
    Contents { owner, issued: "2026-11-30T00:00:00Z".parse().unwrap(), id: id.into() }
}

fn sealed(ring: &Ring, id: impl Into<Bytes>, nonce: Entropy) -> String {
    seal(ring.current(), &scope(&alice()), &contents(id), nonce).unwrap()
}

fn opens(ring: &Ring, text: &[u8]) -> bool {
    open(ring, &scope(&alice()), text).is_some()
}

const X: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";

#[test]
fn a_token_opens_for_its_server_principal_and_place_alone() {
    let own = ring(&[("current", 1)]);
    let text = sealed(&own, X, [9; 12]);
    assert_eq!(open(&own, &scope(&alice()), text.as_bytes()), Some(([1; 4], contents(X))));
    let (anonymous, bob) = (Subject::Anonymous, Subject::Key("bob".into()));
    let alice = alice();
    for other in [
        Scope { server: "u-2", ..scope(&alice) },
        Scope { place: Place::Query, ..scope(&alice) },
        scope(&bob),
        scope(&anonymous),
        // No two scopes are one text.
        Scope { server: "u-1a", subject: &Subject::Key("lice".into()), place: Place::Header },
    ] {
        assert_eq!(open(&own, &other, text.as_bytes()), None, "{other:?}");
    }
}

#[test]
fn every_slot_opens_and_another_key_does_not() {
    let text = sealed(&ring(&[("current", 1)]), X, [9; 12]);
    for (slots, expected) in [
        (&[("current", 2), ("previous", 1)][..], true),
        (&[("current", 2), ("next", 1)], true),
        (&[("current", 1)], true),
        (&[("current", 2), ("previous", 3)], false),
    ] {
        assert_eq!(opens(&ring(slots), text.as_bytes()), expected, "{slots:?}");
    }
    // The same id with another secret.
    let mut bytes = base62::decode(text.as_bytes()).unwrap();
    bytes[..4].copy_from_slice(&[2; 4]);
    assert!(!opens(&ring(&[("current", 1), ("next", 2)]), base62::encode(&bytes).as_bytes()));
}

#[test]
fn a_token_is_short_and_for_a_uuid_always_as_long() {
    let ring = ring(&[("current", 1)]);
    for spell in [uuid::spell, uuid::spell_bare] {
        let lengths: Vec<_> = (0..=255).map(|number| sealed(&ring, spell([number; 16]), [number; 12]).len()).collect();
        assert!(lengths.iter().all(|length| *length == 115), "{lengths:?}");
    }
    let mut v6 = contents(X);
    v6.owner.address = "2001:db8::1".parse().unwrap();
    let text = seal(ring.current(), &scope(&alice()), &v6, [1; 12]).unwrap();
    assert_eq!(text.len(), 115);
    assert_eq!(open(&ring, &scope(&alice()), text.as_bytes()).unwrap().1, v6);
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert!(seal(ring.current(), &scope(&alice()), &contents(vec![b'a'; ID_MAXIMUM + 1]), [1; 12]).is_none());
    assert!(opens(&ring, sealed(&ring, vec![b'a'; ID_MAXIMUM], [1; 12]).as_bytes()));
}

/// Sealed by another program that does as the head of this module says. Clients have such tokens, the second kind from
/// before there was a flag for such an id: they must open as long as they may live.
#[test]
fn tokens_of_before_open() {
    let ring = ring(&[("current", 1)]);
    for (id, text) in [
        (
            X,
            "0El6XFx8RR4ywO37nMbQv53ftEGrCzjWoMne52cpyAihyPdQXXOnUJyZ8rYAOzgzk8lKQAsCHt08ORx7s2IIBU0FFeDoxrJZpy9yiJAHR4AK\
             fImnfYB",
        ),
        (
            "0b6f4d5e8f0e4f439e581b6a3f4c2d10",
            "0El6XFx8RR4ywO37nMbQv55YskmABYxyqj7SFP7ci7EhyPdQXXOnUJyZ8rYAOzgzk8lKQAs8gKOzfet6rq3Urr5QoJj0B098GJcxVrup7Aqi\
             SU2ZimcgbtaCH2AEmgfPRBd7687b",
        ),
        ("s-1", "0El6XFx8RR4ywO37nMbQv55YskmABYxyqj7SFP7ci7EhyPdQXXOnUJyZ8rYAOzgzk8lKQAsEeU7CA3lUTRtlWjAj8UyPXem17"),
    ] {
        assert_eq!(open(&ring, &scope(&alice()), text.as_bytes()), Some(([1; 4], contents(id))), "{id}");
    }
}

#[test]
fn every_flipped_bit_changed_letter_and_truncation_is_refused() {
    let ring = ring(&[("current", 1), ("previous", 2)]);
    let text = sealed(&ring, X, [9; 12]);
    let bytes = base62::decode(text.as_bytes()).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!opens(&ring, base62::encode(&flipped).as_bytes()), "bit {bit}");
    }
    for place in 0..text.len() {
        for letter in ALPHABET.iter().filter(|letter| **letter != text.as_bytes()[place]) {
            let mut changed = text.clone().into_bytes();
            changed[place] = *letter;
            assert!(!opens(&ring, &changed), "letter {place}");
        }
        assert!(
            !opens(&ring, &text.as_bytes()[..place]) && !opens(&ring, &text.as_bytes()[place + 1..]),
            "cut {place}"
        );
    }
    for longer in [format!("{text}0"), format!("0{text}"), format!("{text}{text}"), format!(" {text}")] {
        assert!(!opens(&ring, longer.as_bytes()), "{longer}");
    }
}

/// Anything, and much of what is a UUID or nearly one.
fn ids() -> impl Strategy<Value = Vec<u8>> {
    let text = |pattern: &'static str| pattern.prop_map(String::into_bytes);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        text("[0-9a-f]{32}"),
        text("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
        text("[0-9a-f]{31}[0-9a-fA-F-]{0,5}"),
    ]
}

proptest! {
    #[test]
    fn what_is_sealed_is_opened(id in ids(), nonce: Entropy, uid: [u8; 16], address: std::net::IpAddr, seconds: u32) {
        let ring = ring(&[("current", 1)]);
        let owner = Pod { uid: Uid(uid), address: address.to_canonical() };
        let contents = Contents { owner, issued: Timestamp::from_second(seconds.into()).unwrap(), id: id.into() };
        let text = seal(ring.current(), &scope(&alice()), &contents, nonce).unwrap();
        prop_assert_eq!(open(&ring, &scope(&alice()), text.as_bytes()), Some(([1; 4], contents)));
    }

    #[test]
    fn halves_of_two_tokens_make_none(a: Entropy, b: Entropy, at in 0_usize..115) {
        let ring = ring(&[("current", 1)]);
        let (a, b) = (sealed(&ring, X, a), sealed(&ring, "11111111-8f0e-4f43-9e58-1b6a3f4c2d10", b));
        let spliced = format!("{}{}", &a[..at], &b[at..]);
        prop_assert!(spliced == a || spliced == b || !opens(&ring, spliced.as_bytes()));
    }

    #[test]
    fn no_text_is_opened_that_was_not_sealed(text in "\\PC{0,150}") {
        prop_assert!(!opens(&ring(&[("current", 1)]), text.as_bytes()));
    }
}
