//! Where the session of a request is, told from its headers and query alone: here, at another pod, or nowhere.

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderValue, Method};
use jiff::{SignedDuration, Timestamp};
use mooring_contract::config::SessionMode;

use super::keys::KeyId;
use super::pod::Pod;
use super::token::{self, Place, Scope};
use super::{Sealing, Sessions};
use crate::era::{self, Era};
use crate::headers::SESSION;
use crate::route::Route;
use crate::rules::{Backend, Rules};
use crate::sse;
use crate::who::Principal;

/// What ids mean for one request.
#[derive(Debug, Default)]
pub enum Standing {
    /// They pass as they are.
    #[default]
    Raw,
    /// There are no sessions: what anybody says of them is withheld.
    Stateless,
    /// They would be tokens, and there is no key.
    Keyless,
    /// They are tokens.
    Sealed(Sealing, Named),
}

/// What a request names.
#[derive(Debug)]
pub enum Named {
    /// No session.
    Nothing,
    /// One of this pod.
    Here {
        /// The token.
        token: Bytes,
        /// What the session is called here.
        id: Bytes,
        /// When it began.
        issued: Timestamp,
    },
    /// One of another pod.
    There(Away),
    /// None that is there for this caller (any more).
    Unknown,
}

/// A session of another pod.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    /// The pod.
    pub owner: Pod,
    /// The key that sealed it, which its owner has.
    pub key: KeyId,
}

/// The request, as far as it must be known.
pub struct Asked<'a> {
    /// Its head.
    pub parts: &'a Parts,
    /// Which part of the front door it is for.
    pub route: Route,
    /// Who asks.
    pub principal: &'a Principal,
    /// When.
    pub now: Timestamp,
    /// Whether it came from another pod, so that this one must be the owner.
    pub forwarded: bool,
}

/// Tells what the ids of a request mean.
pub fn tell(sessions: &Sessions, rules: &Rules, asked: &Asked<'_>) -> Standing {
    let tools = matches!(rules.backend, Backend::Tools(_));
    match asked.route {
        Route::Endpoint if tools => return Standing::Raw,
        _ if rules.sessions.mode == SessionMode::Stateless => return Standing::Stateless,
        _ => {}
    }
    let Some(sealing) = sessions.sealing() else {
        return if sessions.lack_keys() { Standing::Keyless } else { Standing::Raw };
    };
    let (place, text) = match asked.route {
        Route::Messages => (Place::Query, sse::token(asked.parts.uri.query()).map(str::as_bytes)),
        Route::Endpoint if has_sessions(asked.parts) => {
            (Place::Header, one(asked.parts, &SESSION).map(HeaderValue::as_bytes))
        }
        _ => return Standing::Sealed(sealing, Named::Nothing),
    };
    let named = match text {
        None if place == Place::Header && !asked.parts.headers.contains_key(SESSION) => Named::Nothing,
        None => Named::Unknown,
        Some(text) => named(&sealing, rules, asked, place, text),
    };
    Standing::Sealed(sealing, named)
}

/// Whether a request may have a session: the modern era has none, and methods that nobody serves need none.
fn has_sessions(parts: &Parts) -> bool {
    let modern = || era::version(&parts.headers).is_some_and(|version| Era::of_revision(version) == Era::Modern);
    match parts.method {
        Method::POST => !modern(),
        Method::GET | Method::DELETE => true,
        _ => false,
    }
}

fn one<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = parts.headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn named(sealing: &Sealing, rules: &Rules, asked: &Asked<'_>, place: Place, text: &[u8]) -> Named {
    let scope = Scope { server: &rules.server.uid, subject: &asked.principal.subject(), place };
    let Some((key, contents)) = token::open(&sealing.ring, &scope, text) else { return Named::Unknown };
    let age = asked.now.duration_since(contents.issued);
    let over = SignedDuration::try_from(rules.sessions.max_age).is_ok_and(|max_age| age >= max_age);
    if over {
        Named::Unknown
    } else if contents.owner.uid == sealing.me.uid {
        Named::Here { token: Bytes::copy_from_slice(text), id: contents.id, issued: contents.issued }
    } else if asked.forwarded {
        Named::Unknown
    } else {
        Named::There(Away { owner: contents.owner, key })
    }
}

impl Standing {
    /// The session that the request names, where it is another pod's.
    pub fn away(&self) -> Option<Away> {
        match self {
            Self::Sealed(_, Named::There(away)) => Some(*away),
            _ => None,
        }
    }

    /// Whether sessions are withheld.
    pub fn is_stateless(&self) -> bool {
        matches!(self, Self::Stateless)
    }
}
