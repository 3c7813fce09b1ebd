//! What sessions have to do with one exchange between a client and the backend: which id the backend is told, and which
//! the client.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::place::{Named, Standing};
use super::registry::{InUse, Whose};
use super::seats::Seat;
use super::token::Place;
use super::{Sealing, secret};
use crate::body::Body;
use crate::door::{Door, Phase};
use crate::exchange::Exchange;
use crate::headers::{SESSION, VERSION};
use crate::refusal::Refusal;
use crate::relay::Relay;
use crate::rules::{Backend, Rules};

/// Longest wait for an answer of the backend to the front door's own words.
const PATIENCE: Duration = Duration::from_secs(10);
/// The question whether a session is there. Every server has to answer it (2025-11-25, "Ping").
const PING: &str = r#"{"jsonrpc":"2.0","id":"mooring","method":"ping"}"#;

/// What sessions have to do with it.
#[derive(Debug)]
pub enum Part {
    /// Nothing here: ids pass as they are.
    Raw,
    /// It has none, and gets none.
    None,
    /// It begins one, if the backend says so.
    Begins(Sealing, Option<Seat>),
    /// It belongs to one.
    Uses {
        /// The client's name for it.
        token: HeaderValue,
        /// The backend's.
        id: Bytes,
        /// Where the backend keeps it, and this process only knows of it.
        in_use: Option<InUse>,
    },
}

impl Part {
    /// Decides, and writes the backend's id into `headers`. `initializes`: whether the request is an `initialize`, which
    /// begins a new session whatever old one it names.
    pub fn of(exchange: &Exchange, initializes: bool, headers: &mut HeaderMap) -> Result<Self, Refusal> {
        let Exchange { door, rules, standing, .. } = exchange;
        let (sealing, named) = match standing {
            Standing::Raw => return Ok(Self::Raw),
            Standing::Stateless => {
                headers.remove(SESSION);
                return Ok(Self::None);
            }
            Standing::Sealed(sealing, named) => (sealing, named),
        };
        // With the older transport behind it, the front door keeps the session itself.
        let kept_here = matches!(rules.backend, Backend::Sse(_));
        if initializes {
            if door.phase() >= Phase::Draining {
                return Err(Refusal::Stopping);
            }
            headers.remove(SESSION);
            let seat = (!kept_here).then(|| door.seat(rules)).transpose()?;
            return Ok(Self::Begins(sealing.clone(), seat));
        }
        match named {
            Named::Nothing => Ok(Self::None),
            Named::There(_) | Named::Unknown => Err(Refusal::SessionUnknown),
            Named::Here { token, id, issued } => {
                let whose = Whose::of(exchange.principal.subject(), *issued);
                let seat = || door.sessions.seats.add(&door.metrics);
                let enter = || door.sessions.owned.enter(id.clone(), whose, seat);
                let in_use = if kept_here { None } else { Some(enter().ok_or(Refusal::SessionUnknown)?) };
                headers.insert(SESSION, secret(id).ok_or(Refusal::SessionUnknown)?);
                Ok(Self::Uses { token: secret(token).ok_or(Refusal::SessionUnknown)?, id: id.clone(), in_use })
            }
        }
    }

    /// Puts the client's name for the session into the answer, and notes what the answer says of it. What comes back
    /// besides the answer keeps the session in use.
    pub async fn settle(
        self,
        exchange: &Exchange,
        asked: &Asked,
        mut response: Response<Body>,
    ) -> Result<(Response<Body>, Option<InUse>), Refusal> {
        let (door, rules) = (&exchange.door, &exchange.rules);
        let headers = response.headers_mut();
        match self {
            Self::Raw => Ok((response, None)),
            Self::None => {
                headers.remove(SESSION);
                Ok((response, None))
            }
            Self::Begins(sealing, seat) => {
                let id = headers.remove(SESSION).filter(|_| response.status().is_success());
                let Some(id) = id.map(|id| Bytes::copy_from_slice(id.as_bytes())) else { return Ok((response, None)) };
                let subject = exchange.principal.subject();
                let token = sealing.seal(rules, &subject, Place::Header, id.clone(), exchange.arrival.wall);
                let token = token.and_then(|token| secret(token.as_bytes())).ok_or(Refusal::BackendSession)?;
                response.headers_mut().insert(SESSION, token);
                let whose = Whose::of(subject, exchange.arrival.wall);
                let in_use = seat.map(|seat| door.sessions.owned.begin(id, whose, seat));
                Ok((response, in_use))
            }
            Self::Uses { token, id, in_use } => {
                if headers.contains_key(SESSION) {
                    headers.insert(SESSION, token);
                }
                if in_use.is_some() && is_over(door, rules, asked, &id, response.status()).await {
                    return Err(Refusal::SessionUnknown);
                }
                Ok((response, in_use))
            }
        }
    }
}

/// What was asked of the backend.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// The revision that the client speaks.
    pub version: Option<HeaderValue>,
}

impl Asked {
    /// What is asked of it by a request.
    pub fn of(parts: &Parts) -> Self {
        Self { method: parts.method.clone(), version: parts.headers.get(VERSION).cloned() }
    }
}

/// Notes the end of a session, and tells whether the client must hear of it in other words than the backend's.
async fn is_over(door: &Door, rules: &Rules, asked: &Asked, id: &Bytes, status: StatusCode) -> bool {
    match status {
        StatusCode::NOT_FOUND => door.sessions.owned.forget(id),
        StatusCode::BAD_REQUEST => {
            let Backend::Http(relay) = &rules.backend else { return false };
            let over = !Box::pin(is_alive(relay, id, asked.version.clone())).await; // rare, and large
            if over {
                door.sessions.owned.end(id);
            }
            return over;
        }
        status if status.is_success() && asked.method == Method::DELETE => door.sessions.owned.end(id),
        _ => {}
    }
    false
}

/// Whether the backend knows the session. Some answer 400 for one that they do not, but for much else, too.
async fn is_alive(relay: &Relay, id: &[u8], version: Option<HeaderValue>) -> bool {
    let Some(id) = secret(id) else { return false };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(SESSION, id);
    if let Some(version) = version {
        headers.insert(VERSION, version);
    }
    let asking = relay.own(Method::POST, headers, Bytes::from_static(PING.as_bytes()));
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    // Whoever does not answer has not said that it is gone.
    !matches!(answer, Ok(Ok(response)) if matches!(response.status(), StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND))
}

/// Ends a session of the backend that nobody uses.
pub async fn end(relay: &Relay, id: HeaderValue) {
    let headers = HeaderMap::from_iter([(SESSION, id)]);
    // A server may answer it as it likes, or not at all.
    let _ = tokio::time::timeout(PATIENCE, relay.own(Method::DELETE, headers, Bytes::new())).await;
}
