//! What sessions have to do with one exchange between a client and the backend: which id the backend is told, and which
//! the client.

use std::sync::Arc;
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
use crate::era;
use crate::exchange::Exchange;
use crate::headers::{LAST_EVENT_ID, METHOD, NAME, SESSION, Seen, VERSION};
use crate::refusal::Refusal;
use crate::relay::{Outgoing, Relay};
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
        /// Where the backend keeps it, and this process only knows of it: with what the backend is asked.
        known: Option<(InUse, Box<Parts>)>,
    },
}

impl Part {
    /// Decides, and writes the backend's id into the headers of `parts`. `initializes`: whether the request is an
    /// `initialize`, which begins a new session whatever old one it names.
    pub fn of(exchange: &Exchange, initializes: bool, parts: &mut Parts) -> Result<Self, Refusal> {
        let Exchange { door, rules, standing, .. } = exchange;
        let (sealing, named) = match standing {
            Standing::Raw => return Ok(Self::Raw),
            Standing::Stateless => {
                parts.headers.remove(SESSION);
                return Ok(Self::None);
            }
            Standing::Keyless if initializes || parts.headers.contains_key(SESSION) => {
                return Err(Refusal::SessionsUnsealed);
            }
            Standing::Keyless => return Ok(Self::None),
            Standing::Sealed(sealing, named) => (sealing, named),
        };
        // With the older transport behind it, the front door keeps the session itself.
        let kept_here = matches!(rules.backend, Backend::Sse(_));
        if initializes {
            if door.phase() >= Phase::Draining {
                return Err(Refusal::Stopping);
            }
            parts.headers.remove(SESSION);
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
                parts.headers.insert(SESSION, secret(id).ok_or(Refusal::SessionUnknown)?);
                let known = in_use.map(|in_use| (in_use, Box::new(parts.clone())));
                Ok(Self::Uses { token: secret(token).ok_or(Refusal::SessionUnknown)?, id: id.clone(), known })
            }
        }
    }

    /// Puts the client's name for the session into the answer, and notes what the answer says of it. What comes back
    /// besides the answer keeps the session in use.
    pub async fn settle(
        self,
        exchange: &Exchange,
        mut response: Response<Body>,
    ) -> Result<(Response<Body>, Option<InUse>), Refusal> {
        let (door, rules) = (&exchange.door, &exchange.rules);
        let headers = response.headers_mut();
        if headers.get_all(SESSION).iter().nth(1).is_some() {
            return Err(Refusal::BackendSession); // which of them it means, nobody knows
        }
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
                let Some(token) = token.and_then(|token| secret(token.as_bytes())) else {
                    end(door, rules, &id); // nobody will ever name it
                    return Err(Refusal::BackendSession);
                };
                response.headers_mut().insert(SESSION, token);
                let whose = Whose::of(subject, exchange.arrival.wall);
                let in_use = seat.map(|seat| door.sessions.owned.begin(id, whose, seat));
                Ok((response, in_use))
            }
            Self::Uses { token, id, known } => {
                if headers.contains_key(SESSION) {
                    headers.insert(SESSION, token);
                }
                let Some((in_use, asked)) = known else { return Ok((response, None)) };
                if is_over(exchange, *asked, &id, response.status()).await {
                    return Err(Refusal::SessionUnknown);
                }
                Ok((response, Some(in_use)))
            }
        }
    }
}

/// Notes the end of a session, and tells whether the client must hear of it in other words than the backend's.
async fn is_over(exchange: &Exchange, asked: Parts, id: &Bytes, status: StatusCode) -> bool {
    let owned = &exchange.door.sessions.owned;
    match status {
        // Some have no stream to GET at all.
        StatusCode::NOT_FOUND if asked.method == Method::GET => {}
        StatusCode::NOT_FOUND => owned.forget(id),
        StatusCode::BAD_REQUEST => {
            let Backend::Http(relay) = &exchange.rules.backend else { return false };
            let over = !Box::pin(is_alive(relay, asked, &exchange.seen)).await; // rare, and large
            if over {
                owned.forget(id);
            }
            return over;
        }
        status if status.is_success() && asked.method == Method::DELETE => owned.end(id),
        _ => {}
    }
    false
}

/// Whether the backend knows the session of a request that it answered with 400. Some do so for one that they do not know,
/// but for much else, too. The question is the client's own, as far as that cannot be what is wrong with it: who needs a
/// header or a query besides the session finds it there.
async fn is_alive(relay: &Relay, asked: Parts, seen: &Seen) -> bool {
    let (query, mut headers) = (asked.uri.query().map(str::to_owned), asked.headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    for of_the_message in [METHOD, NAME, LAST_EVENT_ID] {
        headers.remove(of_the_message);
    }
    if !era::version(&headers).is_some_and(|version| era::LEGACY.contains(&version)) {
        headers.remove(VERSION);
    }
    let ping = Outgoing { method: Method::POST, query, headers, body: Bytes::from_static(PING.as_bytes()) };
    let answer = tokio::time::timeout(PATIENCE, relay.exchange(&ping, seen)).await;
    // Whoever does not answer has not said that it is gone.
    !matches!(answer, Ok(Ok(response)) if matches!(response.status(), StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND))
}

/// Ends a session of the backend that nobody uses.
pub fn end(door: &Door, rules: &Arc<Rules>, id: &[u8]) {
    let (rules, id) = (Arc::clone(rules), secret(id));
    door.calls.spawn(async move {
        if let (Backend::Http(relay), Some(id)) = (&rules.backend, id) {
            let headers = HeaderMap::from_iter([(SESSION, id)]);
            // A server may answer it as it likes, or not at all.
            let _ = tokio::time::timeout(PATIENCE, relay.own(Method::DELETE, headers, Bytes::new())).await;
        }
    });
}
