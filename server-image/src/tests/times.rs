//! The times of a connection, on pipes in paused time: each second of a test takes none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_contract::config::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::accept::{Rim, connection};
use crate::body::{Body, BodyError, full};
use crate::clock;
use crate::door::Phase;
use crate::metrics::{Listener, Metrics};
use crate::pipeline::Arrival;
use crate::refusal::{Refusal, Waiting};
use crate::wire::limits::WireLimits;

/// One connection to a server that answers `/large` with 10 MB, `/silent` with nothing that ends, and all else shortly.
struct Pipe {
    client: DuplexStream,
    metrics: Arc<Metrics>,
    tasks: TaskTracker,
    phases: watch::Sender<Phase>,
}

async fn answer(arrival: Arrival, request: Request<Body>) -> Response<Body> {
    if let Some(fault) = arrival.fault {
        return Refusal::Wire(fault).into_response(&Waiting::Nobody);
    }
    Response::new(match request.uri().path() {
        "/large" => full(vec![b'x'; 10_000_000]),
        "/silent" => {
            StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, BodyError>>()).boxed_unsync()
        }
        _ => full("short"),
    })
}

impl Pipe {
    fn new() -> Self {
        let (client, server) = tokio::io::duplex(16 * 1024);
        let metrics = Arc::new(Metrics::default());
        let rim = Rim {
            listener: Listener::PUBLIC,
            limits: Arc::new(|| WireLimits::from(&Limits::default())),
            metrics: Arc::clone(&metrics),
        };
        let (phases, phase) = watch::channel(Phase::Serving);
        let tasks = TaskTracker::new();
        tasks.spawn(connection(server, [10, 0, 0, 9].into(), false, rim, phase, answer));
        tasks.close();
        Self { client, metrics, tasks, phases }
    }

    /// Asks, and reads the short answer.
    async fn ask(&mut self) {
        self.client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut text = String::new();
        while !text.ends_with("short") {
            let mut bytes = [0; 1024];
            let length = self.client.read(&mut bytes).await.unwrap();
            assert!(length > 0, "{text}");
            text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
    }

    /// What comes until the server closes, and after how many seconds.
    async fn end(&mut self) -> (String, u64) {
        let begin = clock::instant();
        let mut text = String::new();
        self.client.read_to_string(&mut text).await.unwrap();
        (text, (clock::instant() - begin).as_secs())
    }

    /// Sends one byte each second until that is not possible any more.
    async fn drip(&mut self, byte: u8) -> u64 {
        let begin = clock::instant();
        while self.client.write_all(&[byte]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut answer = [0; 4];
            let read = tokio::time::timeout(Duration::ZERO, self.client.read(&mut answer)).await;
            if let Ok(Ok(length)) = read {
                assert_eq!(&answer[..length], b"HTTP");
                break;
            }
        }
        (clock::instant() - begin).as_secs()
    }

    fn cut(&self, reason: &str) -> bool {
        let line = format!("connections_cut_total{{listener=\"public\",reason=\"{reason}\"}} 1");
        self.metrics.text(false).unwrap().1.contains(&line)
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_closed_after_the_idle_time() {
    let mut pipe = Pipe::new();
    assert_eq!(pipe.end().await, (String::new(), 120));
    assert!(pipe.cut("idle"));
}

#[tokio::test(start_paused = true)]
async fn the_idle_time_begins_with_the_last_answer() {
    let mut pipe = Pipe::new();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(119)).await; // longer than any ingress waits
        pipe.ask().await;
    }
    assert_eq!(pipe.end().await, (String::new(), 120));
    assert!(pipe.cut("idle"));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_cut_after_its_time() {
    let mut pipe = Pipe::new();
    tokio::time::sleep(Duration::from_secs(100)).await; // its time begins with its first byte
    let took = pipe.drip(b'G').await;
    assert!((9..=11).contains(&took), "{took}");
    let (rest, _) = pipe.end().await;
    assert!(rest.starts_with("/1.1 408 ") && rest.contains("did not arrive in time"), "{rest}");

    // The second of a connection, too.
    let mut pipe = Pipe::new();
    pipe.ask().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let took = pipe.drip(b'G').await;
    assert!((9..=11).contains(&took), "{took}");

    // And one that might become HTTP/2.
    let mut pipe = Pipe::new();
    pipe.client.write_all(b"PRI * HT").await.unwrap();
    let (text, took) = pipe.end().await;
    assert!(text.starts_with("HTTP/1.1 408 ") && (9..=12).contains(&took), "{took} {text}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_and_a_slow_one_is_not() {
    let mut pipe = Pipe::new();
    pipe.client.write_all(b"GET /large HTTP/1.1\r\n\r\n").await.unwrap();
    let begin = clock::instant();
    pipe.tasks.wait().await;
    assert_eq!((clock::instant() - begin).as_secs(), 60);
    assert!(pipe.cut("slow_reader"));

    let mut pipe = Pipe::new();
    pipe.client.write_all(b"GET /large HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut total = 0;
    let mut bytes = vec![0; 16 * 1024];
    loop {
        tokio::time::sleep(Duration::from_secs(50)).await;
        match pipe.client.read(&mut bytes).await.unwrap() {
            0 => break,
            length => total += length,
        }
    }
    assert!(total > 10_000_000 && !pipe.cut("slow_reader"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_not_cut() {
    let mut pipe = Pipe::new();
    pipe.client.write_all(b"GET /silent HTTP/1.1\r\n\r\n").await.unwrap();
    let mut bytes = [0; 1024];
    assert!(pipe.client.read(&mut bytes).await.unwrap() > 0);
    let silence = tokio::time::timeout(Duration::from_secs(10_000), pipe.client.read(&mut bytes)).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test(start_paused = true)]
async fn http_2_is_closed_when_idle_and_kept_while_a_stream_is_open() {
    let pipe = Pipe::new();
    let (mut sender, client) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(pipe.client)).await.unwrap();
    let client = TaskTracker::new().spawn(client);
    let request = |path: &str| Request::get(format!("http://a{path}")).body(Empty::<Bytes>::new()).unwrap();
    let silent = sender.send_request(request("/silent")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(!client.is_finished());
    drop(silent);
    assert_eq!(sender.send_request(request("/")).await.unwrap().status(), 200);
    let begin = clock::instant();
    client.await.unwrap().unwrap();
    let took = (clock::instant() - begin).as_secs();
    assert!((119..=121).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_closes_what_waits() {
    for begin in [&b""[..], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut pipe = Pipe::new();
        pipe.client.write_all(begin).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        pipe.phases.send_replace(Phase::Stopping);
        assert_eq!(pipe.end().await.1, 0);
    }
}
