//! The rim: sockets. It accepts connections, holds their timeouts, stamps each request with the time and the peer, and
//! lets connections end in an orderly way. What a request means it does not know.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::body::{Body, BodyError};
use crate::clock;
use crate::door::Phase;
use crate::pipeline::Arrival;

/// Longest wait for the headers of a request, and so the longest idle time of a connection: longer than ingresses keep
/// theirs (Traefik 90 s, nginx 60 s), so that none is closed here just as a request is sent.
const HEADERS: Duration = Duration::from_secs(130);
/// Most headers of a request.
const HEADER_COUNT: usize = 100;
/// Largest head of a request.
const HEADER_BYTES: usize = 64 * 1024;
/// How often an HTTP/2 connection is asked whether it lives.
const PING: Duration = Duration::from_secs(30);
/// Most requests at once on one HTTP/2 connection.
const STREAMS: u32 = 256;
/// Pause after a failed accept (no file descriptors left), so that the loop does not spin.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the phase is [`Phase::Stopping`]; connections run on `connections`.
pub async fn serve<H, F>(
    listener: TcpListener,
    mut phases: watch::Receiver<Phase>,
    connections: TaskTracker,
    handler: H,
) where
    H: Fn(Arrival, Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let builder = Arc::new(builder());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phases.wait_for(|phase| *phase == Phase::Stopping) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = connection(Arc::clone(&builder), stream, peer, phases.clone(), handler.clone());
                connections.spawn(connection);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADER_COUNT)
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX));
    builder
}

async fn connection<H, F>(
    builder: Arc<Builder<TokioExecutor>>,
    stream: TcpStream,
    peer: SocketAddr,
    mut phases: watch::Receiver<Phase>,
    handler: H,
) where
    H: Fn(Arrival, Request<Body>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let _ = stream.set_nodelay(true); // a socket without it still works
    let (begun, http_2) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let noted = (Arc::clone(&begun), Arc::clone(&http_2));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        noted.0.store(true, Ordering::Relaxed);
        noted.1.store(request.version() == Version::HTTP_2, Ordering::Relaxed);
        let arrival = Arrival { wall: clock::wall(), instant: clock::instant(), peer: peer.ip() };
        let request = request.map(|body| body.map_err(BodyError::from).boxed_unsync());
        // On the heap, so that a connection whose answer streams for hours does not keep the room of the whole pipeline.
        let answer = Box::pin(handler(arrival, request));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // The protocol is told from the first bytes, for which hyper has no timeout.
    let first = tokio::time::sleep(HEADERS);
    tokio::pin!(first);
    loop {
        let phase = *phases.borrow_and_update();
        match phase {
            Phase::Serving => {}
            // HTTP/1 connections are told with the next answer (`Connection: close`), so that none is closed under a
            // request that is on its way; HTTP/2 has GOAWAY for it.
            Phase::Leaving if !http_2.load(Ordering::Relaxed) => {}
            Phase::Leaving | Phase::Stopping => connection.as_mut().graceful_shutdown(),
        }
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            Ok(()) = phases.changed() => {}
            () = first.as_mut(), if !begun.load(Ordering::Relaxed) => return,
        }
    }
}
