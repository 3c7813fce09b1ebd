//! The end of the way: a request that passed every check meets the backend. Decides how its body is read, how long it may
//! take, and what holds while its answer streams back.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::body::{self, Body, empty};
use crate::commit;
use crate::door::{Door, Phase};
use crate::headers::{self, Seen};
use crate::log::Entry;
use crate::metrics::InFlight;
use crate::peek::{self, Message};
use crate::pipeline::{Arrival, Refused};
use crate::refusal::Refusal;
use crate::relay::Outgoing;
use crate::rules::{Backend, Rules};
use crate::stream::{self, Terms};
use crate::who::Principal;

/// The methods of the endpoint.
const ALLOWED: &str = "GET, POST, DELETE, OPTIONS";
/// What the endpoint of declared tools has of them.
const ALLOWED_TOOLS: &str = "POST, OPTIONS";
/// The request whose answer may take long.
const CALL: &str = "tools/call";
/// A modern request whose answer is a stream without end, so that no call timeout holds.
const LISTEN: &str = "subscriptions/listen";

type Answer = Result<Response<Body>, Refusal>;

/// One exchange.
pub struct Exchange {
    door: Arc<Door>,
    rules: Arc<Rules>,
    arrival: Arrival,
    principal: Principal,
    seen: Seen,
    in_flight: InFlight,
}

impl Exchange {
    /// Begins an exchange, and counts it.
    pub fn begin(door: &Arc<Door>, rules: &Arc<Rules>, arrival: Arrival, principal: Principal, seen: Seen) -> Self {
        let in_flight = door.metrics.begin();
        Self { door: Arc::clone(door), rules: Arc::clone(rules), arrival, principal, seen, in_flight }
    }

    /// Serves the request.
    pub async fn serve(self, parts: Parts, body: &mut Body, entry: &mut Entry) -> Result<Response<Body>, Refused> {
        match parts.method {
            Method::POST => self.post(parts, body, entry).await,
            Method::GET | Method::DELETE => Ok(self.bodiless(parts).await?),
            Method::OPTIONS => {
                let mut response = Response::new(empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(self.allowed()));
                Ok(response)
            }
            _ => Err(Refusal::MethodNotAllowed { allow: self.allowed() }.into()),
        }
    }

    fn allowed(&self) -> &'static str {
        match &self.rules.backend {
            Backend::Http(_) => ALLOWED,
            Backend::Tools(_) => ALLOWED_TOOLS,
        }
    }

    /// A message: read it whole, look at it, pass it on.
    async fn post(self, parts: Parts, body: &mut Body, entry: &mut Entry) -> Result<Response<Body>, Refused> {
        let deadline = self.arrival.instant + self.rules.call_timeout;
        let bytes = body::read(&parts.headers, body, self.rules.body_bytes, deadline).await?;
        let message = peek::peek(&bytes)?;
        entry.method(message.method());
        let id = message.id().map(RawValue::to_owned);
        let deadline = (message.method() != Some(LISTEN)).then_some(deadline);
        let patient = message.method() == Some(CALL) && headers::asks(&parts.headers, "text/event-stream");
        let asking = self.ask(outgoing(parts, bytes), Some(message), deadline);
        let answer = match &id {
            Some(id) if patient => commit::patiently(asking, id.clone()).await,
            _ => asking.await,
        };
        let response = answer.map_err(|refusal| Refused { refusal, id, cors: None })?;
        Ok(self.stream_back(response, deadline))
    }

    /// GET opens a stream, DELETE ends a session.
    async fn bodiless(self, mut parts: Parts) -> Answer {
        let deadline = (parts.method == Method::DELETE).then(|| self.arrival.instant + self.rules.call_timeout);
        parts.headers.remove(CONTENT_TYPE); // there is no body
        let response = self.ask(outgoing(parts, Bytes::new()), None, deadline).await?;
        Ok(self.stream_back(response, deadline))
    }

    /// Asks the backend, until the headers of its answer are there. The future stands for itself, because it may go on
    /// after the answer to the client has begun.
    fn ask(
        &self,
        outgoing: Outgoing,
        message: Option<Message>,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let (door, rules, seen) = (Arc::clone(&self.door), Arc::clone(&self.rules), self.seen.clone());
        let unwelcome = Arc::clone(&self.door).until_unwelcome(self.principal.clone(), false);
        async move {
            let answer = async {
                match &rules.backend {
                    Backend::Http(relay) => relay.exchange(outgoing, &seen).await,
                    Backend::Tools(tools) => match message {
                        Some(message) => tools.answer(&outgoing.headers, &outgoing.body, message, &door.calls).await,
                        None => Err(Refusal::MethodNotAllowed { allow: ALLOWED_TOOLS }),
                    },
                }
            };
            if let Some(deadline) = deadline {
                return timeout_at(deadline, answer).await.unwrap_or(Err(Refusal::BackendSlow));
            }
            // A stream without end may take its time, as long as the caller is welcome.
            tokio::select! {
                answer = answer => answer,
                () = unwelcome => match door.phase() {
                    Phase::Stopping => Err(Refusal::Stopping),
                    Phase::Serving | Phase::Leaving => Err(Refusal::Unauthorized),
                },
            }
        }
    }

    fn stream_back(mut self, response: Response<Body>, deadline: Option<Instant>) -> Response<Body> {
        let mut terms = Terms { deadline, end: None, comments: false, in_flight: None };
        if headers::is_event_stream(response.headers()) {
            self.in_flight.as_stream(&self.door.metrics);
            // In a compressed stream nothing can be written between the events.
            terms.comments = !response.headers().contains_key(CONTENT_ENCODING);
            terms.end = Some(Box::pin(self.door.until_unwelcome(self.principal, deadline.is_some())));
        }
        terms.in_flight = Some(self.in_flight);
        response.map(|body| stream::under(terms, body))
    }
}

fn outgoing(parts: Parts, body: Bytes) -> Outgoing {
    Outgoing { query: parts.uri.query().map(str::to_owned), method: parts.method, headers: parts.headers, body }
}
