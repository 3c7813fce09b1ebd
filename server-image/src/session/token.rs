//! The token that a client gets in place of a session's id: which pod owns the session, and what it is called there,
//! sealed with AES-256-GCM. Pure: clock and randomness are arguments.
//!
//! ```text
//! key id (4) | nonce (12) | sealed: flag (1), pod uid (16), address (16), issued (4), id (16, or as long as it is) | tag (16)
//! ```
//!
//! For whom it was made, by which server and for which transport is not in it, but authenticated with it: to everybody
//! else it does not open. There is no other reason for which it opens or not, and one spelling of each token only.

use std::net::{IpAddr, Ipv6Addr};

use bytes::Bytes;
use jiff::Timestamp;
use ring::aead::{Aad, NONCE_LEN, Nonce};

use super::base62;
use super::keys::{InForce, KeyId, Ring};
use super::pod::{Pod, Uid};
use super::uuid;
use crate::who::Subject;

/// Longest id of a session that is sealed.
pub const ID_MAXIMUM: usize = 2048;
/// Longest text that is tried.
const TEXT_MAXIMUM: usize = 3072;
/// Random bytes of one sealing.
pub type Entropy = [u8; NONCE_LEN];

/// The id stands as it is.
const RAW: u8 = 0;
/// The id is a canonical UUID and stands as its bytes.
const UUID: u8 = 1;
/// The same without hyphens.
const BARE_UUID: u8 = 2;

/// Where a token is used. One of another place does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `Mcp-Session-Id`.
    Header,
    /// The address for messages of the older transport.
    Query,
}

/// Who may open a token.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The uid of the McpServer.
    pub server: &'a str,
    /// Whom the session belongs to.
    pub subject: &'a Subject,
    /// Where the token is used.
    pub place: Place,
}

impl Scope<'_> {
    fn associated(&self, key: KeyId) -> Vec<u8> {
        let place: u8 = match self.place {
            Place::Header => 1,
            Place::Query => 2,
        };
        let (kind, subject): (u8, &[u8]) = match self.subject {
            Subject::Anonymous => (0, b""),
            Subject::Key(subject) => (1, subject.as_bytes()),
        };
        let mut bytes = b"mooring session 1".to_vec();
        bytes.extend(key);
        bytes.extend([place, kind]);
        bytes.extend((self.server.len() as u64).to_be_bytes());
        bytes.extend(self.server.as_bytes());
        bytes.extend(subject);
        bytes
    }
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The pod that owns the session.
    pub owner: Pod,
    /// When the session began, in whole seconds.
    pub issued: Timestamp,
    /// What the session is called there.
    pub id: Bytes,
}

/// Seals; `None` where the id is too long.
pub fn seal(key: &InForce, scope: &Scope<'_>, contents: &Contents, nonce: Entropy) -> Option<String> {
    if contents.id.len() > ID_MAXIMUM {
        return None;
    }
    let uuid = uuid::parse(&contents.id).map(|id| (UUID, id));
    let uuid = uuid.or_else(|| uuid::parse_bare(&contents.id).map(|id| (BARE_UUID, id)));
    let (flag, id) = match &uuid {
        Some((flag, id)) => (*flag, &id[..]),
        None => (RAW, &contents.id[..]),
    };
    let address = match contents.owner.address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut sealed = vec![flag];
    sealed.extend(contents.owner.uid.0);
    sealed.extend(address.octets());
    sealed.extend(u32::try_from(contents.issued.as_second()).unwrap_or(u32::MAX).to_be_bytes());
    sealed.extend(id);
    let associated = Aad::from(scope.associated(key.id));
    key.seal.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), associated, &mut sealed).ok()?;
    let mut bytes = key.id.to_vec();
    bytes.extend(nonce);
    bytes.extend(sealed);
    Some(base62::encode(&bytes))
}

/// Opens, and says with which key.
pub fn open(ring: &Ring, scope: &Scope<'_>, text: &[u8]) -> Option<(KeyId, Contents)> {
    if text.len() > TEXT_MAXIMUM {
        return None;
    }
    let mut bytes = base62::decode(text)?;
    let (id, rest) = bytes.split_first_chunk_mut::<4>()?;
    let (nonce, sealed) = rest.split_first_chunk_mut::<NONCE_LEN>()?;
    let key = ring.find(*id)?;
    let associated = Aad::from(scope.associated(key.id));
    let opened = key.seal.open_in_place(Nonce::assume_unique_for_key(*nonce), associated, sealed).ok()?;
    Some((key.id, read(opened)?))
}

fn read(opened: &[u8]) -> Option<Contents> {
    let (flag, rest) = opened.split_first()?;
    let (uid, rest) = rest.split_first_chunk::<16>()?;
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let (issued, id) = rest.split_first_chunk::<4>()?;
    let id = match *flag {
        RAW => Bytes::copy_from_slice(id),
        UUID => uuid::spell(id.try_into().ok()?).into(),
        BARE_UUID => uuid::spell_bare(id.try_into().ok()?).into(),
        _ => return None,
    };
    let address = IpAddr::V6(Ipv6Addr::from(*address)).to_canonical();
    let issued = Timestamp::from_second(u32::from_be_bytes(*issued).into()).ok()?;
    Some(Contents { owner: Pod { uid: Uid(*uid), address }, issued, id })
}

#[cfg(test)]
mod tests;
