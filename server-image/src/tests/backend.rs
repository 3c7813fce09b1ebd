//! A small HTTP server that counts and records what reaches it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Collected, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::{Body, BodyError};
use crate::commit::event_stream;

/// A running server; its connections break when it is dropped.
pub struct Backend {
    pub port: u16,
    seen: Arc<Mutex<Vec<Request<Bytes>>>>,
    connections: Arc<AtomicUsize>,
    connected: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A stream that is fed from outside.
pub fn feed() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, BodyError>(Frame::data(bytes)), receiver))
    });
    (sender, StreamBody::new(frames).boxed_unsync())
}

/// An event stream that says this, and then nothing for ever.
pub fn endless(says: &'static str) -> Response<Body> {
    let said = Ok::<_, BodyError>(Frame::data(Bytes::from_static(says.as_bytes())));
    event_stream(StreamBody::new(stream::iter([said]).chain(stream::pending())).boxed_unsync())
}

/// Counts something as open until the server lets go of it.
pub struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Backend {
    /// Serves `handler` on a free port.
    pub async fn start<H, F>(handler: H) -> Self
    where
        H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::start_at(0, handler).await
    }

    /// Serves `handler` on a port of choice.
    pub async fn start_at<H, F>(port: u16, handler: H) -> Self
    where
        H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let backend = Self {
            port: listener.local_addr().unwrap().port(),
            seen: Arc::default(),
            connections: Arc::default(),
            connected: Arc::default(),
            open: Arc::default(),
            stop: CancellationToken::new(),
        };
        let (seen, connections, open) =
            (Arc::clone(&backend.seen), Arc::clone(&backend.connections), Arc::clone(&backend.open));
        let connected = Arc::clone(&backend.connected);
        let tracker = TaskTracker::new();
        let accept = {
            let (tracker, stop) = (tracker.clone(), backend.stop.clone());
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::SeqCst);
                    connected.fetch_add(1, Ordering::SeqCst);
                    let connected = Open(Arc::clone(&connected));
                    let (seen, open, handler) = (Arc::clone(&seen), Arc::clone(&open), handler.clone());
                    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                        let (seen, open, handler) = (Arc::clone(&seen), Arc::clone(&open), handler.clone());
                        async move {
                            open.fetch_add(1, Ordering::SeqCst);
                            let guard = Open(open);
                            let (parts, body) = request.into_parts();
                            let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
                            let request = Request::from_parts(parts, bytes);
                            seen.lock().unwrap().push(request.clone());
                            let response = handler(request).await;
                            Ok::<_, Infallible>(response.map(|body| {
                                body.map_frame(move |frame| {
                                    let _still_open = &guard;
                                    frame
                                })
                            }))
                        }
                    });
                    let connection =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    let stopped = stop.clone().cancelled_owned();
                    tracker.spawn(async move {
                        let _connected = connected;
                        tokio::select! {
                            _ = connection => {}
                            () = stopped => {}
                        }
                    });
                }
            }
        };
        let stopped = backend.stop.clone().cancelled_owned();
        tracker.spawn(async move {
            tokio::select! {
                () = accept => {}
                () = stopped => {}
            }
        });
        backend
    }

    /// How many requests arrived.
    pub fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How many connections there are now.
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::SeqCst)
    }

    /// How many exchanges are not over.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Everything that arrived.
    pub fn seen(&self) -> Vec<Request<Bytes>> {
        self.seen.lock().unwrap().clone()
    }

    /// The last request that arrived.
    pub fn last(&self) -> Request<Bytes> {
        self.seen().pop().unwrap()
    }
}
