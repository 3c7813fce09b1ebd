//! The whole way of a request, on one page:
//!
//! ```text
//! accept (wire: 400, 408, 414, 431) -> health -> room (503) -> Host (421) -> Origin (403) -> CORS preflight -> who (401)
//!   -> session (404; another pod's: streamed there, done) -> body (413) -> peek (400) -> backend (tools | http) -> stream back
//! ```
//!
//! Each step is a module of its own; `exchange` has the last line. A step that refuses ends the way: nothing behind it sees the request.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::body::{self, Body};
use crate::door::{Door, Phase};
use crate::exchange::Exchange;
use crate::headers::{self, REQUEST_ID, Seen};
use crate::health;
use crate::host;
use crate::log::Entry;
use crate::origin::{self, Cors};
use crate::refusal::{self, Refusal, Waiting};
use crate::route::Route;
use crate::rules::Rules;
use crate::session::forward;
use crate::session::place::{self, Asked};
use crate::sse;
use crate::who;
use crate::wire::fault::Fault;

/// What the rim saw when a request arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Wall clock, for expiry.
    pub wall: Timestamp,
    /// Monotonic clock, for deadlines.
    pub instant: Instant,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Why it is no request at all.
    pub fault: Option<Fault>,
    /// Whether its connection is one too many.
    pub beyond: bool,
    /// Whether another pod passed it on, which has seen it in front of everything that is only done once.
    pub forwarded: bool,
}

/// Answers one request.
pub async fn answer(door: Arc<Door>, arrival: Arrival, request: Request<Body>) -> Response<Body> {
    let (mut parts, mut body) = request.into_parts();
    let version = parts.version;
    let request_id = headers::request_id(&parts.headers).unwrap_or_else(|| door.next_request_id().into());
    let mut entry = Entry::new(&parts, &request_id);
    let expects = parts.headers.contains_key(EXPECT);
    let mut response = match checked(&door, &arrival, &mut parts, &mut body, &request_id, &mut entry).await {
        Ok(response) => response,
        Err(refused) => {
            let mut answer = refused.response(&door, &mut entry);
            // Whoever waits for a word before sending the body has it now. What is left of another's is not read here: the
            // socket throws it away when it closes.
            if expects || !body::discard(&mut body).await {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    };
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, request_id);
    if version >= Version::HTTP_2 {
        headers.remove(CONNECTION); // there is none in HTTP/2
    } else if door.phase() >= Phase::Leaving {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if !arrival.forwarded {
        door.metrics.answered(response.status());
    }
    entry.write(response.status(), arrival.instant);
    response
}

/// A refusal, with what is known of the request.
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// Who waits for an answer.
    pub waiting: Waiting,
    /// The page that it came from.
    pub cors: Option<Box<Cors>>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, waiting: Waiting::Nobody, cors: None }
    }
}

impl Refused {
    fn response(self, door: &Door, entry: &mut Entry) -> Response<Body> {
        door.metrics.refused(&self.refusal);
        entry.refused(&self.refusal);
        let mut response = self.refusal.into_response(&self.waiting);
        if let Some(cors) = self.cors {
            cors.finish(response.headers_mut());
        }
        response
    }
}

type Answer = Result<Response<Body>, Refused>;

/// Health, Host, Origin, CORS.
async fn checked(
    door: &Arc<Door>,
    arrival: &Arrival,
    parts: &mut Parts,
    body: &mut Body,
    request_id: &HeaderValue,
    entry: &mut Entry,
) -> Answer {
    if let Some(fault) = arrival.fault {
        return Err(Refusal::Wire(fault).into());
    }
    let rules = door.rules();
    if let Some(answer) = health::answer(door, rules.as_deref(), parts) {
        return Ok(answer);
    }
    let rules = rules.ok_or(Refusal::NotConfigured)?;
    let host = host::check(&rules.hosts, parts)?;
    let cors = origin::check(&rules.origins, &host, &parts.headers)?;
    let (peer, proxied) = (arrival.peer, rules.proxies.has(arrival.peer));
    let seen = Seen { peer, proxied, host, request_id: request_id.clone() };
    let answer = match cors.preflight(parts) {
        Some(preflight) => Ok(preflight),
        None if arrival.beyond => Err(Refusal::Crowded.into()),
        None => routed(door, &rules, arrival, parts, body, seen, entry).await,
    };
    match answer {
        // The pod that the page called finishes its answer.
        answer if arrival.forwarded => answer,
        Ok(mut response) => {
            cors.finish(response.headers_mut());
            Ok(response)
        }
        Err(refused) => Err(Refused { cors: Some(Box::new(cors)), ..refused }),
    }
}

/// Route and who; then the endpoint.
async fn routed(
    door: &Arc<Door>,
    rules: &Arc<Rules>,
    arrival: &Arrival,
    parts: &mut Parts,
    body: &mut Body,
    seen: Seen,
    entry: &mut Entry,
) -> Answer {
    let event_stream = || headers::asks(&parts.headers, "text/event-stream");
    let route = match rules.paths.find(&parts.method, parts.uri.path(), event_stream) {
        Route::WellKnown => return Ok(text(StatusCode::NOT_FOUND, "Not found\n".into())),
        Route::Person => return Ok(text(StatusCode::OK, hint(rules.paths.endpoint()))),
        // The hint names nothing that is not on the page, and spares people a search for a key that would not help.
        Route::Nowhere => return Err(Refusal::NotFound { endpoint: rules.paths.endpoint().to_owned() }.into()),
        route @ (Route::Endpoint | Route::Stream | Route::Messages) => route,
    };
    let principal = who::check(&door.keys(), rules.anonymous, &parts.headers, arrival.wall)?;
    entry.caller(&principal);
    who::strip_key(&mut parts.uri);
    let asked = Asked { parts, route, principal: &principal, now: arrival.wall, forwarded: arrival.forwarded };
    let standing = place::tell(&door.sessions, rules, &asked);
    if let Some(away) = standing.away() {
        // On the heap, so that a request that stays here has no room for it.
        let posts = route == Route::Endpoint && parts.method == Method::POST;
        let room = door.metrics.room_for_body(rules.body_bytes_total);
        if !posts || !Box::pin(forward::initializes(body, room, arrival.instant + rules.body_timeout)).await? {
            let answer = Box::pin(forward::pass_on(door, away, &seen, parts, body)).await?;
            return Ok(if posts { gathered(answer).await } else { answer });
        }
    }
    let mut exchange = Exchange::begin(door, rules, *arrival, principal, seen, &parts.method)?;
    exchange.standing = standing;
    match route {
        // On the heap, so that they take no room in every request.
        Route::Stream => Box::pin(sse::open(exchange, parts)).await,
        Route::Messages => Box::pin(sse::message(exchange, parts, body, entry)).await,
        _ => {
            let (response, deadline) = exchange.serve(parts, body, entry).await?;
            let answer = exchange.stream_back(response, deadline);
            // What is no stream has been waited for already, where it came from the backend.
            let begins = parts.method == Method::POST && headers::is_event_stream(answer.headers());
            Ok(if begins && !arrival.forwarded { gathered(answer).await } else { answer })
        }
    }
}

/// The beginning of an answer to a POST waits a moment, see [`body::gathered`].
async fn gathered(answer: Response<Body>) -> Response<Body> {
    let (head, body) = answer.into_parts();
    Response::from_parts(head, body::gathered(body).await)
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    refusal::own(status, "text/plain; charset=utf-8", text)
}

fn hint(endpoint: &str) -> String {
    format!(
        "This is an MCP server. Its endpoint is {endpoint}: add it to an MCP client, with your key as a Bearer token in \
         Authorization, or in x-api-key.\n"
    )
}
