//! The times of a connection, on pipes in paused time: each second of a test takes none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_contract::config::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::http_2::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, frame, frames, head};
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

/// Limits with these times, in seconds.
fn times(header: u64, idle: u64) -> Limits {
    Limits { header_timeout_ms: header * 1000, idle_timeout_ms: idle * 1000, ..Limits::default() }
}

impl Pipe {
    fn new() -> Self {
        Self::under(&Arc::default())
    }

    /// While these limits are in force.
    fn under(limits: &Arc<Mutex<Limits>>) -> Self {
        let (client, server) = tokio::io::duplex(16 * 1024);
        let (metrics, limits) = (Arc::new(Metrics::default()), Arc::clone(limits));
        let rim = Rim {
            listener: Listener::PUBLIC,
            limits: Arc::new(move || WireLimits::from(&*limits.lock().unwrap())),
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
        let mut bytes = Vec::new();
        self.client.read_to_end(&mut bytes).await.unwrap();
        (String::from_utf8_lossy(&bytes).into_owned(), (clock::instant() - begin).as_secs())
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

    /// Speaks HTTP/2 with this window for each stream: that many bytes of an answer come before the client reads them.
    async fn http_2(self, window: u32) -> Http2 {
        let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(window);
        let (requests, connection) = client.handshake(TokioIo::new(self.client)).await.unwrap();
        let connection = TaskTracker::new().spawn(connection);
        Http2 { requests, connection, metrics: self.metrics, _phases: self.phases }
    }

    fn cut(&self, reason: &str) -> bool {
        cut(&self.metrics, reason) == Some(1)
    }
}

/// A client of HTTP/2.
struct Http2 {
    requests: SendRequest<Empty<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
    metrics: Arc<Metrics>,
    _phases: watch::Sender<Phase>,
}

impl Http2 {
    async fn get(&mut self, path: &str) -> Response<Incoming> {
        let request = Request::get(format!("http://a{path}")).body(Empty::new()).unwrap();
        self.requests.send_request(request).await.unwrap()
    }
}

/// How many were cut for that reason.
fn cut(metrics: &Metrics, reason: &str) -> Option<u32> {
    let name = format!("mooring_server_connections_cut_total{{listener=\"public\",reason=\"{reason}\"}} ");
    metrics.text(false).unwrap().1.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
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
async fn both_times_are_those_of_the_configuration() {
    for (header, idle) in [(3, 7), (20, 200), (40, 1000)] {
        let limits = Arc::new(Mutex::new(times(header, idle)));
        let mut pipe = Pipe::under(&limits);
        assert_eq!(pipe.end().await, (String::new(), idle));
        assert!(pipe.cut("idle"));

        let mut pipe = Pipe::under(&limits);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(idle - 1)).await;
            pipe.ask().await;
        }
        assert_eq!(pipe.end().await, (String::new(), idle));
        assert!(pipe.cut("idle"));

        let mut pipe = Pipe::under(&limits);
        tokio::time::sleep(Duration::from_secs(idle - 1)).await;
        let took = pipe.drip(b'G').await;
        assert!((header - 1..=header + 1).contains(&took), "{took} of {header}");
        assert!(pipe.end().await.0.starts_with("/1.1 408 "));

        let mut pipe = Pipe::under(&limits);
        pipe.client.write_all(&[PREFACE, &frame(HEADERS, 0, 1, &head("GET", "/"))].concat()).await.unwrap();
        assert_eq!(pipe.end().await.1, header);
        assert!(pipe.cut("head_slow"));

        let mut client = Pipe::under(&limits).http_2(65_535).await;
        assert_eq!(client.get("/").await.status(), 200);
        let begin = clock::instant();
        client.connection.await.unwrap().unwrap();
        let took = (clock::instant() - begin).as_secs();
        assert!((idle..=idle + 1).contains(&took), "{took} of {idle}");
    }
}

/// A head is no request yet.
#[tokio::test(start_paused = true)]
async fn a_head_has_no_longer_than_a_connection_without_a_request() {
    let mut pipe = Pipe::under(&Arc::new(Mutex::new(times(30, 20))));
    pipe.ask().await;
    pipe.client.write_all(b"G").await.unwrap();
    assert_eq!(pipe.end().await, (String::new(), 20));
    pipe.tasks.wait().await;
    assert!(pipe.cut("idle"));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_head_time_holds_for_heads_that_begin_then() {
    let limits = Arc::new(Mutex::new(times(10, 120)));
    let mut pipe = Pipe::under(&limits);
    pipe.ask().await;
    let mut earlier = Pipe::under(&limits);
    earlier.client.write_all(b"G").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    *limits.lock().unwrap() = times(5, 120);
    let begin = clock::instant();
    pipe.client.write_all(b"G").await.unwrap();
    for (mut pipe, expected) in [(pipe, 5), (earlier, 9)] {
        let (text, _) = pipe.end().await;
        assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
        let took = (clock::instant() - begin).as_secs();
        assert!((expected..=expected + 1).contains(&took), "{took} of {expected}");
    }
}

/// It is looked at when the time that was in force before is over.
#[tokio::test(start_paused = true)]
async fn an_open_connection_learns_of_another_idle_time_when_the_one_it_knows_is_over() {
    for (asks_at, changed_to, closed_at) in [
        (Some(0), 300, 300),
        (Some(100), 300, 400),
        (Some(100), 30, 130),
        (Some(0), 30, 120),
        (None, 300, 120),
        (None, 30, 120),
    ] {
        let limits = Arc::new(Mutex::new(times(10, 120)));
        let (begin, mut pipe) = (clock::instant(), Pipe::under(&limits));
        if let Some(seconds) = asks_at {
            pipe.ask().await;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            pipe.ask().await;
        } else {
            tokio::task::yield_now().await; // it is there
        }
        *limits.lock().unwrap() = times(10, changed_to);
        assert_eq!(pipe.end().await.0, "");
        let took = (clock::instant() - begin).as_secs();
        assert_eq!(took, closed_at, "{asks_at:?} {changed_to}");
        assert!(pipe.cut("idle"));
    }
}

/// Nothing can be read behind it, and no answer be given to it: its connection ends.
#[tokio::test(start_paused = true)]
async fn a_head_of_http_2_that_stops_is_cut_after_its_time() {
    let post = frame(HEADERS, END_HEADERS, 1, &head("POST", "/silent"));
    let (whole, part) = (frame(HEADERS, END_HEADERS, 3, &head("GET", "/")), frame(HEADERS, 0, 3, &head("GET", "/")));
    let continued = [&part[..], &frame(CONTINUATION, 0, 3, b"")].concat();
    let trailers = [&post[..], &frame(HEADERS, END_STREAM, 1, b"")].concat();
    let heads: [&[u8]; 6] = [&whole[..1], &whole[..8], &whole[..whole.len() - 1], &part, &continued, &trailers];
    for bytes in heads {
        let mut pipe = Pipe::new();
        pipe.client.write_all(PREFACE).await.unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await; // its time begins with its first byte
        pipe.client.write_all(bytes).await.unwrap();
        assert_eq!(pipe.end().await.1, 10, "{bytes:?}");
        assert!(pipe.cut("head_slow") && !pipe.cut("idle"));
    }
    // The preface is one, too, and whole with its first frame.
    for length in [24, 25, 32] {
        let mut pipe = Pipe::new();
        pipe.client.write_all(&PREFACE[..length]).await.unwrap();
        assert_eq!(pipe.end().await.1, 10, "{length}");
        assert!(pipe.cut("head_slow"));
    }
    // It does not help to send a little now and then.
    let mut pipe = Pipe::new();
    pipe.client.write_all(PREFACE).await.unwrap();
    let begin = clock::instant();
    for byte in frame(HEADERS, END_HEADERS, 1, &[0x82; 100]) {
        if pipe.client.write_all(&[byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let took = (clock::instant() - begin).as_secs();
    assert!((9..=11).contains(&took) && pipe.cut("head_slow"), "{took}");
}

#[tokio::test(start_paused = true)]
async fn each_head_of_http_2_has_its_own_time_and_other_frames_have_none() {
    let mut pipe = Pipe::new();
    let heads = [1, 3, 5].map(|stream| frame(HEADERS, END_HEADERS, stream, &head("POST", "/")));
    let data = frame(DATA, END_STREAM, 1, &[b'x'; 100]);
    let bytes = [PREFACE, &heads[0], &heads[1], &data, &heads[2]].concat();
    let (first, second) = (PREFACE.len() + 9 + 5, PREFACE.len() + heads[0].len() + 4);
    let third = PREFACE.len() + heads[0].len() + heads[1].len() + 9 + 50;
    let mut sent = 0;
    for (until, seconds) in [(first, 8), (second, 8), (third, 20), (bytes.len(), 1)] {
        pipe.client.write_all(&bytes[sent..until]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        sent = until;
    }
    let mut read = vec![0; 16 * 1024];
    let length = pipe.client.read(&mut read).await.unwrap();
    let answered = frames(&read[..length]).iter().filter(|(kind, ..)| *kind == HEADERS).count();
    assert_eq!((answered, cut(&pipe.metrics, "head_slow")), (3, None));
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
    let mut client = Pipe::new().http_2(65_535).await;
    let silent = client.get("/silent").await;
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(!client.connection.is_finished());
    drop(silent);
    assert_eq!(client.get("/").await.status(), 200);
    let begin = clock::instant();
    client.connection.await.unwrap().unwrap();
    let took = (clock::instant() - begin).as_secs();
    assert!((119..=121).contains(&took), "{took}");
    assert_eq!(cut(&client.metrics, "slow_reader"), None);
}

/// Its client has no window for it, or less than it needs; the other streams of the connection go on.
#[tokio::test(start_paused = true)]
async fn a_stream_of_which_nothing_is_taken_is_reset() {
    for (window, path) in [(0, "/"), (1000, "/large"), (40_000, "/large")] {
        let mut client = Pipe::new().http_2(window).await;
        let silent = client.get("/silent").await;
        let begin = clock::instant();
        let answer = client.get(path).await;
        while cut(&client.metrics, "slow_reader").is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let took = (clock::instant() - begin).as_secs();
        assert!((60..=121).contains(&took), "{took}");
        let broken = answer.into_body().collect().await.unwrap_err();
        assert!(format!("{broken:?}").contains("Reset") && format!("{broken:?}").contains("CANCEL"), "{broken:?}");
        assert_eq!(client.get("/silent").await.status(), 200);
        let mut silent = silent.into_body();
        assert!(tokio::time::timeout(Duration::from_secs(1000), silent.frame()).await.is_err(), "{path}");
        assert_eq!(cut(&client.metrics, "slow_reader"), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_slowly_is_not_reset() {
    let mut client = Pipe::new().http_2(65_535).await;
    let mut answer = client.get("/large").await.into_body();
    let mut total = 0;
    while let Some(frame) = answer.frame().await {
        total += frame.unwrap().into_data().unwrap().len();
        tokio::time::sleep(Duration::from_secs(20)).await; // it opens the window with every second frame
    }
    assert_eq!((total, cut(&client.metrics, "slow_reader")), (10_000_000, None));
}

/// The stream has ended for us, though not for its client.
#[tokio::test(start_paused = true)]
async fn a_connection_that_keeps_the_last_bytes_of_an_answer_waiting_is_cut() {
    let mut client = Pipe::new().http_2(3).await;
    let _unread = client.get("/").await;
    let begin = clock::instant();
    let _ended = client.connection.await.unwrap();
    let took = (clock::instant() - begin).as_secs();
    assert!((180..=182).contains(&took), "{took}");
    assert_eq!(cut(&client.metrics, "slow_reader"), Some(1));
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
