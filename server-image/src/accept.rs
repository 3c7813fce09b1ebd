//! The rim: connections. It accepts them, stamps each request with the time and the peer, closes those on which nothing
//! happens, and lets all end in an orderly way. What a request means it does not know.

use std::convert::Infallible;
use std::error::Error as _;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::body::{Body, BodyError};
use crate::clock;
use crate::door::Phase;
use crate::headers::{self, REQUEST_ID};
use crate::metrics::{Listener, Metrics};
use crate::pipeline::Arrival;
use crate::wire::answer::{Answer, Streams};
use crate::wire::fault::Fault;
use crate::wire::limits::{self, WireLimits};
use crate::wire::lost;
use crate::wire::socket::{Protocol, Socket};
use crate::wire::traffic::Traffic;

/// How often an HTTP/2 connection is asked whether it lives.
const PING: Duration = Duration::from_secs(30);
/// Most requests at once on one HTTP/2 connection.
const STREAMS: u32 = 256;
/// Most bytes of one body on their way from another pod, all of which share the connection. It tells often of what it has
/// taken, so a slow link is not taken for a dead one.
const WINDOW: u32 = 64 * 1024;
/// What the HTTP library keeps of one connection, at most; above the largest head that `limits.headerBytes` allows.
const BUFFER: usize = 72 * 1024;
/// A head of HTTP/2 is read, to be refused in our words, up to so many bytes beyond `limits.headerBytes`; clients are told
/// the sum. The library decodes all that has arrived before it hands on any of it, so this bounds what many such heads take
/// at once. What is larger it refuses itself with a bare 431, and what is larger than four times that ends the connection.
const OVERSIZE: usize = 8 * 1024;
/// Headers for which the HTTP library has room without allocating it.
const HEADERS: usize = 100;
/// So many connections beyond `limits.connections` are kept long enough to be told so, and to answer probes.
const BEYOND: usize = 256;
/// How long a connection without a request that was told to end may take for it, before it is told again.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept (no file descriptors left), so that the loop does not spin.
const PAUSE: Duration = Duration::from_millis(50);

/// What holds at one listener.
#[derive(Clone)]
pub struct Rim {
    /// Which one it is.
    pub listener: Listener,
    /// Its limits in force.
    pub limits: limits::Source,
    /// Where its connections are counted.
    pub metrics: Arc<Metrics>,
}

/// Accepts connections until the phase is [`Phase::Stopping`]; connections run on `connections`.
pub async fn serve<H, F>(
    listener: TcpListener,
    rim: Rim,
    mut phases: watch::Receiver<Phase>,
    connections: TaskTracker,
    handler: H,
) where
    H: Fn(Arrival, Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let open = rim.metrics.connections(rim.listener);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phases.wait_for(|phase| *phase == Phase::Stopping) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let counted = Open::of(&open);
        let limits = (rim.limits)();
        let beyond = counted.count().saturating_sub(limits.connections);
        if beyond > BEYOND {
            rim.metrics.cut(rim.listener, "shed");
            continue;
        }
        // A socket without them still works.
        let _ = stream.set_nodelay(true);
        let _ = lost::notice(&stream, lost::patience(limits.write_timeout));
        let held = connection(stream, peer.ip(), beyond > 0, rim.clone(), phases.clone(), handler.clone());
        connections.spawn(async move {
            held.await;
            drop(counted);
        });
    }
}

/// Counts a connection while it is open.
pub struct Open(Gauge);

impl Open {
    /// One of those that `gauge` counts.
    pub fn of(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }

    fn count(&self) -> usize {
        usize::try_from(self.0.get()).unwrap_or_default()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// One connection, from its first byte to its last. Where it is one too many (`beyond`), it is told so.
pub async fn connection<S, H, F>(
    stream: S,
    peer: IpAddr,
    beyond: bool,
    rim: Rim,
    mut phases: watch::Receiver<Phase>,
    handler: H,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Fn(Arrival, Request<Body>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let traffic = Arc::new(Traffic::new(clock::instant()));
    let limits = Arc::clone(&rim.limits);
    let limits: limits::Source = if beyond { Arc::new(move || limits().beyond()) } else { limits };
    let mut socket = Socket::new(stream, Arc::clone(&limits), Arc::clone(&traffic));
    tokio::select! {
        arrived = socket.arrive() => if !matches!(arrived, Ok(true)) { return },
        () = tokio::time::sleep(limits().idle_timeout) => return rim.metrics.cut(rim.listener, "idle"),
        _ = phases.wait_for(|phase| *phase == Phase::Stopping) => return,
    }
    let Ok(Some(protocol)) = socket.protocol().await else { return };
    let (requests, held) = (Arc::clone(&traffic), Arc::clone(&limits));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (running, fault) = requests.begin(clock::instant);
        let (fault, request) = match protocol {
            Protocol::Http1 => (fault, request),
            Protocol::Http2 => match too_much(&request, &held()) {
                None => (None, request),
                fault => (fault, stand_in(request)),
            },
        };
        let (wall, instant) = (clock::wall(), clock::instant());
        let arrival = Arrival { wall, instant, peer, fault, beyond, forwarded: false };
        let request = request.map(|body| body.map_err(BodyError::from).boxed_unsync());
        // On the heap, so that a connection whose answer streams for hours does not keep the room of the whole pipeline.
        let answer = Box::pin(handler(arrival, request));
        async move { Ok::<_, Infallible>(answer.await.map(|body| Answer::new(body, running))) }
    });
    let (socket, in_force) = (TokioIo::new(socket), limits());
    let end = End { protocol, phases, traffic, limits, rim };
    match protocol {
        Protocol::Http1 => end.drive(http_1(&in_force).serve_connection(socket, service)).await,
        // It takes more room than the other.
        Protocol::Http2 => {
            let Rim { listener, metrics, .. } = end.rim.clone();
            let streams =
                Streams { limits: Arc::clone(&end.limits), cut: move || metrics.cut(listener, "slow_reader") };
            Box::pin(end.drive(http_2(streams, listener, &in_force).serve_connection(socket, service))).await;
        }
    }
}

/// The library's own limits and times are off or above ours, which know where a request begins.
fn http_1(limits: &WireLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(BUFFER).half_close(false);
    if limits.header_count > HEADERS {
        builder.max_headers(limits.header_count);
    }
    builder
}

fn http_2<S: Clone>(streams: S, listener: Listener, limits: &WireLimits) -> http2::Builder<S> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(limits.header_bytes.saturating_add(OVERSIZE)).unwrap_or(u32::MAX));
    if listener == Listener::PEER {
        // One connection carries many clients, who may all leave in one moment: that is no attack.
        builder.max_pending_accept_reset_streams(STREAMS as usize);
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW * (STREAMS + 1));
    }
    builder
}

/// The limits of a head in HTTP/2, where the socket does not see it.
fn too_much<B>(request: &Request<B>, limits: &WireLimits) -> Option<Fault> {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if target > limits.uri_bytes {
        return Some(Fault::UriTooLong { limit: limits.uri_bytes });
    }
    if request.headers().len() > limits.header_count {
        return Some(Fault::TooManyHeaders { limit: limits.header_count });
    }
    (head_size(request) > limits.header_bytes).then_some(Fault::HeadTooLarge { limit: limits.header_bytes })
}

/// The size of a head as HTTP/2 counts it (RFC 9113 section 6.5.2): of each field, pseudo-headers among them, name and value
/// and 32 bytes more.
fn head_size<B>(request: &Request<B>) -> usize {
    let field = |name: &str, value: usize| name.len() + value + 32;
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| field(":authority", authority.as_str().len()));
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let scheme = uri.scheme_str().unwrap_or("http").len(); // the library keeps none without an authority
    let pseudo = field(":method", request.method().as_str().len()) + field(":scheme", scheme) + field(":path", target);
    let headers = request.headers().iter().map(|(name, value)| field(name.as_str(), value.len()));
    pseudo + authority + headers.sum::<usize>()
}

/// What is handed on in the place of a request that is none: of a refused head no more is kept while its body arrives than
/// the id by which it is found in the logs of who is in front.
fn stand_in<B>(request: Request<B>) -> Request<B> {
    // A copy: the value itself keeps the whole head.
    let id = headers::request_id(request.headers()).and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
    let version = request.version();
    let mut stand_in = Request::new(request.into_body());
    *stand_in.version_mut() = version;
    *stand_in.method_mut() = Method::from_bytes(b"REFUSED").unwrap_or_default(); // as the socket has it in HTTP/1
    stand_in.headers_mut().extend(id.map(|id| (REQUEST_ID, id)));
    stand_in
}

/// The metric label of a connection that the library ended because it asked for too much work: more CONTINUATION frames than
/// a head needs, heads far beyond the limit, streams begun and reset in quick succession.
fn excess(error: &hyper::Error) -> Option<&'static str> {
    let error = error.source()?.downcast_ref::<h2::Error>()?;
    (error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)).then_some("enhance_your_calm")
}

/// Decides when a connection ends.
struct End {
    protocol: Protocol,
    phases: watch::Receiver<Phase>,
    traffic: Arc<Traffic>,
    limits: limits::Source,
    rim: Rim,
}

impl End {
    async fn drive(mut self, connection: impl GracefulConnection<Error = hyper::Error>) {
        let mut connection = pin!(connection);
        let mut idle = false;
        let mut look = pin!(tokio::time::sleep((self.limits)().idle_timeout));
        loop {
            match *self.phases.borrow_and_update() {
                Phase::Serving => {}
                // HTTP/1 connections are told with the next answer (`Connection: close`), so that none is closed under a
                // request that is on its way; HTTP/2 has GOAWAY for it.
                Phase::Leaving | Phase::Draining if self.protocol == Protocol::Http1 => {}
                Phase::Leaving | Phase::Draining | Phase::Stopping => connection.as_mut().graceful_shutdown(),
            }
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = &ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    let excessive = || excess(ended.as_ref().err()?);
                    if let Some(reason) = self.traffic.given_up().or_else(excessive).or(idle.then_some("idle")) {
                        self.rim.metrics.cut(self.rim.listener, reason);
                    }
                    return;
                }
                Ok(()) = self.phases.changed() => {}
                () = look.as_mut() => {
                    let now = clock::instant();
                    let limits = (self.limits)();
                    let due = self.traffic.idle_since().unwrap_or(now) + limits.idle_timeout;
                    idle = due <= now;
                    if self.protocol == Protocol::Http2 && due + limits.write_timeout <= now {
                        // Its client leaves the last of an answer, and with it the connection, open for ever.
                        return self.rim.metrics.cut(self.rim.listener, "slow_reader");
                    }
                    if idle {
                        connection.as_mut().graceful_shutdown();
                    }
                    look.as_mut().reset(due.max(now + GRACE));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_refused_head_is_kept_but_its_id() {
        for (header, kept) in [("a", 0), ("x-request-id", 1)] {
            let request = Request::put("http://a/long").version(http::Version::HTTP_2).header(header, "b");
            let stand_in = stand_in(request.header("c", "d").body("rest").unwrap());
            assert_eq!((stand_in.method().as_str(), stand_in.uri().to_string().as_str()), ("REFUSED", "/"));
            assert_eq!((stand_in.version(), *stand_in.body()), (http::Version::HTTP_2, "rest"));
            let headers: Vec<_> =
                stand_in.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            assert_eq!(headers, vec![("x-request-id", &b"b"[..]); kept]);
        }
    }
}
