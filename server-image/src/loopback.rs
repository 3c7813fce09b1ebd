//! Connections to the MCP server in the same pod. One exchange has one at a time and moves it along itself, so that no
//! other task has to be woken for a call. After the answer's last byte it is kept for the next exchange, but for less time
//! than servers keep theirs (node and uvicorn close after 5 s), so that no request is written into a connection that is
//! just being closed. Only a request that never began is tried again. What is exchanged it does not know.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper::rt::Executor as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::clock;

/// The loopback addresses, in the order in which they are tried: IPv6 for servers that bind `localhost` and got `::1` alone.
pub const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// How long a connection is kept for the next exchange.
const IDLE: Duration = Duration::from_secs(2);
/// Longest wait for a connection, at each address.
const CONNECT: Duration = Duration::from_secs(2);

/// What is read at once of a stream: events are small and far between, and streams are many.
const STREAM_BUFFER: usize = 2048;

/// The way to the server at one port.
#[derive(Debug)]
pub struct Loopback {
    port: u16,
    idle: Arc<Idle>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no connection, so nothing was sent.
    #[error("no connection: {0}")]
    Away(std::io::Error),
    /// The connection broke, after something may have been sent.
    #[error("the connection broke: {0}")]
    Broken(hyper::Error),
}

impl Loopback {
    /// The way to the server at `port`.
    pub fn new(port: u16) -> Self {
        Self { port, idle: Arc::default() }
    }

    /// One exchange, until the answer's headers are there.
    pub async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Response<FromBackend>, Failure> {
        if request.method() == Method::GET {
            return self.open(request).await;
        }
        while let Some(line) = self.idle.take() {
            match line.exchange(request, &self.idle).await {
                Ok(answer) => return Ok(answer),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent, // it was closed while nobody looked
                    None => return Err(Failure::Broken(failed.into_error())),
                },
            }
        }
        // On the heap: most exchanges have no need of it.
        Box::pin(self.on_new_line(request, None)).await
    }

    /// Opens a stream, on a connection of its own with a small buffer. Where the answer's head does not fit into it, the
    /// stream is opened again, which GET allows (RFC 9110 section 9.2.2).
    async fn open(&self, request: Request<Full<Bytes>>) -> Result<Response<FromBackend>, Failure> {
        match self.on_new_line(request.clone(), Some(STREAM_BUFFER)).await {
            Err(Failure::Broken(error)) if error.is_parse_too_large() => self.on_new_line(request, None).await,
            answer => answer,
        }
    }

    async fn on_new_line(
        &self,
        request: Request<Full<Bytes>>,
        buffer: Option<usize>,
    ) -> Result<Response<FromBackend>, Failure> {
        let line = self.connect(buffer).await?;
        line.exchange(request, &self.idle).await.map_err(|failed| Failure::Broken(failed.into_error()))
    }

    /// `buffer`: how many bytes it reads at once, where it serves one exchange alone.
    async fn connect(&self, buffer: Option<usize>) -> Result<Box<Line>, Failure> {
        let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for address in LOOPBACK {
            let opening = timeout(CONNECT, TcpStream::connect(SocketAddr::new(address, self.port))).await;
            match opening.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true); // a socket without it still works
                    let mut builder = http1::Builder::new();
                    builder.read_buf_exact_size(buffer);
                    let shaken = builder.handshake(TokioIo::new(stream)).await;
                    let (sender, connection) = shaken.map_err(Failure::Broken)?;
                    return Ok(Box::new(Line { sender, connection: Some(connection), keeps: buffer.is_none() }));
                }
                Err(error) => last = error,
            }
        }
        Err(Failure::Away(last))
    }
}

/// One connection.
struct Line {
    sender: http1::SendRequest<Full<Bytes>>,
    /// None when it has ended.
    connection: Option<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>,
    /// Whether it may serve another exchange.
    keeps: bool,
}

impl Line {
    /// Moves the connection along as far as it goes now.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.connection = None; // whoever waits for something of it is told by other ways
        }
    }

    async fn exchange(
        mut self: Box<Self>,
        request: Request<Full<Bytes>>,
        idle: &Arc<Idle>,
    ) -> Result<Response<FromBackend>, TrySendError<Request<Full<Bytes>>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let answer = poll_fn(|cx| {
            self.drive(cx);
            answer.as_mut().poll(cx)
        });
        let answer = answer.await?;
        Ok(answer.map(|body| FromBackend { body, line: Some(self), idle: Arc::clone(idle) }))
    }
}

/// The body of an answer, with the connection that it comes on.
pub struct FromBackend {
    body: Incoming,
    line: Option<Box<Line>>,
    idle: Arc<Idle>,
}

impl FromBackend {
    /// Keeps the connection, if it can serve another exchange.
    fn end(&mut self, cx: &mut Context<'_>) {
        let Some(mut line) = self.line.take() else { return };
        line.drive(cx);
        if line.keeps && line.connection.is_some() && line.sender.is_ready() {
            self.idle.put(line);
        }
    }
}

impl HttpBody for FromBackend {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending()
            && let Some(line) = &mut this.line
        {
            line.drive(cx); // it reads once somebody wants what follows
            frame = Pin::new(&mut this.body).poll_frame(cx);
        }
        if let Poll::Ready(None) = frame {
            this.end(cx);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for FromBackend {
    /// Nobody asks for the end of a body whose length is known.
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.end(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// Connections that wait for the next exchange, the longest waiting first.
#[derive(Default)]
struct Idle(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    lines: VecDeque<(Box<Line>, Instant)>,
    /// Whether somebody will close those that have waited for too long.
    watched: bool,
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Idle({})", self.waiting().lines.len())
    }
}

impl Idle {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that came last, which the server closes last.
    fn take(&self) -> Option<Box<Line>> {
        let (line, since) = self.waiting().lines.pop_back()?;
        (clock::instant() - since < IDLE).then_some(line)
    }

    fn put(self: &Arc<Self>, line: Box<Line>) {
        if Handle::try_current().is_err() {
            return; // an answer may be dropped anywhere, and elsewhere nobody could close it in time
        }
        let mut waiting = self.waiting();
        waiting.lines.push_back((line, clock::instant()));
        if !std::mem::replace(&mut waiting.watched, true) {
            TokioExecutor::new().execute(Arc::clone(self).close_late_ones());
        }
    }

    /// Closes what has waited for too long, until nothing waits.
    async fn close_late_ones(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE).await;
            let now = clock::instant();
            let mut waiting = self.waiting();
            let late = waiting.lines.partition_point(|(_, since)| now - *since >= IDLE);
            let late: Vec<_> = waiting.lines.drain(..late).collect();
            waiting.watched = !waiting.lines.is_empty();
            let watched = waiting.watched;
            drop(waiting); // whoever wants a connection does not wait until others are closed
            drop(late);
            if !watched {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    /// What happens at the server.
    #[derive(Debug, PartialEq, Eq)]
    enum Seen {
        Connection,
        Request,
        End,
    }

    const KNOWN_LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    const ENDLESS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";

    /// A server that answers each request so, and closes the connection after so many.
    async fn server(answer: &'static str, most: usize) -> (Loopback, mpsc::UnboundedReceiver<Seen>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let loopback = Loopback::new(listener.local_addr().unwrap().port());
        let (seen, receiver) = mpsc::unbounded_channel();
        tokio_util::task::TaskTracker::new().spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = seen.send(Seen::Connection);
                for _ in 0..most {
                    let mut request = [0; 1024];
                    if stream.read(&mut request).await.unwrap_or_default() == 0 {
                        break;
                    }
                    let _ = seen.send(Seen::Request);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
                drop(stream);
                let _ = seen.send(Seen::End);
            }
        });
        (loopback, receiver)
    }

    fn request() -> Request<Full<Bytes>> {
        Request::post("/mcp").header("host", "localhost").body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    }

    async fn read(loopback: &Loopback) -> Bytes {
        loopback.exchange(request()).await.unwrap().into_body().collect().await.unwrap().to_bytes()
    }

    async fn next(seen: &mut mpsc::UnboundedReceiver<Seen>, expected: &[Seen]) {
        for expected in expected {
            assert_eq!(&seen.recv().await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_connection_is_kept_once_its_answer_was_read() {
        for answer in [KNOWN_LENGTH, CHUNKED] {
            let (loopback, mut seen) = server(answer, 3).await;
            for _ in 0..3 {
                assert_eq!(read(&loopback).await, "ok");
            }
            next(&mut seen, &[Seen::Connection, Seen::Request, Seen::Request, Seen::Request, Seen::End]).await;
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_meanwhile_costs_nothing() {
        let (loopback, mut seen) = server(KNOWN_LENGTH, 1).await;
        for _ in 0..3 {
            assert_eq!(read(&loopback).await, "ok");
            next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
        }
    }

    #[tokio::test]
    async fn an_answer_that_nobody_wants_ends_its_connection() {
        let (loopback, mut seen) = server(ENDLESS, 2).await;
        let mut body = loopback.exchange(request()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
        drop(body);
        next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
    }

    #[tokio::test]
    async fn a_stream_may_begin_with_a_large_head() {
        let head = format!("HTTP/1.1 200 OK\r\nx-large: {}\r\ncontent-length: 2\r\n\r\nok", "x".repeat(9000));
        for (answer, connections) in [(KNOWN_LENGTH, 1), (Box::leak(head.into_boxed_str()), 2)] {
            let (loopback, mut seen) = server(answer, 1).await;
            let get = Request::get("/mcp").header("host", "localhost").body(Full::default()).unwrap();
            let body = loopback.exchange(get).await.unwrap().into_body();
            assert_eq!(body.collect().await.unwrap().to_bytes(), "ok");
            for _ in 0..connections {
                next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
            }
            assert!(seen.is_empty());
        }
    }

    #[tokio::test]
    async fn an_answer_may_be_dropped_where_no_runtime_is() {
        let (loopback, mut seen) = server(KNOWN_LENGTH, 2).await;
        let mut body = loopback.exchange(request()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
        std::thread::spawn(move || drop(body)).join().unwrap();
        next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
    }

    #[tokio::test]
    async fn a_request_that_may_have_begun_is_not_sent_again() {
        let (loopback, mut seen) = server("", 1).await;
        let failure = loopback.exchange(request()).await.err().unwrap();
        assert!(matches!(failure, Failure::Broken(_)), "{failure}");
        next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
        assert!(seen.is_empty());
    }

    #[tokio::test]
    async fn a_server_that_is_away_is_told_from_one_that_broke() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let loopback = Loopback::new(listener.local_addr().unwrap().port());
        drop(listener);
        let failure = loopback.exchange(request()).await.err().unwrap();
        assert!(matches!(failure, Failure::Away(_)), "{failure}");
    }

    #[tokio::test]
    async fn an_idle_connection_is_closed_before_the_server_closes_it() {
        let (loopback, mut seen) = server(KNOWN_LENGTH, 2).await;
        assert_eq!(read(&loopback).await, "ok");
        next(&mut seen, &[Seen::Connection, Seen::Request]).await;
        tokio::time::pause(); // from here on time passes as soon as nothing else happens
        next(&mut seen, &[Seen::End]).await;
        assert!(loopback.idle.waiting().lines.is_empty());
    }
}
