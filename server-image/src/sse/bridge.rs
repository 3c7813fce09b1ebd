//! A Streamable HTTP client before a backend that speaks only the older transport. The front door keeps the session: it
//! opens the backend's stream on `initialize`, sends messages to where that says, and brings each of the backend's
//! messages to where it belongs: an answer to the request with its id, progress to the request that brought the token,
//! all else to the client's own stream, or into a bounded store while there is none.
//!
//! Ids pass untouched, unless the backend could take one for another: some clients number all of their requests alike.
//! Then the backend knows the later request by an id of ours, and its client sees its own again, as it wrote it. The same
//! holds for progress tokens.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::event::{Events, MESSAGE, encode};
use super::outbox::{Inbox, Outbox, outbox};
use super::registry::Membership;
use super::upstream::{self, Upstream};
use super::view::{self, FromServer, Id, from_server};
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
    /// By the ids that the backend knows.
    open: HashMap<Id, Open>,
    opened: u64,
    /// A request was given up, and yet may be answered: no later one may be taken for it.
    renames: bool,
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
    id: Name,
    progress: Option<Name>,
    /// Whether anything but the answer can be told.
    takes_events: bool,
}

/// What a request, or its progress, is called.
#[derive(Debug)]
struct Name {
    /// By its client.
    client: Id,
    /// By the backend.
    backend: Id,
    /// What the client wrote, where the backend calls it otherwise.
    written: Option<Box<RawValue>>,
}

impl Name {
    /// As the client wrote it, or `ours`, if something else is called so.
    fn of(written: &RawValue, ours: &Id, is_taken: impl Fn(&Id) -> bool) -> Option<Self> {
        let client = Id::of(written)?;
        let taken = is_taken(&client);
        let backend = if taken { ours } else { &client }.clone();
        Some(Self { client, backend, written: taken.then(|| written.to_owned()) })
    }

    /// A message of the client as the backend is to read it.
    fn renamed(&self, message: Bytes, find: impl Fn(&[u8]) -> Option<&RawValue>) -> Bytes {
        match self.written {
            Some(_) => view::replace(message, find, &self.backend.json()),
            None => message,
        }
    }

    /// A message of the backend as the client is to read it.
    fn restored(&self, message: Bytes, find: impl Fn(&[u8]) -> Option<&RawValue>) -> Bytes {
        match &self.written {
            Some(written) => view::replace(message, find, written.get()),
            None => message,
        }
    }
}

impl Open {
    /// Whether the backend tells its progress under this token.
    fn is_told_by(&self, token: &Id) -> bool {
        self.progress.as_ref().is_some_and(|name| name.backend == *token)
    }
}

/// Keeps a request open.
struct Waiting {
    session: Arc<Session>,
    id: Id,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.session.state().give_up(&self.id, self.number);
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
        renames: false,
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
        outgoing.query = None;
        let said = outgoing.body.clone();
        let id = match peek::peek(&said)? {
            Reading::One(message) => message.id(),
            Reading::Batch(_) => None,
        };
        let waits = id.and_then(|id| self.wait(id, &mut outgoing).transpose()).transpose()?;
        let given_up = self.state().named(&mut outgoing.body);
        let headers = outgoing.headers.clone();
        let response = self.relay.exchange_at(&self.target, &outgoing, seen).await?;
        match response.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                self.ended.cancel();
                Err(Refusal::SessionUnknown)
            }
            status if !status.is_success() => Ok(response),
            _ => match waits {
                None => {
                    if let Some((id, number)) = given_up {
                        self.state().give_up(&id, number);
                    }
                    Ok(with_status(StatusCode::ACCEPTED))
                }
                Some((waiting, inbox)) => answered(waiting, inbox, &headers).await,
            },
        }
    }

    /// Registers a request, and names it as the backend is to know it.
    fn wait(self: &Arc<Self>, id: &RawValue, outgoing: &mut Outgoing) -> Result<Option<(Waiting, Inbox)>, Refusal> {
        let takes_events = accepts(&outgoing.headers, "text/event-stream");
        if !takes_events && !accepts(&outgoing.headers, "application/json") {
            return Err(Refusal::NotAcceptable);
        }
        let (outbox, inbox) = outbox();
        let mut state = self.state();
        if state.open.len() >= OPEN_MAXIMUM {
            return Err(Refusal::Busy);
        }
        let (number, ours) = state.number();
        let Some(id) = Name::of(id, &ours, |id| state.renames || state.open.contains_key(id)) else { return Ok(None) };
        let token = view::progress_token(&outgoing.body);
        let progress = token.and_then(|token| {
            Name::of(token, &ours, |token| state.renames || state.open.values().any(|open| open.is_told_by(token)))
        });
        let body = id.renamed(outgoing.body.clone(), view::written_id);
        outgoing.body = match &progress {
            Some(token) => token.renamed(body, view::progress_token),
            None => body,
        };
        let waiting = Waiting { session: Arc::clone(self), id: id.backend.clone(), number };
        state.open.insert(id.backend.clone(), Open { number, outbox, id, progress, takes_events });
        Ok(Some((waiting, inbox)))
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
        let (request, message) = match from_server(&message) {
            FromServer::Answer { id, .. } => {
                let open = self.state().open.remove(&id);
                if let Some(open) = open {
                    // Its client may have gone.
                    let _ = open.outbox.send(open.id.restored(message, view::written_id)).await;
                }
                return;
            }
            FromServer::Progress(token) => self.state().progress(&token, message),
            FromServer::Other => (None, message),
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
    /// The next request's number, and a name for it that nothing else has.
    fn number(&mut self) -> (u64, Id) {
        loop {
            self.opened += 1;
            let ours = Id::Text(format!("mooring-{}", self.opened));
            let mut open = self.open.iter();
            if !open.any(|(id, open)| *id == ours || open.is_told_by(&ours)) {
                return (self.opened, ours);
            }
        }
    }

    /// The request that a message of the client gives up, by the id that the backend knows, under which the message then
    /// names it. Of several that the client calls alike it is the latest, as it would be without us: a server keeps its
    /// requests by their ids, and so the latest has the place of the others. Those are answered still.
    fn named(&self, message: &mut Bytes) -> Option<(Id, u64)> {
        let id = view::given_up(message).and_then(Id::of)?;
        let open = self.open.values().filter(|open| open.id.client == id).max_by_key(|open| open.number)?;
        *message = open.id.renamed(std::mem::take(message), view::given_up);
        Some((open.id.backend.clone(), open.number))
    }

    /// Nobody waits for the answer any more, which may come all the same.
    fn give_up(&mut self, id: &Id, number: u64) {
        if self.open.get(id).is_some_and(|open| open.number == number) {
            self.open.remove(id);
            self.renames = true;
        }
    }

    /// The request that brought this token, if it can be told more than its answer, and the message as its client is to
    /// read it.
    fn progress(&self, token: &Id, message: Bytes) -> (Option<Outbox>, Bytes) {
        let Some(open) = self.open.values().find(|open| open.is_told_by(token)) else { return (None, message) };
        let message = open.progress.iter().fold(message, |message, token| token.restored(message, view::told_token));
        (open.takes_events.then(|| open.outbox.clone()), message)
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
