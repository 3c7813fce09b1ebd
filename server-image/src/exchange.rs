//! The end of the way: a request that passed every check meets the backend. Decides how its body is read, how long it may
//! take, and what holds while its answer streams back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::time::Instant;

use crate::admit::{self, Admitted};
use crate::body::{self, Body, Patience, empty};
use crate::commit;
use crate::door::{Door, Phase};
use crate::era::Era;
use crate::headers::{self, LAST_EVENT_ID, SESSION, Seen};
use crate::log::{self, Entry};
use crate::metrics::{InFlight, Metrics};
use crate::peek::{self, Reading};
use crate::pipeline::{Arrival, Refused};
use crate::refusal::Refusal;
use crate::relay::Outgoing;
use crate::rules::{Backend, Rules};
use crate::session::part::Part;
use crate::session::place::Standing;
use crate::session::registry::InUse;
use crate::sse::bridge;
use crate::stream::{self, End, Failed, Terms};
use crate::who::Principal;

/// The methods of the endpoint.
const ALLOWED: &str = "GET, POST, DELETE, OPTIONS";
/// What an endpoint without sessions has of them.
const ALLOWED_STATELESS: &str = "POST, OPTIONS";

type Answer = Result<Response<Body>, Refusal>;
/// An answer, and when it must have ended.
type Served = (Response<Body>, Option<Instant>);

/// What is to be waited for.
enum Work {
    /// The backend's answer.
    Relay(Outgoing),
    /// Our own.
    Answer(BoxFuture<'static, Response<Body>>),
}

/// One exchange.
pub struct Exchange {
    /// What is in force.
    pub door: Arc<Door>,
    /// The rules that it began under.
    pub rules: Arc<Rules>,
    /// When it began.
    pub arrival: Arrival,
    /// Who asks.
    pub principal: Principal,
    /// What was seen of the request.
    pub seen: Seen,
    /// What its session ids mean.
    pub standing: Standing,
    /// Counts and logs what goes wrong once the answer has begun.
    pub failed: Failed,
    in_flight: InFlight,
}

impl Exchange {
    /// Begins an exchange, and counts it, where there is room for it.
    pub fn begin(
        door: &Arc<Door>,
        rules: &Arc<Rules>,
        arrival: Arrival,
        principal: Principal,
        seen: Seen,
        method: &Method,
    ) -> Result<Self, Refusal> {
        let room = match *method {
            Method::GET => door.load.stream(principal.subject(), rules.streams)?,
            _ => door.load.request(rules.requests)?,
        };
        let in_flight = door.metrics.begin(room);
        let failed = once(&door.metrics, &principal, &seen, arrival.instant);
        Ok(Self {
            door: Arc::clone(door),
            rules: Arc::clone(rules),
            arrival,
            principal,
            seen,
            standing: Standing::Raw,
            failed,
            in_flight,
        })
    }

    /// Serves the request, and tells when the answer must have ended.
    pub async fn serve(&mut self, parts: &mut Parts, body: &mut Body, entry: &mut Entry) -> Result<Served, Refused> {
        match parts.method {
            Method::POST => self.post(parts, body, entry).await,
            Method::GET | Method::DELETE => Ok(self.bodiless(parts).await?),
            Method::OPTIONS => {
                let mut response = Response::new(empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(self.allowed()));
                Ok((response, None))
            }
            _ => Err(Refusal::MethodNotAllowed { allow: self.allowed() }.into()),
        }
    }

    fn allowed(&self) -> &'static str {
        match &self.rules.backend {
            Backend::Http(_) | Backend::Sse(_) if !self.standing.is_stateless() => ALLOWED,
            _ => ALLOWED_STATELESS,
        }
    }

    /// Messages: read them whole, look at them, pass them on.
    async fn post(&mut self, parts: &mut Parts, body: &mut Body, entry: &mut Entry) -> Result<Served, Refused> {
        let timeout = self.rules.call_timeout.min(self.rules.body_timeout);
        let bytes = self.read(&parts.headers, body, self.arrival.instant + timeout).await?;
        self.message(parts, bytes, entry).await
    }

    /// Reads a body within the limits.
    pub async fn read(&self, headers: &HeaderMap, body: &mut Body, deadline: Instant) -> Result<Bytes, Refusal> {
        let room = self.door.metrics.room_for_body(self.rules.body_bytes_total);
        body::read(headers, body, self.rules.body_bytes, room, deadline).await
    }

    /// Serves messages that were read, and tells when the answer must have ended.
    pub async fn message(&mut self, parts: &mut Parts, bytes: Bytes, entry: &mut Entry) -> Result<Served, Refused> {
        let deadline = self.arrival.instant + self.rules.call_timeout;
        let takes_events = headers::asks(&parts.headers, "text/event-stream");
        let (admitted, part, work) = self.judge(parts, &bytes, entry)?;
        let deadline = (!admitted.endless).then_some(deadline);
        let asking = Box::pin(self.ask(work, deadline.is_none()));
        let answer = if admitted.slow && takes_events {
            commit::patiently(deadline, asking, &admitted.waiting, &self.failed).await
        } else {
            commit::until(deadline, asking).await
        };
        let response = answer.map_err(|refusal| admitted.refused(refusal))?;
        let settled = part.settle(self, response).await.map_err(|refusal| admitted.refused(refusal))?;
        let mut response = self.keep(settled);
        if admitted.era == Era::Modern {
            without_session(response.headers_mut());
        }
        Ok((response, deadline))
    }

    /// Looks at messages: whether they may pass, what sessions have to do with them, and what is to be waited for.
    fn judge(
        &mut self,
        parts: &mut Parts,
        bytes: &Bytes,
        entry: &mut Entry,
    ) -> Result<(Admitted, Part, Work), Refused> {
        let reading = peek::peek(bytes)?;
        if let Reading::One(message) = &reading {
            entry.method(message.method());
        }
        let answered = self.door.answered();
        let admitted = admit::admit(&parts.headers, &reading, answered.only_era())?;
        if admitted.endless {
            let room = self.door.load.stream(self.principal.subject(), self.rules.streams);
            self.in_flight.moves_to(room.map_err(|refusal| admitted.refused(refusal))?);
        }
        self.door.metrics.messages(admitted.messages);
        let part = match admitted.era {
            Era::Modern => Part::Raw,
            Era::Legacy => Part::of(self, reading.initializes(), parts).map_err(|refusal| admitted.refused(refusal))?,
        };
        let work = match &self.rules.backend {
            Backend::Http(_) | Backend::Sse(_) => {
                if admitted.era == Era::Modern {
                    without_session(&mut parts.headers);
                }
                Work::Relay(outgoing(parts, bytes.clone()))
            }
            Backend::Tools(tools) => {
                let answer = tools.answer(&parts.headers, &reading, admitted.era, &self.door.calls);
                Work::Answer(answer.map_err(|refusal| admitted.refused(refusal))?)
            }
        };
        Ok((admitted, part, work))
    }

    /// GET opens a stream, DELETE ends a session.
    async fn bodiless(&mut self, parts: &mut Parts) -> Result<Served, Refusal> {
        headers::single(&parts.headers)?;
        headers::legal_session(&parts.headers)?;
        if self.standing.is_stateless() {
            return Err(Refusal::MethodNotAllowed { allow: self.allowed() });
        }
        let part = Part::of(self, false, parts)?;
        let deadline = (parts.method == Method::DELETE).then(|| self.arrival.instant + self.rules.call_timeout);
        parts.headers.remove(CONTENT_TYPE); // there is no body
        let asking = Box::pin(self.ask(Work::Relay(outgoing(parts, Bytes::new())), deadline.is_none()));
        let response = commit::until(deadline, asking).await?;
        let settled = part.settle(self, response).await?;
        Ok((self.keep(settled), deadline))
    }

    /// Keeps the session of an answer in use until the answer has ended.
    fn keep(&mut self, (response, session): (Response<Body>, Option<InUse>)) -> Response<Body> {
        self.in_flight.keeps(session);
        response
    }

    /// Waits for the answer, until its headers are there; where it is a stream without end, as long as the caller is welcome.
    /// The future stands for itself, because it may go on after the answer to the client has begun.
    fn ask(&self, work: Work, endless: bool) -> impl Future<Output = Answer> + Send + use<> {
        let (door, rules, seen) = (Arc::clone(&self.door), Arc::clone(&self.rules), self.seen.clone());
        let principal = self.principal.clone();
        async move {
            let answer = async {
                match (work, &rules.backend) {
                    (Work::Answer(answer), _) => Ok(answer.await),
                    (Work::Relay(outgoing), Backend::Http(relay)) => {
                        unbroken(relay.exchange(&outgoing, &seen).await?).await
                    }
                    // On the heap, so that it takes no room in the calls of other backends.
                    (Work::Relay(outgoing), Backend::Sse(relay)) => {
                        Box::pin(bridge::answer(&door, relay, outgoing, principal.subject(), &seen)).await
                    }
                    (Work::Relay(_), Backend::Tools(_)) => Err(Refusal::MethodNotAllowed { allow: ALLOWED_STATELESS }),
                }
            };
            if !endless {
                return answer.await;
            }
            let unwelcome = Box::pin(Arc::clone(&door).until_unwelcome(principal.clone(), false));
            tokio::select! {
                answer = answer => answer,
                () = unwelcome => match door.phase() {
                    Phase::Stopping => Err(Refusal::Stopping),
                    Phase::Serving | Phase::Leaving | Phase::Draining => Err(Refusal::Unauthorized),
                },
            }
        }
    }

    /// Streams an answer back, until `deadline` where there is one.
    pub fn stream_back(mut self, mut response: Response<Body>, deadline: Option<Instant>) -> Response<Body> {
        let mut terms = Terms { deadline, failed: Some(self.failed), end: None, comments: false, in_flight: None };
        if headers::is_event_stream(response.headers()) {
            self.in_flight.as_stream(&self.door.metrics);
            // In a compressed stream nothing can be written between the events.
            terms.comments = !headers::is_coded(response.headers());
            if terms.comments {
                response.headers_mut().remove(CONTENT_LENGTH); // it gets longer with each of them
            }
            terms.end = Some(Box::pin(self.door.until_unwelcome(self.principal, deadline.is_some())));
        }
        terms.in_flight = Some(self.in_flight);
        response.map(|body| stream::under(terms, body))
    }

    /// Streams events back until `end`.
    pub fn stream_until(mut self, response: Response<Body>, end: End) -> Response<Body> {
        self.in_flight.as_stream(&self.door.metrics);
        let comments = !headers::is_coded(response.headers());
        let terms = Terms { deadline: None, failed: None, end: Some(end), comments, in_flight: Some(self.in_flight) };
        response.map(|body| stream::under(terms, body))
    }
}

/// The answer as it is, unless it breaks off at its beginning and is of no use in parts: then there is none.
async fn unbroken(response: Response<Body>) -> Answer {
    if headers::is_event_stream(response.headers()) {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    Ok(Response::from_parts(head, body::unbroken(body, Patience::Moment).await?))
}

/// Counts and logs a failure of one exchange, once: a call that is too slow is noticed both where its answer is waited for and
/// where that streams.
fn once(metrics: &Arc<Metrics>, caller: &Principal, seen: &Seen, arrival: Instant) -> Failed {
    let (metrics, caller, request_id) = (Arc::clone(metrics), caller.clone(), seen.request_id.clone());
    let told = AtomicBool::new(false);
    Arc::new(move |refusal| {
        if !told.swap(true, Ordering::Relaxed) {
            metrics.refused(refusal);
            log::failed(&request_id, &caller, refusal, arrival);
        }
    })
}

/// Takes the headers out of `parts`.
fn outgoing(parts: &mut Parts, body: Bytes) -> Outgoing {
    let headers = std::mem::take(&mut parts.headers);
    Outgoing { query: parts.uri.query().map(str::to_owned), method: parts.method.clone(), headers, body }
}

/// The modern era has no sessions and resumes nothing: what says so is ignored, and never told.
fn without_session(headers: &mut HeaderMap) {
    headers.remove(SESSION);
    headers.remove(LAST_EVENT_ID);
}
