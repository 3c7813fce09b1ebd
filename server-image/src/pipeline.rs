//! The whole way of a request, on one page:
//!
//! ```text
//! accept -> health -> Host (421) -> Origin (403) -> CORS preflight -> who (401)
//!   -> body (413) -> peek (400) -> backend (tools | http) -> stream back
//! ```
//!
//! Each step is a module of its own. A step that refuses ends the way: nothing behind it sees the request.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::body::{self, Body, empty, full};
use crate::commit;
use crate::door::{Door, Phase};
use crate::headers::{self, REQUEST_ID, Seen};
use crate::health;
use crate::host;
use crate::log::Entry;
use crate::metrics::InFlight;
use crate::origin::{self, Cors};
use crate::peek::{self, Message};
use crate::refusal::Refusal;
use crate::relay::Outgoing;
use crate::route::Route;
use crate::rules::{Backend, Rules};
use crate::stream::{self, Terms};
use crate::who::{self, Principal};

/// What the rim saw when a request arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Wall clock, for expiry.
    pub wall: Timestamp,
    /// Monotonic clock, for deadlines.
    pub instant: Instant,
    /// Address of the peer.
    pub peer: IpAddr,
}

/// The methods of the endpoint.
const ALLOWED: &str = "GET, POST, DELETE, OPTIONS";
const EVENTS: &str = "text/event-stream";
/// The method whose answer may take long.
const CALL: &str = "tools/call";
/// A modern request whose answer is a stream without end, so that no call timeout holds.
const LISTEN: &str = "subscriptions/listen";

/// Answers one request.
pub async fn answer(door: &Arc<Door>, arrival: Arrival, request: Request<Body>) -> Response<Body> {
    let (parts, mut body) = request.into_parts();
    let version = parts.version;
    let request_id = headers::request_id(&parts.headers).unwrap_or_else(|| made_request_id(door));
    let mut entry = Entry::new(&parts, &request_id);
    let mut response = match checked(door, arrival, parts, &mut body, &request_id, &mut entry).await {
        Ok(response) => response,
        Err(refused) => refused.response(door, &mut entry, body),
    };
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, request_id);
    if version >= Version::HTTP_2 {
        headers.remove(CONNECTION); // there is none in HTTP/2
    } else if door.phase() >= Phase::Leaving {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    door.metrics.answered(response.status());
    entry.write(response.status(), arrival.instant);
    response
}

/// A refusal, with what is known of the request: its id, and the page that it came from.
struct Refused {
    refusal: Refusal,
    id: Option<Box<RawValue>>,
    cors: Option<Cors>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, id: None, cors: None }
    }
}

impl Refused {
    fn response(self, door: &Door, entry: &mut Entry, rest: Body) -> Response<Body> {
        door.metrics.refused(&self.refusal);
        entry.refused(&self.refusal);
        let mut response = self.refusal.into_response(self.id.as_deref());
        if let Some(cors) = self.cors {
            cors.finish(response.headers_mut());
        }
        response.map(|answer| body::lingering(answer, rest))
    }
}

type Answer = Result<Response<Body>, Refused>;

/// Health, Host, Origin, CORS.
async fn checked(
    door: &Arc<Door>,
    arrival: Arrival,
    parts: Parts,
    body: &mut Body,
    request_id: &HeaderValue,
    entry: &mut Entry,
) -> Answer {
    let rules = door.rules();
    if let Some(answer) = health::answer(door, rules.as_deref(), &parts) {
        return Ok(answer);
    }
    let rules = rules.ok_or(Refusal::NotConfigured)?;
    let host = host::check(&rules.hosts, &parts)?;
    let cors = origin::check(&rules.origins, &host, &parts.headers)?;
    let seen = Seen { peer: arrival.peer, host, request_id: request_id.clone() };
    let answer = match cors.preflight(&parts) {
        Some(preflight) => Ok(preflight),
        None => routed(door, &rules, arrival, parts, body, seen, entry).await,
    };
    match answer {
        Ok(mut response) => {
            cors.finish(response.headers_mut());
            Ok(response)
        }
        Err(refused) => Err(Refused { cors: Some(cors), ..refused }),
    }
}

/// Route and who; then the endpoint.
async fn routed(
    door: &Arc<Door>,
    rules: &Arc<Rules>,
    arrival: Arrival,
    parts: Parts,
    body: &mut Body,
    seen: Seen,
    entry: &mut Entry,
) -> Answer {
    let event_stream = headers::asks(&parts.headers, EVENTS);
    let route = rules.paths.find(&parts.method, parts.uri.path(), event_stream);
    match route {
        Route::WellKnown => return Ok(text(StatusCode::NOT_FOUND, "Not found\n".into())),
        Route::Person => return Ok(text(StatusCode::OK, hint(rules.paths.endpoint()))),
        Route::Endpoint | Route::Nowhere => {}
    }
    let principal = who::check(&door.keys(), rules.anonymous, &parts.headers, arrival.wall)?;
    entry.caller(&principal);
    if route == Route::Nowhere {
        return Err(Refusal::NotFound { endpoint: rules.paths.endpoint().to_owned() }.into());
    }
    let call = Call { door, rules, principal, seen, in_flight: door.metrics.begin() };
    match parts.method {
        Method::POST => call.post(arrival, parts, body, entry).await,
        Method::GET | Method::DELETE => call.bodiless(arrival, parts).await,
        Method::OPTIONS => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED));
            Ok(response)
        }
        _ => Err(Refusal::MethodNotAllowed { allow: ALLOWED }.into()),
    }
}

/// A request that passed every check.
struct Call<'a> {
    door: &'a Arc<Door>,
    rules: &'a Arc<Rules>,
    principal: Principal,
    seen: Seen,
    in_flight: InFlight,
}

impl Call<'_> {
    /// A message: read it whole, look at it, pass it on.
    async fn post(self, arrival: Arrival, parts: Parts, body: &mut Body, entry: &mut Entry) -> Answer {
        let deadline = arrival.instant + self.rules.call_timeout;
        let bytes = body::read(&parts.headers, body, self.rules.body_bytes, deadline).await?;
        let message = peek::peek(&bytes)?;
        entry.method(message.method());
        let id = message.id().map(RawValue::to_owned);
        let listens = message.method() == Some(LISTEN);
        let waits = message.method() == Some(CALL) && headers::asks(&parts.headers, EVENTS);
        let deadline = (!listens).then_some(deadline);
        let outgoing = Outgoing { method: Method::POST, query: query(&parts), headers: parts.headers, body: bytes };
        let exchange = exchange(
            Arc::clone(self.door),
            Arc::clone(self.rules),
            outgoing,
            Some(message),
            self.seen.clone(),
            deadline,
        );
        let answer = match (waits, id.clone()) {
            (true, Some(id)) => commit::patiently(exchange, id).await,
            _ => exchange.await,
        };
        let response = answer.map_err(|refusal| Refused { refusal, id, cors: None })?;
        Ok(self.stream_back(response, deadline))
    }

    /// GET opens a stream, DELETE ends a session.
    async fn bodiless(self, arrival: Arrival, parts: Parts) -> Answer {
        let ends = parts.method == Method::DELETE;
        let deadline = ends.then(|| arrival.instant + self.rules.call_timeout);
        let outgoing = Outgoing {
            query: query(&parts),
            method: parts.method,
            headers: without_body(parts.headers),
            body: bytes::Bytes::new(),
        };
        let response =
            exchange(Arc::clone(self.door), Arc::clone(self.rules), outgoing, None, self.seen.clone(), deadline)
                .await?;
        Ok(self.stream_back(response, deadline))
    }

    fn stream_back(mut self, response: Response<Body>, deadline: Option<Instant>) -> Response<Body> {
        let is_stream = headers::is_event_stream(response.headers());
        // A compressed stream is passed on as it is: nothing can be written between its events.
        let plain = !response.headers().contains_key(http::header::CONTENT_ENCODING);
        let events = (is_stream && plain).then(|| {
            self.in_flight.as_stream(&self.door.metrics);
            let running = deadline.is_some();
            let door = Arc::clone(self.door);
            Box::pin(door.until_unwelcome(self.principal, running)) as stream::End
        });
        let terms = Terms { deadline, events, in_flight: Some(self.in_flight) };
        response.map(|body| stream::under(terms, body))
    }
}

/// One exchange with the backend, until its headers are there.
async fn exchange(
    door: Arc<Door>,
    rules: Arc<Rules>,
    outgoing: Outgoing,
    message: Option<Message>,
    seen: Seen,
    deadline: Option<Instant>,
) -> Result<Response<Body>, Refusal> {
    let answer = async {
        match &rules.backend {
            Backend::Http(relay) => relay.exchange(outgoing, &seen).await,
            Backend::Tools(tools) => match message {
                Some(message) => tools.answer(&outgoing.headers, &outgoing.body, message, &door.calls).await,
                None => Err(Refusal::MethodNotAllowed { allow: "POST, OPTIONS" }),
            },
        }
    };
    match deadline {
        Some(deadline) => timeout_at(deadline, answer).await.unwrap_or(Err(Refusal::BackendSlow)),
        None => answer.await,
    }
}

fn query(parts: &Parts) -> Option<String> {
    parts.uri.query().map(str::to_owned)
}

fn without_body(mut headers: http::HeaderMap) -> http::HeaderMap {
    headers.remove(CONTENT_TYPE);
    headers
}

fn made_request_id(door: &Door) -> HeaderValue {
    HeaderValue::try_from(door.next_request_id()).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn hint(endpoint: &str) -> String {
    format!(
        "This is an MCP server. Its endpoint is {endpoint}: add it to an MCP client, with your key as a Bearer token in \
         Authorization, or in x-api-key.\n"
    )
}
