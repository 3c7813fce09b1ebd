//! The way to other pods: one request of a client, streamed to the pod that owns its session. Of a POST just enough is
//! looked at to tell an `initialize`, which is not passed on.
//!
//! Connections are HTTP/2 without TLS, proved once ([`proof`]) and shared by many requests. A pod that cannot be reached is
//! remembered for a moment, so that a storm costs one attempt. Once a request has begun to leave, nothing is tried again.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, EXPECT, HOST};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jiff::Timestamp;
use memchr::memmem;
use mooring_contract::door_status::{Unreachable, UnreachablePeer};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use super::keys::InForce;
use super::peer::CLIENT;
use super::place::Away;
use super::pod::Pod;
use super::silence::{self, Listened};
use super::{entropy, proof};
use crate::body::{self, Arriving, Body, BodyError, empty};
use crate::clock;
use crate::door::{Door, Phase};
use crate::headers::{self, REQUEST_ID, SESSION, Seen};
use crate::peek;
use crate::refusal::Refusal;
use crate::sse::upstream;
use crate::stream::{self, Terms};
use crate::who::API_KEY;
use crate::wire::load::Room;

/// Longest time until a pod is reached, or others who try have failed to. A front door that is started anew refuses
/// connections for a second or two.
const REACH: Duration = Duration::from_secs(5);
/// Pause after a refused connection.
const RETRY: Duration = Duration::from_millis(200);
/// Longest time for one connection and its proof.
pub const ATTEMPT: Duration = Duration::from_secs(2);
/// How long a pod that could not be reached is not tried again.
const REMEMBERED: Duration = Duration::from_secs(2);
/// How long it is told of.
const TOLD: Duration = Duration::from_secs(5 * 60);
/// A connection that was not used for so long is not used any more. Its other end may have closed it before.
const IDLE: Duration = Duration::from_secs(30);
/// A pod that has said nothing for so long is asked for a sign of life. How long it may be silent, [`silence`] decides.
const PING: Duration = Duration::from_secs(2);
/// Most requests at once on one connection. The other end admits 256.
const SHARED: u32 = 200;
/// Largest head of an answer, as much as is taken from a backend.
const HEAD: u32 = 400 * 1024;
/// Most bytes of one answer on their way. All answers of a connection together have room for as much each, so that one
/// that its client does not read holds up no other.
const WINDOW: u32 = 64 * 1024;

/// Other pods.
#[derive(Debug, Default)]
pub struct Peers {
    port: u16,
    pods: Mutex<HashMap<Pod, Arc<Peer>>>,
    failures: Mutex<HashMap<Pod, Failure>>,
    connections: TaskTracker,
}

/// The connections to one pod. The lock is held while one is made, so that all who want it wait for one attempt.
type Peer = tokio::sync::Mutex<Vec<Line>>;

/// One connection.
#[derive(Debug)]
struct Line {
    sender: SendRequest<Body>,
    /// When a request on it ended last. Each that has not ended holds one.
    shared: Arc<Mutex<Instant>>,
}

/// A request's place on a connection.
#[derive(Debug)]
struct Share(Arc<Mutex<Instant>>);

impl Drop for Share {
    fn drop(&mut self) {
        *lock(&self.0) = clock::instant();
    }
}

/// A connection for one request.
type Taken = (SendRequest<Body>, Share);

impl Line {
    fn new(sender: SendRequest<Body>) -> Self {
        Self { sender, shared: Arc::new(Mutex::new(clock::instant())) }
    }

    fn take(&self) -> Taken {
        (self.sender.clone(), Share(Arc::clone(&self.shared)))
    }

    fn is_good(&self, now: Instant) -> bool {
        !self.sender.is_closed() && (Arc::strong_count(&self.shared) > 1 || *lock(&self.shared) + IDLE > now)
    }

    fn has_room(&self) -> bool {
        Arc::strong_count(&self.shared) <= SHARED as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    reason: Unreachable,
    since: Timestamp,
    last: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    /// Pods whose peer listeners are at `port`.
    pub fn at(port: u16) -> Self {
        Self { port, ..Self::default() }
    }

    fn peer(&self, pod: Pod) -> Arc<Peer> {
        let mut pods = lock(&self.pods);
        if !pods.contains_key(&pod) {
            // Pods come and go.
            pods.retain(|_, peer| {
                Arc::strong_count(peer) > 1
                    || peer.try_lock().is_ok_and(|lines| lines.iter().any(|line| !line.sender.is_closed()))
            });
        }
        Arc::clone(pods.entry(pod).or_default())
    }

    /// A proved connection to the pod.
    async fn reach(&self, pod: Pod, key: &InForce) -> Result<Taken, Unreachable> {
        let (deadline, peer) = (clock::instant() + REACH, self.peer(pod));
        // Whoever tries may be a client that leaves before it knows, and so may be the next.
        let mut lines = timeout_at(deadline, peer.lock()).await.map_err(|_| Unreachable::TimedOut)?;
        let now = clock::instant();
        lines.retain(|line| line.is_good(now));
        if let Some(line) = lines.iter().find(|line| line.has_room()) {
            return Ok(line.take());
        }
        if let Some(failure) = lock(&self.failures).get(&pod).filter(|failure| failure.last + REMEMBERED > now) {
            return Err(failure.reason);
        }
        match self.connect(pod, key, deadline).await {
            Ok(sender) => {
                lock(&self.failures).remove(&pod);
                let line = Line::new(sender);
                let taken = line.take();
                lines.push(line);
                Ok(taken)
            }
            Err(reason) => {
                tracing::info!(pod = %pod.uid, address = %pod.address, ?reason, "the pod of a session cannot be reached");
                let last = clock::instant();
                let mut failures = lock(&self.failures);
                failures.retain(|_, failure| failure.last + TOLD > last);
                let since = failures.get(&pod).map_or_else(clock::wall, |failure| failure.since);
                failures.insert(pod, Failure { reason, since, last });
                Err(reason)
            }
        }
    }

    /// Tries, and where connections are refused, again until `deadline`. The address of a pod that is gone refuses none.
    async fn connect(&self, pod: Pod, key: &InForce, deadline: Instant) -> Result<SendRequest<Body>, Unreachable> {
        loop {
            let attempt = timeout_at(deadline.min(clock::instant() + ATTEMPT), self.attempt(pod, key)).await;
            match attempt.unwrap_or(Err(Unreachable::TimedOut)) {
                Err(Unreachable::Refused) if clock::instant() + RETRY < deadline => tokio::time::sleep(RETRY).await,
                ended => return ended,
            }
        }
    }

    async fn attempt(&self, pod: Pod, key: &InForce) -> Result<SendRequest<Body>, Unreachable> {
        let stream = TcpStream::connect((pod.address, self.port)).await;
        let mut stream = stream.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Unreachable::Refused,
            io::ErrorKind::TimedOut => Unreachable::TimedOut,
            _ => Unreachable::Failed,
        })?;
        let _ = stream.set_nodelay(true); // a socket without it still works
        // Whoever hangs up without a word begins, stops or has no room: that is no word against who it is.
        if !matches!(stream.peek(&mut [0]).await, Ok(1..)) {
            return Err(Unreachable::Refused);
        }
        let number = entropy().map_err(|_| Unreachable::Failed)?;
        proof::call(&mut stream, key, pod.uid, number).await.map_err(|_| Unreachable::Unproved)?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(silence::LONGEST * 2)
            .keep_alive_while_idle(true)
            .max_header_list_size(HEAD)
            .initial_max_send_streams(SHARED as usize)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * (SHARED + 1));
        let stream = TokioIo::new(Listened::new(stream));
        let (sender, connection) = builder.handshake(stream).await.map_err(|_| Unreachable::Failed)?;
        self.connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::info!(pod = %pod.uid, %error, "the connection to another pod broke");
            }
        });
        Ok(sender)
    }

    /// The pods that could not be reached of late.
    pub fn unreachable(&self, now: Instant) -> Vec<UnreachablePeer> {
        let failures = lock(&self.failures);
        let told =
            failures.iter().filter(|(_, failure)| failure.last + TOLD > now).map(|(pod, failure)| UnreachablePeer {
                pod_uid: pod.uid.to_string(),
                address: pod.address.to_string(),
                reason: failure.reason,
                since: failure.since,
            });
        let mut told: Vec<_> = told.collect();
        told.sort_unstable_by(|a, b| a.pod_uid.cmp(&b.pod_uid));
        told
    }
}

/// Streams a request to the pod of its session, and its answer back. `body` is left alone where that pod cannot be reached.
pub async fn pass_on(
    door: &Arc<Door>,
    away: Away,
    seen: &Seen,
    parts: &mut Parts,
    body: &mut Body,
) -> Result<Response<Body>, Refusal> {
    let ring = door.sessions.ring().ok_or(Refusal::SessionUnknown)?;
    let key = ring.find(away.key).ok_or(Refusal::SessionUnknown)?;
    let taken = reach(door, away.owner, key).await?;
    let (method, head) = (parts.method.clone(), request(parts, seen)?);
    door.metrics.forwarded();
    let request = head.map(|()| std::mem::replace(body, empty()));
    let (mut response, share) = send(door, away.owner, key, taken, request).await?;
    headers::strip_hop_by_hop(response.headers_mut());
    let response = response
        .map(|body| body.map_frame(move |frame| counted(&share, frame)).map_err(BodyError::from).boxed_unsync());
    Ok(if method == Method::GET { until_stopped(door, response) } else { response })
}

/// A part of an answer, which holds its place on the connection until it has passed.
fn counted<T>(_: &Share, frame: T) -> T {
    frame
}

async fn reach(door: &Door, owner: Pod, key: &InForce) -> Result<Taken, Refusal> {
    door.sessions.peers.reach(owner, key).await.map_err(|reason| {
        door.metrics.forward_failed(reason);
        Refusal::SessionUnknown
    })
}

/// Sends it. A connection may turn out to be closed before a byte has left: then another one is made, once.
async fn send(
    door: &Door,
    owner: Pod,
    key: &InForce,
    (mut sender, mut share): Taken,
    mut request: Request<Body>,
) -> Result<(Response<Incoming>, Share), Refusal> {
    for last in [false, true] {
        let mut error = match sender.try_send_request(request).await {
            Ok(response) => return Ok((response, share)),
            Err(error) => error,
        };
        let Some(unsent) = error.take_message().filter(|_| !last) else {
            let error = error.into_error();
            tracing::info!(pod = %owner.uid, %error, "the pod of a session broke off");
            break;
        };
        request = unsent;
        (sender, share) = reach(door, owner, key).await?;
    }
    Err(Refusal::PeerBroken)
}

/// Most of a body that is looked at.
const BEGINNING: usize = 64 * 1024;

/// Whether a body is an `initialize`, which every pod answers itself whatever old session it names; one is short. The body
/// is as it was afterwards. What is to be passed on keeps its `room`; an `initialize` has its own when it is read.
pub async fn initializes(body: &mut Body, room: Room, deadline: Instant) -> Result<bool, Refusal> {
    let (mut beginning, mut whole) = (Arriving::new(None, BEGINNING as u64, room), false);
    while !whole && beginning.length() < BEGINNING {
        match timeout_at(deadline, body.frame()).await.map_err(|_| Refusal::BodySlow)? {
            None => whole = true,
            Some(frame) => {
                let frame = frame.map_err(|error| body::broken(error.as_ref()))?;
                beginning.push(frame.into_data().unwrap_or_default())?;
                whole = body.is_end_stream();
            }
        }
    }
    let (beginning, room) = beginning.finish();
    let initializes = whole && memmem::find(&beginning, b"initialize").is_some() && is_initialize(&beginning);
    let beginning = if initializes { beginning } else { body::held(beginning, room) };
    *body = if whole { body::full(beginning) } else { upstream::after(beginning, std::mem::replace(body, empty())) };
    Ok(initializes)
}

fn is_initialize(bytes: &[u8]) -> bool {
    peek::peek(bytes).is_ok_and(|reading| reading.initializes())
}

/// A stream without end must not hold up the stop of a pod that has no part in it.
fn until_stopped(door: &Door, response: Response<Body>) -> Response<Body> {
    let mut phases = door.phases();
    let end = Box::pin(async move {
        let _ = phases.wait_for(|phase| *phase == Phase::Stopping).await;
    });
    let terms = Terms { deadline: None, failed: None, end: Some(end), comments: false, in_flight: None };
    response.map(|body| stream::under(terms, body))
}

/// The head for the other pod: the client's, with the authority that it named and what was seen of it. What it says of a
/// proxy goes along: that pod knows by its own rules whether to believe it of this peer.
fn request(parts: &mut Parts, seen: &Seen) -> Result<Request<()>, Refusal> {
    let authority = Authority::try_from(seen.host.as_bytes()).map_err(|_| Refusal::HostMalformed)?;
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query(target).build();
    let mut request = Request::new(());
    *request.uri_mut() = uri.map_err(|_| Refusal::HostMalformed)?;
    *request.method_mut() = parts.method.clone();
    let mut headers = std::mem::take(&mut parts.headers);
    headers::strip_hop_by_hop(&mut headers);
    headers.remove(HOST);
    headers.remove(EXPECT);
    headers.insert(REQUEST_ID, seen.request_id.clone());
    for (name, value) in &mut headers {
        // The connection is shared: what is secret stays out of the tables by which it is compressed (RFC 7541 section 7.1).
        value.set_sensitive([AUTHORIZATION, API_KEY, SESSION].contains(name));
    }
    if let Ok(client) = HeaderValue::try_from(seen.peer.to_canonical().to_string()) {
        headers.insert(CLIENT, client);
    }
    *request.headers_mut() = headers;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;
    use crate::session::keys::tests::ring;
    use crate::session::pod::Uid;

    #[tokio::test]
    async fn what_is_looked_at_keeps_its_room_until_it_is_passed_on() {
        const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
        const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let (all, deadline) = (Gauge::default(), clock::instant() + ATTEMPT);
        for (text, initialize, kept) in [(INITIALIZE, true, 0), (PING, false, PING.len())] {
            let mut body = body::full(text);
            assert_eq!(initializes(&mut body, Room::among(&all, 100), deadline).await, Ok(initialize));
            assert_eq!(usize::try_from(all.get()), Ok(kept), "{text}");
            assert_eq!(body.collect().await.unwrap().to_bytes(), text);
            assert_eq!(all.get(), 0, "{text}");
            let refused = initializes(&mut body::full(text), Room::among(&all, 1), deadline).await;
            assert_eq!((refused, all.get()), (Err(Refusal::BodiesFull), 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_others_who_try_has_an_end() {
        let (peers, ring) = (Peers::at(1), ring(&[("current", 1)]));
        let pod = Pod { uid: Uid([1; 16]), address: [127, 0, 0, 1].into() };
        let peer = peers.peer(pod);
        let _tries = peer.lock().await;
        assert_eq!(peers.reach(pod, ring.current()).await.unwrap_err(), Unreachable::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_from_the_end_of_its_last_request() {
        let (one, _other) = tokio::io::duplex(1024);
        let (sender, _connection) =
            http2::handshake::<_, _, Body>(TokioExecutor::new(), TokioIo::new(one)).await.unwrap();
        let line = Line::new(sender);
        let taken = line.take();
        tokio::time::advance(IDLE * 9).await;
        assert!(line.is_good(clock::instant()), "its request runs");
        drop(taken);
        tokio::time::advance(IDLE / 2).await;
        assert!(line.is_good(clock::instant()));
        tokio::time::advance(IDLE / 2).await;
        assert!(!line.is_good(clock::instant()));
    }

    #[test]
    fn what_is_secret_stays_out_of_the_tables_of_a_shared_connection() {
        let names = [AUTHORIZATION, API_KEY, SESSION, REQUEST_ID];
        let mut asked = Request::new(());
        for name in &names {
            asked.headers_mut().insert(name, HeaderValue::from_static("a"));
        }
        let request_id = HeaderValue::from_static("a");
        let (peer, host) = ([10, 0, 0, 9].into(), HeaderValue::from_static("mcp.example.com"));
        let seen = Seen { peer, proxied: false, host, request_id };
        let head = request(&mut asked.into_parts().0, &seen).unwrap();
        assert_eq!(names.map(|name| head.headers()[name].is_sensitive()), [true, true, true, false]);
    }
}
