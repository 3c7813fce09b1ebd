//! A Streamable HTTP client before a backend that speaks only the older transport. The front door keeps the session: it
//! opens the backend's stream on `initialize`, sends messages to where that says, and brings each of the backend's
//! messages to where it belongs: an answer to the request with its id, progress to the request that brought the token,
//! all else to the client's own stream, or into a bounded store while there is none. Ids pass untouched.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::event::{Events, MESSAGE, encode};
use super::outbox::{Inbox, Outbox, outbox};
use super::registry::Membership;
use super::upstream::{self, Upstream};
use super::view::{FromServer, Id, from_server, given_up, progress_token};
use super::with_status;
use crate::body::Body;
use crate::clock;
use crate::commit::event_stream;
use crate::door::Door;
use crate::headers::{SESSION, Seen, accepts};
use crate::peek::{self, Reading};
use crate::refusal::{Refusal, json};
use crate::relay::{Outgoing, Relay};
use crate::who::Subject;

const INITIALIZE: &str = "initialize";

/// Most bytes that are stored while the client has no stream of its own; the oldest go first.
const STORE_MAXIMUM: usize = 1024 * 1024;
/// Most requests of one session that wait for their answers.
const OPEN_MAXIMUM: usize = 64;

type Answer = Result<Response<Body>, Refusal>;

/// One session.
#[derive(Debug)]
pub struct Session {
    relay: Arc<Relay>,
    target: String,
    /// It ends when nobody used it for so long.
    idle_timeout: Duration,
    state: Mutex<State>,
    ended: CancellationToken,
}

#[derive(Debug)]
struct State {
    open: HashMap<Id, Open>,
    opened: u64,
    /// The client's own stream.
    listener: Option<Outbox>,
    store: VecDeque<Bytes>,
    stored: usize,
    touched: Instant,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Open {
    number: u64,
    outbox: Outbox,
    progress: Option<Id>,
    /// Whether anything but the answer can be told.
    takes_events: bool,
}

/// Keeps a request open.
struct Waiting {
    session: Arc<Session>,
    id: Id,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.session.state();
        if state.open.get(&self.id).is_some_and(|open| open.number == self.number) {
            state.open.remove(&self.id);
        }
    }
}

/// Answers one request of a client.
pub async fn answer(door: &Arc<Door>, relay: &Arc<Relay>, outgoing: Outgoing, subject: Subject, seen: &Seen) -> Answer {
    if outgoing.method == Method::POST {
        let Reading::One(message) = peek::peek(&outgoing.body)? else {
            return Err(Refusal::NotMessage("one message at a time: this server takes no batches".into()));
        };
        if message.method() == Some(INITIALIZE) && message.id().is_some() {
            return initialize(door, relay, outgoing, subject, seen).await;
        }
    }
    let session = door.sse.bridged.find(token(&outgoing.headers)?, &subject)?;
    session.state().touched = clock::instant();
    match outgoing.method {
        Method::POST => session.post(outgoing, seen).await,
        Method::GET if accepts(&outgoing.headers, "text/event-stream") => Ok(session.listen()),
        Method::GET => Err(Refusal::NotAcceptable),
        _ => {
            door.sse.bridged.remove(token(&outgoing.headers)?);
            session.ended.cancel();
            Ok(with_status(StatusCode::NO_CONTENT))
        }
    }
}

fn token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(SESSION).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| Refusal::SessionUnknown),
        _ => Err(Refusal::SessionMissing),
    }
}

/// Opens a session and sends its first message.
async fn initialize(
    door: &Arc<Door>,
    relay: &Arc<Relay>,
    mut outgoing: Outgoing,
    subject: Subject,
    seen: &Seen,
) -> Answer {
    outgoing.headers.remove(SESSION); // whatever it was, this is a new one
    let query = outgoing.query.take();
    let rules = door.rules().ok_or(Refusal::NotConfigured)?;
    let seat = door.seat(&rules)?;
    let Upstream { target, rest } = upstream::open(relay, outgoing.headers.clone(), query, seen).await?;
    let state = State {
        open: HashMap::new(),
        opened: 0,
        listener: None,
        store: VecDeque::new(),
        stored: 0,
        touched: clock::instant(),
    };
    let session = Arc::new(Session {
        relay: Arc::clone(relay),
        target,
        idle_timeout: rules.sessions.idle_timeout,
        state: Mutex::new(state),
        ended: CancellationToken::new(),
    });
    let member = door.sse.bridged.admit(subject, Arc::clone(&session), seat)?;
    let id = member.token().header().ok_or(Refusal::SessionUnknown)?;
    door.sse.readers.spawn(Arc::clone(&session).read(Events::new(rest), member));
    // A client that leaves before it knows its session leaves none behind.
    let unknown = session.ended.clone().drop_guard();
    let mut response = session.post(outgoing, seen).await?;
    if response.status().is_success() {
        response.headers_mut().insert(SESSION, id);
        unknown.disarm();
    }
    Ok(response)
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message; for a request, waits for its answer.
    async fn post(self: &Arc<Self>, mut outgoing: Outgoing, seen: &Seen) -> Answer {
        outgoing.headers.remove(SESSION); // it is ours, and a secret
        let id = match peek::peek(&outgoing.body)? {
            Reading::One(message) => message.id().and_then(Id::of),
            Reading::Batch(_) => None,
        };
        let waits = id.map(|id| self.wait(id, progress_token(&outgoing.body), &outgoing.headers)).transpose()?;
        let (headers, given_up) = (outgoing.headers.clone(), given_up(&outgoing.body));
        outgoing.query = None;
        let response = self.relay.exchange_at(&self.target, &outgoing, seen).await?;
        match response.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                self.ended.cancel();
                Err(Refusal::SessionUnknown)
            }
            status if !status.is_success() => Ok(response),
            _ => match waits {
                None => {
                    if let Some(id) = given_up {
                        self.state().open.remove(&id);
                    }
                    Ok(with_status(StatusCode::ACCEPTED))
                }
                Some((waiting, inbox)) => answered(waiting, inbox, &headers).await,
            },
        }
    }

    /// Registers a request.
    fn wait(self: &Arc<Self>, id: Id, progress: Option<Id>, headers: &HeaderMap) -> Result<(Waiting, Inbox), Refusal> {
        let takes_events = accepts(headers, "text/event-stream");
        if !takes_events && !accepts(headers, "application/json") {
            return Err(Refusal::NotAcceptable);
        }
        let (outbox, inbox) = outbox();
        let mut state = self.state();
        if state.open.contains_key(&id) {
            return Err(Refusal::NotMessage("a request with this id is waiting for its answer already".into()));
        }
        if state.open.len() >= OPEN_MAXIMUM {
            return Err(Refusal::Busy);
        }
        state.opened += 1;
        let number = state.opened;
        state.open.insert(id.clone(), Open { number, outbox, progress, takes_events });
        Ok((Waiting { session: Arc::clone(self), id, number }, inbox))
    }

    /// The client's own stream; an earlier one ends.
    fn listen(self: &Arc<Self>) -> Response<Body> {
        let (outbox, inbox) = outbox();
        let mut state = self.state();
        state.listener = Some(outbox);
        state.stored = 0;
        let stored = std::mem::take(&mut state.store);
        drop(state);
        let stored: Vec<u8> = stored.iter().flat_map(|message| encode(MESSAGE, message)).collect();
        event_stream(upstream::after(stored.into(), events(inbox)))
    }

    /// Reads the backend's stream for as long as the session lives, which ends with it.
    async fn read(self: Arc<Self>, mut events: Events<Body>, member: Membership<Self>) {
        loop {
            tokio::select! {
                () = self.ended.cancelled() => break,
                () = tokio::time::sleep_until(self.idle_at()) => {
                    if self.idle_at() <= clock::instant() {
                        break;
                    }
                }
                event = events.next() => match event {
                    Ok(Some(mut event)) => {
                        if let Some(message) = event.message() {
                            self.route(message).await;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::info!(%error, "the backend's event stream ended");
                        break;
                    }
                },
            }
        }
        drop(member);
        self.ended.cancel();
        let mut state = self.state();
        state.open.clear();
        state.listener = None;
    }

    /// When nobody will have used the session for too long.
    fn idle_at(&self) -> Instant {
        let state = self.state();
        let in_use = !state.open.is_empty() || state.listener.as_ref().is_some_and(Outbox::has_reader);
        (if in_use { clock::instant() } else { state.touched }) + self.idle_timeout
    }

    /// Brings a message of the backend to where it belongs.
    async fn route(&self, message: Bytes) {
        let request = match from_server(&message) {
            FromServer::Answer { id, .. } => {
                let open = self.state().open.remove(&id);
                if let Some(open) = open {
                    let _ = open.outbox.send(message).await; // its client may have gone
                }
                return;
            }
            FromServer::Progress(token) => self.state().progress(&token),
            FromServer::Other => None,
        };
        match request {
            Some(request) => drop(request.send(message).await),
            None => self.tell(message).await,
        }
    }

    /// Tells what belongs to no request: on the client's own stream, else beside its only request, else later.
    async fn tell(&self, message: Bytes) {
        let (listener, beside) = {
            let state = self.state();
            (state.listener.clone(), state.only_request())
        };
        for outbox in listener.into_iter().chain(beside) {
            if outbox.send(message.clone()).await.is_ok() {
                return;
            }
        }
        self.state().store(message);
    }
}

impl State {
    /// The request that brought this token.
    fn progress(&self, token: &Id) -> Option<Outbox> {
        let open = self.open.values().find(|open| open.takes_events && open.progress.as_ref() == Some(token));
        open.map(|open| open.outbox.clone())
    }

    /// The only request that waits, if it can be told more than its answer.
    fn only_request(&self) -> Option<Outbox> {
        let mut open = self.open.values().filter(|open| open.takes_events);
        open.next().filter(|_| self.open.len() == 1).map(|open| open.outbox.clone())
    }

    fn store(&mut self, message: Bytes) {
        self.stored += message.len();
        self.store.push_back(message);
        while self.stored > STORE_MAXIMUM {
            let Some(oldest) = self.store.pop_front() else { break };
            self.stored -= oldest.len();
        }
    }
}

/// The answer to a request: JSON where it comes alone, else an event stream.
async fn answered(waiting: Waiting, mut inbox: Inbox, headers: &HeaderMap) -> Answer {
    let first = inbox.next().await.ok_or(Refusal::BackendBroken)?;
    let alone = matches!(from_server(&first), FromServer::Answer { .. });
    if alone && accepts(headers, "application/json") {
        let text = String::from_utf8(first.into()).map_err(|_| Refusal::BackendBroken)?;
        return Ok(json(StatusCode::OK, text));
    }
    let rest = events(inbox).map_frame(move |frame| {
        let _waiting = &waiting;
        frame
    });
    Ok(event_stream(upstream::after(encode(MESSAGE, &first), rest.boxed_unsync())))
}

/// Messages as events.
fn events(inbox: Inbox) -> Body {
    inbox.map_frame(|frame| frame.map_data(|message| encode(MESSAGE, &message))).boxed_unsync()
}
