//! Bodies: the boxed type that all steps share, and reading a request's body within its limit.
//!
//! A request's body is read whole before the backend is called. A JSON-RPC message is of no use in parts, what is too
//! large or malformed must never reach the backend, and a request that never began can then be sent again. Answers are
//! streamed, and held for no longer than a moment at their beginning.

use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use tokio::time::{Instant, timeout_at};

use crate::clock;
use crate::log::cause;
use crate::refusal::Refusal;
use crate::wire::fault::Fault;
use crate::wire::load::Room;

/// Why a body broke off.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// Every body, of a request or an answer.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body of known bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Reads a JSON body of at most `limit` bytes until `deadline`; its bytes keep their `room` as long as anybody has them. On
/// refusal a part of it may be left.
pub async fn read(
    headers: &HeaderMap,
    body: &mut Body,
    limit: u64,
    room: Room,
    deadline: Instant,
) -> Result<Bytes, Refusal> {
    let declared = declared_length(headers);
    if declared.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge { limit });
    }
    if !is_json(headers) {
        return Err(Refusal::MediaType);
    }
    let mut arriving = Arriving::new(declared, limit, room);
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(Refusal::BodySlow),
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(broken(error.as_ref())),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue }; // trailers say nothing here
        if (arriving.length() + data.len()) as u64 > limit {
            return Err(Refusal::TooLarge { limit });
        }
        arriving.push(data)?;
    }
    let (bytes, room) = arriving.finish();
    Ok(held(bytes, room))
}

/// So much of a declared length is believed before it has arrived.
const BELIEVED: usize = 64 * 1024;

/// A body as it arrives, in the room that it takes.
pub struct Arriving {
    first: Bytes,
    whole: Vec<u8>,
    room: Room,
    /// Room that it begins with when it comes in pieces.
    begin: usize,
    /// Its length, as far as that is known.
    most: usize,
}

impl Arriving {
    /// A body of at most `limit` bytes, or of its declared length.
    pub fn new(declared: Option<u64>, limit: u64, room: Room) -> Self {
        let size = |length| usize::try_from(length).unwrap_or(usize::MAX);
        let begin = declared.map_or(0, |length| size(length).min(BELIEVED));
        Self { first: Bytes::new(), whole: Vec::new(), room, begin, most: size(declared.unwrap_or(limit)) }
    }

    /// How much there is.
    pub fn length(&self) -> usize {
        self.first.len() + self.whole.len()
    }

    /// Takes the next piece; 503 where there is no room for it.
    pub fn push(&mut self, data: Bytes) -> Result<(), Refusal> {
        let length = self.length() + data.len();
        if length == data.len() {
            self.room.grow_to(length)?;
            self.first = data; // most bodies come in one piece, which needs no copy
            return Ok(());
        }
        if length > self.whole.capacity() {
            // Whoever declares much and sends little has no more room than for twice that.
            let capacity = length.saturating_mul(2).max(self.begin).min(self.most).max(length);
            self.room.grow_to(capacity)?;
            self.whole.reserve_exact(capacity - self.whole.len());
        }
        self.whole.extend_from_slice(&std::mem::take(&mut self.first));
        self.whole.extend_from_slice(&data);
        Ok(())
    }

    /// All of it.
    pub fn finish(self) -> (Bytes, Room) {
        let Self { first, whole, room, .. } = self;
        (if whole.is_empty() { first } else { whole.into() }, room)
    }
}

/// Bytes that keep their room for as long as anybody has any of them.
pub fn held(bytes: Bytes, room: Room) -> Bytes {
    struct Held {
        bytes: Bytes,
        _room: Room,
    }

    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    Bytes::from_owner(Held { bytes, _room: room })
}

/// Why a body broke off: malformed, or its sender is gone.
pub fn broken(error: &(dyn std::error::Error + 'static)) -> Refusal {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut faults =
        causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref::<Fault>());
    faults.next().map_or(Refusal::BodyBroken, |fault| Refusal::Wire(*fault))
}

/// Longest wait for a client to finish sending what nobody reads, before the refusal is sent. What is on its way arrives
/// within it.
const ON_ITS_WAY: Duration = Duration::from_millis(250);

/// Throws away what arrives of a refused request's body within a moment, and tells whether that was all. Proxies in Go
/// (Traefik, Caddy) close the connection under an answer that begins before they have sent the whole request, and their
/// client gets half of it.
pub async fn discard(rest: &mut Body) -> bool {
    if rest.is_end_stream() {
        return true;
    }
    let all = async { while let Some(Ok(_)) = rest.frame().await {} };
    tokio::time::timeout(ON_ITS_WAY, all).await.is_ok()
}

/// How long the head of an answer waits for what follows, if that says anything: alone it tells nobody anything.
const HEAD_ALONE: Duration = Duration::from_millis(500);
/// From when on the beginning of an answer need not wait for its end.
const BEGINNING: Duration = Duration::from_millis(100);
/// How long it waits for its end even then.
const MOMENT: Duration = Duration::from_millis(10);
/// Lines of an event stream that tell nothing without data.
const SILENT_FIELDS: [&[u8]; 4] = [b":", b"id:", b"retry:", b"event:"];
/// Most that waits.
const GATHERED_MAXIMUM: usize = 64 * 1024;

/// Lets the beginning of an answer wait a moment, so that one that is soon over leaves in one piece, its length told. What
/// takes longer flows from then on as it comes. It is for the same proxies as [`discard`]: while they have not noticed yet
/// that the request has no more bytes, they close the connection when the answer's head arrives, and what has not arrived
/// by then is lost to their client (golang/go issue 40747). On a busy node they take tens of milliseconds to notice.
pub async fn gathered(body: Body) -> Body {
    match gather(body, Patience::Moment).await {
        Gathered::Whole(frames) => whole(frames),
        Gathered::Part(frames, rest) => part(frames, rest),
        Gathered::Broken(frames, error) => {
            let frames = frames.into_iter().map(Ok).chain([Err(error)]);
            StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
        }
    }
}

/// The same for an answer of which a part is of no use: a refusal, where it breaks off before any of it has left.
pub async fn unbroken(body: Body, patience: Patience) -> Result<Body, Refusal> {
    match gather(body, patience).await {
        Gathered::Whole(frames) => Ok(whole(frames)),
        Gathered::Part(frames, rest) => Ok(part(frames, rest)),
        Gathered::Broken(_, error) => {
            tracing::info!(%error, cause = cause(error.as_ref()), "an answer broke off");
            Err(Refusal::BackendBroken)
        }
    }
}

/// How long the beginning of an answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// No longer than its client can tell.
    Moment,
    /// For ever: its client has other signs of life.
    Endless,
}

/// What has come of an answer.
enum Gathered {
    Whole(Vec<Frame<Bytes>>),
    Part(Vec<Frame<Bytes>>, Body),
    Broken(Vec<Frame<Bytes>>, BodyError),
}

async fn gather(mut body: Body, patience: Patience) -> Gathered {
    let (mut begun, mut due) = (None, None);
    let (mut frames, mut length, mut says_something) = (Vec::new(), 0, false);
    while length < GATHERED_MAXIMUM {
        // Most answers are there at once: no clock is read for them, and no timer made.
        let frame = if let Some(frame) = body.frame().now_or_never() {
            frame
        } else if patience == Patience::Endless {
            body.frame().await
        } else {
            let now = clock::instant();
            let begun = *begun.get_or_insert(now);
            let until = || if says_something { (begun + BEGINNING).max(now + MOMENT) } else { begun + HEAD_ALONE };
            let Ok(frame) = timeout_at(*due.get_or_insert_with(until), body.frame()).await else { break };
            frame
        };
        match frame {
            None => return Gathered::Whole(frames),
            Some(Err(error)) => return Gathered::Broken(frames, error),
            Some(Ok(frame)) => {
                if !says_something && !frame.data_ref().is_some_and(|data| is_silent(data)) {
                    (says_something, due) = (true, None);
                }
                length += frame.data_ref().map_or(0, Bytes::len);
                add(&mut frames, frame);
                if body.is_end_stream() {
                    return Gathered::Whole(frames);
                }
            }
        }
    }
    Gathered::Part(frames, body)
}

/// Most bytes of pieces that are put together.
const PIECE: usize = 4096;

/// Adds a piece to others. Small ones are put together: each of them keeps the whole buffer that it was read into.
fn add(frames: &mut Vec<Frame<Bytes>>, frame: Frame<Bytes>) {
    match (frames.last_mut().and_then(Frame::data_mut), frame.data_ref()) {
        (Some(last), Some(data)) if last.len() + data.len() <= PIECE => *last = [last.as_ref(), data].concat().into(),
        _ => frames.push(frame),
    }
}

/// Whether these are events of an event stream without any data, as many servers begin their streams: an id to resume
/// from, a time to retry after, comments (MCP 2025-11-25, Streamable HTTP; HTML, server-sent events).
fn is_silent(events: &[u8]) -> bool {
    let silent = |line: &[u8]| match line.strip_prefix(b"data:") {
        Some(data) => data.trim_ascii().is_empty(),
        None => SILENT_FIELDS.iter().any(|field| line.starts_with(field)),
    };
    events.ends_with(b"\n")
        && events.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).all(|line| line.is_empty() || silent(line))
}

/// An answer that has ended; with trailers it stays in its pieces.
fn whole(frames: Vec<Frame<Bytes>>) -> Body {
    if !frames.iter().all(Frame::is_data) {
        return StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok))).boxed_unsync();
    }
    let alone = frames.len() == 1;
    let mut pieces = frames.into_iter().filter_map(|frame| frame.into_data().ok());
    if alone { full(pieces.next().unwrap_or_default()) } else { full(pieces.collect::<Vec<_>>().concat()) }
}

/// An answer of which these have come.
fn part(frames: Vec<Frame<Bytes>>, body: Body) -> Body {
    StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok)).chain(rest(body))).boxed_unsync()
}

/// What some servers begin a text with.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// An answer without the byte order mark at its beginning, for it is one nowhere else. Readers of event streams skip it
/// there alone (HTML, "Parsing an event stream"), and readers of JSON may not know it at all.
pub fn without_mark(mut body: Body) -> Body {
    let unmarked = async move {
        let (mut begin, mut broken) = (Bytes::new(), None);
        while begin.len() < MARK.len() && MARK.starts_with(&begin) {
            match body.frame().await {
                None => break,
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    begin = if begin.is_empty() { data } else { [begin, data].concat().into() };
                }
                Some(Err(error)) => {
                    broken = Some(Err(error));
                    break;
                }
            }
        }
        let begin = begin.strip_prefix(MARK).map_or_else(|| begin.clone(), |rest| begin.slice_ref(rest));
        let begin = (!begin.is_empty()).then(|| Ok(Frame::data(begin)));
        futures::stream::iter(begin.into_iter().chain(broken)).chain(rest(body))
    };
    StreamBody::new(futures::stream::once(unmarked).flatten()).boxed_unsync()
}

/// The frames of a body.
pub fn rest(body: Body) -> impl futures::Stream<Item = Result<Frame<Bytes>, BodyError>> + Send {
    futures::stream::unfold(body, |mut body| async move { Some((body.frame().await?, body)) })
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Exactly one `Content-Type`, `application/json` with any parameters, and no compression: what is not parsed here
/// must not be parsed behind us either.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(one), None) = (types.next(), types.next()) else { return false };
    let essence = one.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let plain =
        headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    essence.eq_ignore_ascii_case("application/json") && plain
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// The head of a request whose body has a declared length, or none.
    fn head(declared: Option<usize>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(declared.map(|length| (CONTENT_LENGTH, length.into())));
        headers
    }

    type Frames = futures::stream::BoxStream<'static, Result<Frame<Bytes>, BodyError>>;

    /// A body that comes in these pieces, and ends in this way.
    fn body_of(pieces: &[Bytes], end: Frames) -> Body {
        let frames: Vec<_> = pieces.iter().cloned().map(|piece| Ok(Frame::data(piece))).collect();
        StreamBody::new(futures::stream::iter(frames).chain(end)).boxed_unsync()
    }

    /// Reads a body that comes in these pieces, and tells what it holds.
    async fn piecewise(pieces: &[Bytes], declared: bool) -> (Bytes, Gauge) {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let (held, mut body) = (Gauge::default(), body_of(pieces, futures::stream::empty().boxed()));
        let room = Room::among(&held, 1024 * 1024);
        let headers = head(declared.then_some(length));
        (read(&headers, &mut body, length as u64, room, clock::instant() + DAY).await.unwrap(), held)
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let piece = Bytes::from(vec![b' '; 64 * 1024]);
        for declared in [true, false] {
            let (whole, held) = piecewise(std::slice::from_ref(&piece), declared).await;
            assert_eq!((whole.as_ptr(), held.get()), (piece.as_ptr(), 64 * 1024));
        }
    }

    #[tokio::test]
    async fn a_body_in_several_pieces_is_copied_once_where_its_length_is_told() {
        let text: Bytes = (0..64 * 1024).map(|at: u32| at.to_le_bytes()[0]).collect();
        // One that grew would have doubled from the two pieces with which it began, to another size.
        let pieces: Vec<_> = text.chunks(1000).map(Bytes::copy_from_slice).collect();
        let (whole, held) = piecewise(&pieces, true).await;
        assert_eq!((&whole, held.get()), (&text, 64 * 1024));
        drop(whole);
        assert_eq!(held.get(), 0);
        assert_eq!(piecewise(&pieces, false).await.0, text);
    }

    /// However little of a body arrives, and however it ends: what it takes is at most twice that, or what is believed of its
    /// declared length, and all of it is given back.
    #[tokio::test(start_paused = true)]
    async fn what_a_body_takes_is_little_more_than_has_arrived_and_is_given_back() {
        const DECLARED: usize = 4 * 1024 * 1024;
        let pieces = vec![Bytes::from(vec![b' '; 100_000]); DECLARED / 100_000];
        let held = Gauge::default();
        for (arrived, declared) in [0, 1, 2, 3, 5, 41].into_iter().flat_map(|n| [(n, None), (n, Some(DECLARED))]) {
            let pieces = &pieces[..arrived];
            let ask = async |end: Option<BodyError>, total: usize| {
                let end = futures::stream::iter(end.map(Err)).chain(futures::stream::pending());
                let (mut body, headers) = (body_of(pieces, end.boxed()), head(declared));
                let room = Room::among(&held, total as u64);
                read(&headers, &mut body, DECLARED as u64, room, clock::instant() + DAY).await.unwrap_err()
            };
            let mut waiting = Box::pin(ask(None, DECLARED));
            assert!(waiting.as_mut().now_or_never().is_none());
            let (least, most) = (arrived * 100_000, DECLARED.min(arrived * 200_000));
            assert!((least..=most).contains(&usize::try_from(held.get()).unwrap()), "{} of {least}", held.get());
            drop(waiting); // its client is gone
            assert_eq!(held.get(), 0, "left after {arrived}");
            assert_eq!((ask(None, DECLARED).await, held.get()), (Refusal::BodySlow, 0));
            assert_eq!((ask(Some("gone".into()), DECLARED).await, held.get()), (Refusal::BodyBroken, 0));
            if arrived > 0 {
                assert_eq!((ask(None, least - 1).await, held.get()), (Refusal::BodiesFull, 0));
            }
        }
    }

    #[tokio::test]
    async fn a_mark_is_taken_away_however_it_is_cut() {
        let cases: [(&[&[u8]], &[u8]); 8] = [
            (&[b"\xef\xbb\xbfdata"], b"data"),
            (&[b"\xef\xbb\xbf", b"data"], b"data"),
            (&[b"\xef", b"", b"\xbb", b"\xbfda", b"ta"], b"data"),
            (&[b"\xef\xbb\xbf\xef\xbb\xbf"], b"\xef\xbb\xbf"),
            (&[b"\xef", b"\xbbx", b"y"], b"\xef\xbbxy"),
            (&[b"d", b"\xef\xbb\xbf"], b"d\xef\xbb\xbf"),
            (&[b"\xef\xbb"], b"\xef\xbb"),
            (&[], b""),
        ];
        for (pieces, expected) in cases {
            for breaks in [false, true] {
                let pieces: Vec<_> = pieces.iter().copied().map(Bytes::from_static).collect();
                let end = futures::stream::iter(breaks.then(|| Err("gone".into())));
                let mut body = without_mark(body_of(&pieces, end.boxed()));
                let mut read = Vec::new();
                while let Some(Ok(frame)) = body.frame().await {
                    read.extend_from_slice(frame.data_ref().unwrap());
                }
                assert_eq!(read, expected, "{pieces:?}");
            }
            let body = without_mark(body_of(&[], futures::stream::iter([Err("gone".into())]).boxed()));
            assert!(body.collect().await.is_err());
        }
    }

    #[test]
    fn only_json_is_read() {
        let cases: &[(&[&str], bool)] = &[
            (&["application/json"], true),
            (&["APPLICATION/JSON"], true),
            (&["application/json; charset=utf-8"], true),
            (&["application/json;charset"], true),
            (&[], false),
            (&["text/plain"], false),
            (&["application/json+x"], false),
            (&["application/jsonx"], false),
            (&["text/plain, application/json"], false),
            (&["application/json", "text/plain"], false),
            (&["application/x-www-form-urlencoded"], false),
        ];
        for (types, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in *types {
                headers.append(CONTENT_TYPE, HeaderValue::from_static(value));
            }
            assert_eq!(is_json(&headers), *expected, "{types:?}");
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert!(!is_json(&headers), "{types:?} compressed");
        }
    }
}
