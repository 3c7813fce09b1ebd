//! A client on `/sse` before a server that speaks Streamable HTTP: the front door plays the newer client. Each message
//! is one exchange of the usual kind, with all of its checks; what comes of it is copied to the client's stream, event by
//! event. The server's session id is kept here, and its own stream is read once the client has said `initialized`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::event::{EVENT_MAXIMUM, Events, MESSAGE, encode};
use super::life::Life;
use super::outbox::{Gone, Outbox, outbox};
use super::view::{FromServer, Id, from_server, given_up};
use super::{Older, Said, begun, deadline, endpoint_event, upstream, with_status};
use crate::body::{Body, empty};
use crate::clock;
use crate::door::Door;
use crate::era::LEGACY;
use crate::exchange::Exchange;
use crate::headers::{LAST_EVENT_ID, SESSION, Seen, VERSION, is_event_stream};
use crate::log::Entry;
use crate::pipeline::{Arrival, Refused};
use crate::refusal::{INTERNAL_ERROR, INVALID_REQUEST, Refusal, Waiting};
use crate::rules::Rules;
use crate::session::place::Standing;
use crate::stream::Failed;
use crate::who::Principal;

const INITIALIZED: &str = "notifications/initialized";

/// Pause before a broken stream is resumed, where the server does not say.
const RETRY: Duration = Duration::from_secs(1);
/// Longest pause before a stream is asked for again that brought nothing.
const RETRY_MAXIMUM: Duration = Duration::from_secs(60);
/// Longest part of a server's error text that is told.
const TOLD_MAXIMUM: usize = 200;

/// One client's session.
#[derive(Debug)]
pub struct Session {
    life: Life,
    outbox: Outbox,
    /// The query of the client's stream; each message carries it on.
    query: Option<String>,
    learned: Mutex<Learned>,
    /// Requests that wait for their answers, in their order, to be given up by their ids.
    waiting: Mutex<BTreeMap<u64, (Id, CancellationToken)>>,
    /// How many there have been.
    requests: AtomicU64,
}

/// What the server's answers told.
#[derive(Debug, Default)]
struct Learned {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// Its own stream is read.
    listens: bool,
    /// It has forgotten the session.
    is_over: bool,
}

impl Learned {
    fn hear(&mut self, response: &Response<Body>) {
        match response.headers().get(SESSION) {
            Some(session) if response.status().is_success() => {
                self.session.get_or_insert_with(|| session.clone());
            }
            _ => self.is_over |= response.status() == StatusCode::NOT_FOUND && self.session.is_some(),
        }
    }
}

/// For whom exchanges are made that no message asks for.
struct Caller {
    door: Arc<Door>,
    rules: Arc<Rules>,
    principal: Principal,
    seen: Seen,
    headers: HeaderMap,
    /// When the call timeout of the message ends.
    deadline: Instant,
    /// Is told where a message that was accepted fails.
    failed: Failed,
}

impl Caller {
    fn of(exchange: &Exchange, headers: HeaderMap) -> Self {
        Self {
            door: Arc::clone(&exchange.door),
            rules: Arc::clone(&exchange.rules),
            principal: exchange.principal.clone(),
            seen: exchange.seen.clone(),
            headers,
            deadline: deadline(exchange),
            failed: Arc::clone(&exchange.failed),
        }
    }

    /// An exchange that begins now, without a body.
    async fn ask(&self, mut parts: Parts) -> Result<Response<Body>, Refused> {
        let (wall, instant, peer) = (clock::wall(), clock::instant(), self.seen.peer);
        let arrival = Arrival { wall, instant, peer, fault: None, beyond: false, forwarded: false };
        let mut entry = Entry::new(&parts, &self.seen.request_id);
        let (principal, seen) = (self.principal.clone(), self.seen.clone());
        let mut exchange = Exchange::begin(&self.door, &self.rules, arrival, principal, seen, &parts.method)?;
        let (response, deadline) = exchange.serve(&mut parts, &mut empty(), &mut entry).await?;
        Ok(exchange.stream_back(response, deadline))
    }
}

/// How a stream of the server ended.
#[derive(Default)]
struct Ended {
    /// The answer that was waited for has passed.
    answered: bool,
    /// Something came.
    brought: bool,
    last: Option<String>,
    retry: Option<Duration>,
}

impl Session {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, (Id, CancellationToken)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request and numbers it: clients may use one id for several.
    fn wait(&self, id: Id, given_up: CancellationToken) -> u64 {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        self.waiting().insert(number, (id, given_up));
        number
    }

    /// Gives up the latest request with this id, which for a server has the place of all others.
    fn give_up(&self, id: &Id) {
        let mut waiting = self.waiting();
        let latest = waiting.iter().rev().find(|(_, (waits, _))| waits == id).map(|(number, _)| *number);
        if let Some((_, given_up)) = latest.and_then(|number| waiting.remove(&number)) {
            given_up.cancel();
        }
    }

    fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's stream.
    pub fn open(exchange: Exchange, parts: &Parts) -> Result<Response<Body>, Refused> {
        let (outbox, inbox) = outbox();
        let query = parts.uri.query().map(str::to_owned);
        let session = Arc::new(Self {
            life: Life::default(),
            outbox,
            query,
            learned: Mutex::default(),
            waiting: Mutex::default(),
            requests: AtomicU64::default(),
        });
        let member = exchange.admit(Older::Played(Arc::clone(&session)))?;
        let caller = Caller::of(&exchange, parts.headers.clone());
        let first = endpoint_event(&exchange, member.token())?;
        exchange.door.calls.spawn(Arc::clone(&session).take_leave(caller));
        let body = upstream::after(first, inbox.boxed_unsync());
        // A stop ends it behind what is queued.
        Ok(begun(exchange, body, &session.life, member, std::future::pending()))
    }

    /// A message of the client. A request is accepted at once and answered on the stream. All else is passed on first,
    /// because no later message may overtake it.
    pub async fn message(
        self: Arc<Self>,
        exchange: Exchange,
        headers: HeaderMap,
        said: Said,
    ) -> Result<Response<Body>, Refused> {
        let caller = Caller::of(&exchange, headers);
        if !matches!(said.waiting, Waiting::Nobody) {
            let running = self.life.begin()?;
            let given_up = CancellationToken::new();
            let number = said.id().map(|id| self.wait(id, given_up.clone()));
            let tasks = exchange.door.calls.clone();
            tasks.spawn(async move {
                tokio::select! {
                    () = self.life.ended() => {}
                    () = given_up.cancelled() => {}
                    () = self.answer(exchange, &caller, said) => drop(number.and_then(|number| self.waiting().remove(&number))),
                }
                drop(running);
            });
            return Ok(with_status(StatusCode::ACCEPTED));
        }
        let given_up = given_up(&said.bytes).and_then(Id::of);
        let mut response = self.exchange(exchange, &caller, said.bytes).await?;
        if !response.status().is_success() {
            response.headers_mut().remove(SESSION);
            return Ok(response);
        }
        if let Some(id) = given_up {
            self.give_up(&id);
        }
        let initialized = said.method.as_deref() == Some(INITIALIZED);
        if initialized && !std::mem::replace(&mut self.learned().listens, true) {
            let tasks = caller.door.calls.clone();
            tasks.spawn(async move {
                tokio::select! {
                    () = self.life.ended() => {}
                    () = self.listen(&caller) => {}
                }
            });
        }
        Ok(with_status(StatusCode::ACCEPTED))
    }

    /// One exchange of the usual kind.
    async fn exchange(&self, mut exchange: Exchange, caller: &Caller, bytes: Bytes) -> Result<Response<Body>, Refused> {
        exchange.standing = Standing::Raw; // the server's id is known here alone
        let mut parts = self.parts(&Method::POST, caller.headers.clone())?;
        let mut entry = Entry::new(&parts, &exchange.seen.request_id);
        let (response, deadline) = exchange.message(&mut parts, bytes, &mut entry).await?;
        Ok(exchange.stream_back(response, deadline))
    }

    /// The head of a request as a Streamable HTTP client would write it.
    fn parts(&self, method: &Method, headers: HeaderMap) -> Result<Parts, Refusal> {
        let query = self.query.as_ref().map_or_else(String::new, |query| format!("?{query}"));
        let request = Request::builder().method(method.clone()).uri(format!("/{query}")).body(());
        let (mut parts, ()) = request.map_err(|_| Refusal::SessionUnknown)?.into_parts(); // it was a URI before
        parts.headers = headers;
        let accepted = if *method == Method::GET { "text/event-stream" } else { "application/json, text/event-stream" };
        parts.headers.insert(ACCEPT, HeaderValue::from_static(accepted));
        parts.headers.remove(SESSION);
        parts.headers.remove(LAST_EVENT_ID);
        let learned = self.learned();
        if let Some(session) = &learned.session {
            parts.headers.insert(SESSION, session.clone());
        }
        if let Some(version) = learned.version.as_ref().filter(|_| !parts.headers.contains_key(VERSION)) {
            parts.headers.insert(VERSION, version.clone());
        }
        Ok(parts)
    }

    /// Brings the answer to a request, or to a batch, on its way; where there is none, an error.
    async fn answer(&self, exchange: Exchange, caller: &Caller, said: Said) {
        let (id, Said { bytes, revision, waiting, .. }) = (said.id(), said);
        let answered = match revision {
            // Only the newest revision names itself, and it does not have this transport.
            Some(requested) => {
                let supported = LEGACY.map(str::to_owned).to_vec();
                Err(Refusal::VersionUnsupported { requested, supported, code: INVALID_REQUEST }.into())
            }
            None => self.exchange(exchange, caller, bytes).await,
        };
        let last = match answered {
            Ok(response) => self.deliver(caller, response, id, &waiting).await,
            Err(Refused { refusal, .. }) => {
                (caller.failed)(&refusal);
                Some(refusal.message(&waiting).into())
            }
        };
        if let Some(message) = last {
            let _ = self.send(&message).await; // whoever reads no more needs no answer
        }
        if self.learned().is_over {
            self.outbox.finish(); // the older transport has no other word for it
        }
    }

    /// Copies an answer to the client's stream. What comes back is the message that is still to be sent: the answer, or
    /// the error where there is none.
    async fn deliver(
        &self,
        caller: &Caller,
        response: Response<Body>,
        wanted: Option<Id>,
        waiting: &Waiting,
    ) -> Option<Bytes> {
        let failed =
            |reason: &str| Some(waiting.error(INTERNAL_ERROR, &format!("The MCP server {reason}"), None).into());
        let status = response.status();
        self.learned().hear(&response);
        if status.is_success() && is_event_stream(response.headers()) {
            return match timeout_at(caller.deadline, self.follow(caller, response, wanted.as_ref())).await {
                Ok(Ok(true) | Err(Gone)) => None,
                Ok(Ok(false)) => failed("ended its answer without a message"),
                Err(_) => {
                    (caller.failed)(&Refusal::BackendSlow);
                    failed("did not answer in time")
                }
            };
        }
        let Some(data) = bounded(response.into_body()).await else {
            return failed("broke off, or its answer is too large");
        };
        match from_server(&data) {
            FromServer::Answer { id, version, .. } if Some(&id) == wanted.as_ref() => {
                self.settle(version);
                Some(data)
            }
            _ if wanted.is_none() && status.is_success() && !data.is_empty() => Some(data), // the answers to a batch
            _ => failed(format!("answered HTTP {status}{}", told(&data)).as_str()),
        }
    }

    /// Copies a stream of the server until the wanted answer has passed, or, where none is wanted, to its end. A server may
    /// end a stream early and wait to be asked for the rest (2025-11-25).
    async fn follow(&self, caller: &Caller, first: Response<Body>, wanted: Option<&Id>) -> Result<bool, Gone> {
        let mut response = first;
        let mut last = None;
        loop {
            let end = self.copy(response, wanted).await?;
            last = end.last.or(last);
            if end.answered || last.is_none() {
                return Ok(end.answered || wanted.is_none());
            }
            tokio::time::sleep(end.retry.unwrap_or(RETRY)).await;
            let Ok(stream) = self.stream(caller, last.as_deref()).await else { return Ok(wanted.is_none()) };
            response = stream;
        }
    }

    /// Copies the events of one answer.
    async fn copy(&self, response: Response<Body>, wanted: Option<&Id>) -> Result<Ended, Gone> {
        let mut events = Events::new(response.into_body());
        let mut end = Ended::default();
        // A stream that breaks has ended, too.
        while let Ok(Some(mut event)) = events.next().await {
            end.last = event.id.take().filter(|id| !id.is_empty()).or(end.last);
            end.retry = event.retry.or(end.retry);
            let Some(message) = event.message() else { continue };
            end.brought = true;
            let answered = match from_server(&message) {
                FromServer::Answer { id, version, .. } if wanted == Some(&id) => {
                    self.settle(version);
                    true
                }
                _ => false,
            };
            self.send(&message).await?;
            if answered {
                return Ok(Ended { answered, ..end });
            }
        }
        Ok(end)
    }

    /// The server's own stream, from after an event on.
    async fn stream(&self, caller: &Caller, last: Option<&str>) -> Result<Response<Body>, Refused> {
        let mut parts = self.parts(&Method::GET, caller.headers.clone())?;
        if let Some(last) = last.and_then(|last| HeaderValue::try_from(last).ok()) {
            parts.headers.insert(LAST_EVENT_ID, last);
        }
        let response = caller.ask(parts).await?;
        let is_stream = response.status().is_success() && is_event_stream(response.headers());
        if is_stream { Ok(response) } else { Err(Refusal::BackendWithoutEndpoint.into()) }
    }

    /// Reads the server's own stream, if it has one, for as long as the session lives.
    async fn listen(&self, caller: &Caller) {
        let (mut last, mut pause) = (None, RETRY);
        while let Ok(response) = self.stream(caller, last.as_deref()).await {
            let Ok(end) = self.copy(response, None).await else { return };
            pause = if end.brought { RETRY } else { (pause * 2).min(RETRY_MAXIMUM) };
            last = end.last.or(last);
            tokio::time::sleep(end.retry.unwrap_or(pause)).await;
        }
    }

    /// Ends the client's stream when the front door stops, and the server's session when that stream has ended.
    async fn take_leave(self: Arc<Self>, caller: Caller) {
        tokio::select! {
            () = self.life.ended() => {}
            () = self.life.stopped(&caller.door) => self.outbox.finish(),
        }
        self.life.ended().await;
        if self.learned().session.is_some()
            && let Ok(parts) = self.parts(&Method::DELETE, caller.headers.clone())
        {
            drop(caller.ask(parts).await); // a server may answer it as it likes
        }
    }

    async fn send(&self, message: &[u8]) -> Result<(), Gone> {
        self.outbox.send(encode(MESSAGE, message)).await
    }

    /// Notes the revision that both ends speak from now on.
    fn settle(&self, version: Option<String>) {
        if let Some(version) = version.and_then(|version| HeaderValue::try_from(version).ok()) {
            self.learned().version.get_or_insert(version);
        }
    }
}

/// A whole body, if it is no larger than an event may be.
async fn bounded(mut body: Body) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            if bytes.len() + data.len() > EVENT_MAXIMUM {
                return None;
            }
            bytes.extend_from_slice(&data);
        }
    }
    Some(bytes.freeze())
}

/// What a server says of its refusal.
fn told(data: &[u8]) -> String {
    let value: Value = serde_json::from_slice(data).unwrap_or_default();
    let message = value.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
    let message: String = message.chars().take(TOLD_MAXIMUM).collect();
    if message.is_empty() { message } else { format!(": {message}") }
}
