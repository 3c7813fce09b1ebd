//! The older HTTP+SSE transport (2024-11-05) on both sides: clients that know nothing else come to `/sse` and send their
//! messages to `/messages`; backends that know nothing else are spoken to likewise. What such sessions need is kept in
//! this process, and ends with it.
//!
//! | | backend: Streamable HTTP, declared tools | backend: HTTP+SSE |
//! |---|---|---|
//! | client: Streamable HTTP | (the usual way) | [`bridge`] |
//! | client: HTTP+SSE | [`player`] | [`relayed`] |

pub mod bridge;
pub mod event;
mod life;
mod outbox;
mod player;
mod registry;
mod relayed;
pub mod upstream;
mod view;

use std::sync::Arc;

use bytes::Bytes;
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::body::{Body, empty};
use crate::commit::event_stream;
use crate::door::Phase;
use crate::exchange::Exchange;
use crate::headers::accepts;
use crate::log::Entry;
use crate::peek::{self, Reading};
use crate::pipeline::Refused;
use crate::refusal::{Refusal, Waiting};
use crate::rules::Backend;
use crate::session::place::{Named, Standing};
use crate::session::token::Place;
use event::{ENDPOINT, encode};
use life::Life;
use registry::{Membership, Registry, Token};
use view::Id;

/// The sessions that this process keeps.
#[derive(Debug, Default)]
pub struct Sse {
    /// Clients on `/sse`.
    older: Arc<Registry<Older>>,
    /// Streamable HTTP clients of a backend that speaks only SSE.
    bridged: Arc<Registry<bridge::Session>>,
    /// Reads the backends' streams. A stop need not wait for them: the answers that come of them are waited for.
    readers: TaskTracker,
}

#[cfg(test)]
impl Sse {
    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.older.len() + self.bridged.len()
    }
}

/// A session of a client on `/sse`.
#[derive(Debug)]
enum Older {
    Played(Arc<player::Session>),
    Relayed(Arc<relayed::Session>),
}

/// `GET /sse`.
pub async fn open(exchange: Exchange, parts: &mut Parts) -> Result<Response<Body>, Refused> {
    if exchange.standing.is_stateless() {
        return Err(nowhere(&exchange));
    }
    match parts.method {
        Method::GET if !accepts(&parts.headers, "text/event-stream") => Err(Refusal::NotAcceptable.into()),
        // Whoever gets no session here finds another pod.
        Method::GET if exchange.door.phase() >= Phase::Draining => Err(Refusal::Stopping.into()),
        Method::GET if matches!(exchange.standing, Standing::Keyless) => Err(Refusal::SessionsUnsealed.into()),
        Method::GET => match &Arc::clone(&exchange.rules).backend {
            Backend::Sse(relay) => relayed::Session::open(relay, exchange, parts).await,
            Backend::Http(_) | Backend::Tools(_) => player::Session::open(exchange, parts),
        },
        _ => other_method(&parts.method, "GET, OPTIONS"),
    }
}

/// `POST /messages?s=T`.
pub async fn message(
    exchange: Exchange,
    parts: &mut Parts,
    body: &mut Body,
    entry: &mut Entry,
) -> Result<Response<Body>, Refused> {
    if exchange.standing.is_stateless() {
        return Err(nowhere(&exchange));
    }
    if parts.method != Method::POST {
        return other_method(&parts.method, "POST, OPTIONS");
    }
    let token = match &exchange.standing {
        Standing::Sealed(_, Named::Here { id, .. }) => std::str::from_utf8(id).ok(),
        Standing::Raw => token(parts.uri.query()),
        Standing::Keyless => return Err(Refusal::SessionsUnsealed.into()),
        Standing::Sealed(..) | Standing::Stateless => None,
    };
    let token = token.ok_or(Refusal::SessionUnknown)?;
    let session = exchange.door.sse.older.find(token, &exchange.principal.subject())?;
    let bytes = exchange.read(&parts.headers, body, deadline(&exchange)).await?;
    let said = Said::of(bytes)?;
    entry.method(said.method.as_deref());
    let headers = std::mem::take(&mut parts.headers);
    match &*session {
        Older::Played(session) => Arc::clone(session).message(exchange, headers, said).await,
        Older::Relayed(session) => session.message(exchange, headers, said).await,
    }
}

/// This transport needs sessions.
fn nowhere(exchange: &Exchange) -> Refused {
    Refusal::NotFound { endpoint: exchange.rules.paths.endpoint().to_owned() }.into()
}

/// A message of a client, and what must be known of it here.
struct Said {
    bytes: Bytes,
    method: Option<String>,
    /// The revision that it names itself: only the newest does.
    revision: Option<String>,
    waiting: Waiting,
}

impl Said {
    fn of(bytes: Bytes) -> Result<Self, Refusal> {
        let reading = peek::peek(&bytes)?;
        let waiting = reading.waiting();
        let (method, revision) = match reading {
            Reading::One(message) => {
                let revision = message.call().and_then(|call| call.params.meta.version.as_ref());
                let revision = revision.map(|seen| seen.text().map(ToString::to_string).unwrap_or_default());
                (message.method().map(str::to_owned), revision)
            }
            Reading::Batch(_) => (None, None),
        };
        Ok(Self { bytes, method, revision, waiting })
    }

    /// The id of the one request that it is.
    fn id(&self) -> Option<Id> {
        match &self.waiting {
            Waiting::One(id) => Id::of(id),
            Waiting::Nobody | Waiting::Batch(_) => None,
        }
    }
}

/// When the call timeout of an exchange ends.
fn deadline(exchange: &Exchange) -> Instant {
    exchange.arrival.instant + exchange.rules.call_timeout
}

fn other_method(method: &Method, allow: &'static str) -> Result<Response<Body>, Refused> {
    if *method != Method::OPTIONS {
        return Err(Refusal::MethodNotAllowed { allow }.into());
    }
    let mut response = with_status(StatusCode::NO_CONTENT);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    Ok(response)
}

/// The one token of a query.
pub fn token(query: Option<&str>) -> Option<&str> {
    let mut tokens = query?.split('&').filter_map(|part| part.strip_prefix("s="));
    tokens.next().filter(|_| tokens.next().is_none())
}

/// The first event: where messages are to be sent.
fn endpoint_event(exchange: &Exchange, token: &Token) -> Result<Bytes, Refusal> {
    let (rules, subject) = (&exchange.rules, exchange.principal.subject());
    let sealed = match &exchange.standing {
        Standing::Sealed(sealing, _) => {
            let id = Bytes::copy_from_slice(token.expose().as_bytes());
            let sealed = sealing.seal(rules, &subject, Place::Query, id, exchange.arrival.wall);
            Some(sealed.ok_or(Refusal::SessionsUnsealed)?)
        }
        Standing::Keyless => return Err(Refusal::SessionsUnsealed),
        Standing::Raw | Standing::Stateless => None,
    };
    let token = sealed.as_deref().unwrap_or(token.expose());
    Ok(encode(ENDPOINT, format!("{}?s={token}", rules.paths.messages()).as_bytes()))
}

/// The client's stream, whose end ends the session. It goes on through a stop, until `stopped`.
fn begun(
    exchange: Exchange,
    body: Body,
    life: &Life,
    member: Membership<Older>,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Response<Body> {
    let unwelcome = Arc::clone(&exchange.door).until_unwelcome(exchange.principal.clone(), true);
    let end = Box::pin(async move {
        tokio::select! {
            () = unwelcome => {}
            () = stopped => {}
        }
    });
    let held = (life.guard(), member);
    let body = body.map_frame(move |frame| {
        let _held = &held;
        frame
    });
    exchange.stream_until(event_stream(body.boxed_unsync()), end)
}

impl Exchange {
    /// Takes a session into those of its caller.
    fn admit(&self, session: Older) -> Result<Membership<Older>, Refusal> {
        let seat = self.door.seat(&self.rules)?;
        self.door.sse.older.admit(self.principal.subject(), Arc::new(session), seat)
    }
}

fn with_status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}
