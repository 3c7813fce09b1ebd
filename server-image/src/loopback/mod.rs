//! Connections to the MCP server in the same pod. One exchange has one at a time and moves it along itself, so that no
//! other task has to be woken for a call. After the answer's last byte it is kept for the next exchange. Only a request
//! that never began is tried again. What is exchanged it does not know.
//!
//! It is a client of our own, because this is the way of every call: it keeps nothing for an exchange on which nothing
//! happens, and answers become headers and pieces of what was read, with nothing between.

mod answer;
mod idle;
mod line;
mod message;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wire::limits::WireLimits;
use answer::{Head, Keeps, Next};
use idle::Idle;
use line::Line;

pub use line::Broken;
pub use message::{Message, Writing};

/// The loopback addresses, in the order in which they are tried: IPv6 for servers that bind `localhost` and got `::1` alone.
pub const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Longest wait for a connection, at each address.
const CONNECT: Duration = Duration::from_secs(2);

/// What holds for trailers, which nobody is shown.
static LIMITS: LazyLock<WireLimits> = LazyLock::new(WireLimits::management);

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
    #[error("no connection")]
    Away(#[source] std::io::Error),
    /// The connection broke, after something may have been sent.
    #[error("the exchange broke off")]
    Broken(#[source] Broken),
}

impl Loopback {
    /// The way to the server at `port`.
    pub fn new(port: u16) -> Self {
        Self { port, idle: Arc::default() }
    }

    /// One exchange, until the answer's headers are there.
    pub async fn exchange(&self, message: &Message) -> Result<Response<FromBackend>, Failure> {
        while let Some(mut line) = self.idle.take() {
            match line.exchange(message).await {
                Ok(head) => return Ok(self.answer(head, line)),
                Err((broken, begun)) => {
                    if !matches!(broken, Broken::Malformed(_)) {
                        self.idle.closed_early();
                    }
                    if begun {
                        return Err(Failure::Broken(broken));
                    }
                }
            }
        }
        // On the heap: most exchanges have no need of it.
        let mut line = Box::pin(self.connect()).await?;
        match line.exchange(message).await {
            Ok(head) => Ok(self.answer(head, line)),
            Err((broken, _)) => Err(Failure::Broken(broken)),
        }
    }

    async fn connect(&self) -> Result<Line, Failure> {
        let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for address in LOOPBACK {
            let opening = timeout(CONNECT, TcpStream::connect(SocketAddr::new(address, self.port))).await;
            match opening.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(stream) => return Ok(Line::new(stream)),
                Err(error) => last = error,
            }
        }
        Err(Failure::Away(last))
    }

    fn answer(&self, Head { status, headers, body, keeps }: Head, line: Line) -> Response<FromBackend> {
        let mut body = FromBackend { body, line: Some(line), keeps, idle: Arc::clone(&self.idle) };
        body.end_if_it_has();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// The body of an answer, with the connection that it comes on until it has ended.
pub struct FromBackend {
    body: answer::Body,
    line: Option<Line>,
    /// How long the connection may wait for another exchange.
    keeps: Keeps,
    idle: Arc<Idle>,
}

impl FromBackend {
    /// After its end, lets go of the connection, and keeps it if it can serve another exchange.
    fn end_if_it_has(&mut self) {
        if self.body.has_ended()
            && let Some(mut line) = self.line.take()
            && line.is_ready()
        {
            self.idle.put(line, self.keeps);
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let Some(line) = &mut self.line else { return Poll::Ready(None) };
        // What a server does not want to read any more is nothing that its answer depends on.
        let _ = line.poll_send(cx);
        loop {
            match self.body.next(&mut line.rest, &LIMITS) {
                Ok(Next::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Next::End) => return Poll::Ready(None),
                Ok(Next::Later) => {}
                Err(malformed) => return Poll::Ready(Some(Err(malformed.into()))),
            }
            match ready!(line.poll_read(cx)) {
                Ok(true) => {}
                Ok(false) if self.body.ends_by_close() => return Poll::Ready(None),
                Ok(false) => return Poll::Ready(Some(Err(Broken::Closed))),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}

impl HttpBody for FromBackend {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let data = ready!(this.poll_data(cx));
        this.end_if_it_has();
        if !matches!(data, Some(Ok(_))) {
            this.line = None;
        }
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Mutex;

    use http::Method;
    use http::uri::PathAndQuery;
    use http_body_util::{BodyExt as _, Collected};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::{Notify, mpsc};
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::tests::{eventually, pass};

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

    fn message(method: &Method, body: impl Into<Bytes>) -> Message {
        Writing::new(method, &PathAndQuery::from_static("/mcp")).body(body.into())
    }

    fn request() -> Message {
        message(&Method::POST, "{}")
    }

    async fn read(loopback: &Loopback) -> Bytes {
        loopback.exchange(&request()).await.unwrap().into_body().collect().await.unwrap().to_bytes()
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
        let mut body = loopback.exchange(&request()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
        drop(body);
        next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
    }

    #[tokio::test]
    async fn the_head_of_an_answer_may_be_large() {
        let large = format!("HTTP/1.1 200 OK\r\nx-large: {}\r\ncontent-length: 2\r\n\r\nok", "x".repeat(60_000));
        let (loopback, _) = server(large.leak(), 1).await;
        assert_eq!(read(&loopback).await, "ok");
        let (loopback, _) = server(format!("HTTP/1.1 200 OK\r\nx-large: {}", "x".repeat(70_000)).leak(), 1).await;
        let failure = loopback.exchange(&request()).await.err().unwrap();
        assert!(matches!(failure, Failure::Broken(Broken::Malformed(_))), "{failure}");
    }

    #[tokio::test]
    async fn an_answer_that_ends_by_close_ends_there_and_no_other_does() {
        let cases = [
            ("HTTP/1.1 200 OK\r\n\r\nok", Some("ok")),
            ("HTTP/1.0 200 OK\r\n\r\nok", Some("ok")),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", None),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", None),
        ];
        for (answer, expected) in cases {
            let (loopback, _) = server(answer, 1).await;
            let body = loopback.exchange(&request()).await.unwrap().into_body();
            let whole = body.collect().await.map(Collected::to_bytes);
            match expected {
                Some(expected) => assert_eq!(whole.unwrap(), expected, "{answer}"),
                None => assert!(matches!(whole, Err(Broken::Closed)), "{answer}: {whole:?}"),
            }
        }
    }

    #[tokio::test]
    async fn an_answer_counts_though_the_server_reads_no_further() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let loopback = Loopback::new(listener.local_addr().unwrap().port());
        let refusing = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
            stream // kept, so that the answer is not lost to a reset
        };
        let large = message(&Method::POST, vec![b'x'; 16 * 1024 * 1024]);
        let (_stream, answer) = tokio::join!(refusing, loopback.exchange(&large));
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 413);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "no");
        assert!(loopback.idle.is_empty(), "the next request would stand behind half of this one");
    }

    #[tokio::test]
    async fn a_large_message_arrives_whole() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let loopback = Loopback::new(listener.local_addr().unwrap().port());
        let large = message(&Method::POST, vec![b'x'; 16 * 1024 * 1024]);
        let mut arrived = vec![0; large.head.len() + large.body.len()];
        let reading = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut arrived).await.unwrap();
            stream.write_all(KNOWN_LENGTH.as_bytes()).await.unwrap();
            stream
        };
        let (_stream, answer) = tokio::join!(reading, loopback.exchange(&large));
        assert_eq!(answer.unwrap().into_body().collect().await.unwrap().to_bytes(), "ok");
        assert!(arrived.starts_with(&large.head) && arrived.ends_with(&large.body));
        assert!(!loopback.idle.is_empty());
    }

    #[tokio::test]
    async fn what_stands_behind_an_answer_is_no_answer_to_the_next() {
        let (loopback, mut seen) =
            server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", 2).await;
        for _ in 0..2 {
            assert_eq!(read(&loopback).await, "ok");
            next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
        }
    }

    #[tokio::test]
    async fn an_answer_may_be_dropped_where_no_runtime_is() {
        let (loopback, mut seen) = server(KNOWN_LENGTH, 2).await;
        let mut body = loopback.exchange(&request()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
        std::thread::spawn(move || drop(body)).join().unwrap();
        next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
    }

    #[tokio::test]
    async fn a_request_that_may_have_begun_is_not_sent_again() {
        let (loopback, mut seen) = server("", 1).await;
        let failure = loopback.exchange(&request()).await.err().unwrap();
        assert!(matches!(failure, Failure::Broken(_)), "{failure}");
        next(&mut seen, &[Seen::Connection, Seen::Request, Seen::End]).await;
        assert!(seen.is_empty());
    }

    #[tokio::test]
    async fn a_server_that_is_away_is_told_from_one_that_broke() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let loopback = Loopback::new(listener.local_addr().unwrap().port());
        drop(listener);
        let failure = loopback.exchange(&request()).await.err().unwrap();
        assert!(matches!(failure, Failure::Away(_)), "{failure}");
    }

    #[tokio::test]
    async fn a_connection_waits_no_longer_than_the_server_says() {
        let answer = "HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok";
        let (loopback, mut seen) = server(answer, 3).await;
        assert_eq!(read(&loopback).await, "ok");
        pass(Duration::from_millis(250)).await; // half of its time, so that this thread may be late
        assert_eq!(read(&loopback).await, "ok");
        pass(Duration::from_millis(500)).await;
        assert_eq!(read(&loopback).await, "ok");
        next(&mut seen, &[Seen::Connection, Seen::Request, Seen::Request, Seen::End]).await;
        next(&mut seen, &[Seen::Connection, Seen::Request]).await;
    }

    /// What the runtime learns while it does something else comes too late.
    #[tokio::test]
    async fn whether_a_connection_is_open_is_asked_just_before_it_is_used() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let loopback = Loopback::new(listener.local_addr().unwrap().port());
        let (end, to_end) = std::sync::mpsc::channel::<()>();
        let (closed, has_closed) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
                stream.write_all(KNOWN_LENGTH.as_bytes()).unwrap();
                to_end.recv().unwrap();
                drop(stream);
                closed.send(()).unwrap();
            }
        });
        for _ in 0..2 {
            assert_eq!(read(&loopback).await, "ok");
            end.send(()).unwrap();
            has_closed.recv().unwrap(); // no await: the runtime is not told
        }
        server.join().unwrap();
    }

    /// What a server does with the connection of a request.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Then {
        /// Answers and keeps it.
        Keep,
        /// Answers and closes it, when it is told to go on.
        Close,
        /// Closes it.
        Break,
    }

    /// A server that does this with one request after another, and tells on which connection each came.
    async fn fickle(then: &'static [Then], go_on: Arc<Notify>) -> (Loopback, mpsc::UnboundedReceiver<usize>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let loopback = Loopback::new(listener.local_addr().unwrap().port());
        let (seen, receiver) = mpsc::unbounded_channel();
        let then = Arc::new(Mutex::new(then.iter()));
        let tasks = TaskTracker::new();
        tasks.clone().spawn(async move {
            for number in 1.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (seen, then, go_on) = (seen.clone(), Arc::clone(&then), Arc::clone(&go_on));
                tasks.spawn(async move {
                    while stream.read(&mut [0; 1024]).await.unwrap_or_default() > 0 {
                        let then = *then.lock().unwrap().next().unwrap();
                        if then != Then::Break {
                            stream.write_all(KNOWN_LENGTH.as_bytes()).await.unwrap();
                            go_on.notified().await;
                        }
                        if then != Then::Keep {
                            drop(stream);
                            return seen.send(number).unwrap();
                        }
                        seen.send(number).unwrap();
                    }
                });
            }
        });
        (loopback, receiver)
    }

    #[tokio::test]
    async fn a_server_that_closes_early_is_spared_until_it_keeps_a_connection_again() {
        use Then::{Break, Close, Keep};
        // What happens to each request, and the connections; time passes between the lists.
        type Story = (&'static [Then], [&'static [usize]; 3]);
        let stories: [Story; 2] = [
            (&[Close, Close, Keep, Keep, Keep, Keep, Keep], [&[1, 2, 3], &[4, 5], &[6, 6]]),
            // It had begun, so it is not sent again.
            (&[Keep, Break, Close, Keep, Keep, Keep, Keep, Keep], [&[1, 1, 2, 3], &[4, 5], &[6, 6]]),
        ];
        for (then, connections) in stories {
            let go_on = Arc::new(Notify::new());
            let (loopback, mut seen) = fickle(then, Arc::clone(&go_on)).await;
            let mut then = then.iter();
            for connections in connections {
                for connection in connections {
                    match loopback.exchange(&request()).await {
                        Ok(answer) => drop(answer.into_body().collect().await.unwrap()),
                        Err(failure) => assert!(matches!(failure, Failure::Broken(_)), "{failure}"),
                    }
                    if *then.next().unwrap() != Break {
                        go_on.notify_one();
                    }
                    assert_eq!(seen.recv().await, Some(*connection), "{connections:?}");
                }
                pass(Duration::from_secs(2)).await;
                eventually("those that waited are closed", || loopback.idle.is_empty()).await;
            }
        }
    }

    #[tokio::test]
    async fn an_idle_connection_is_closed_before_the_server_closes_it() {
        let (loopback, mut seen) = server(KNOWN_LENGTH, 2).await;
        assert_eq!(read(&loopback).await, "ok");
        next(&mut seen, &[Seen::Connection, Seen::Request]).await;
        tokio::time::pause(); // from here on time passes as soon as nothing else happens
        next(&mut seen, &[Seen::End]).await;
        assert!(loopback.idle.is_empty());
    }
}
